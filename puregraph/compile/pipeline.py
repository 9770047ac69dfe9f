"""Pipeline: the passes of each backend in order; each takes a schedule and returns one.

A step is traced (`trace.schedule`), cleaned up by TRACED, prepared once by the backend's `prepare` passes and lowered
by its `lower` passes. If the plan exceeds a budget of bytes, `passes.rematerialize` makes the schedule compute cheap
values again, and the `lower` passes run again on a copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import DTypeLike

from puregraph.compile.ir.dump import dumped
from puregraph.compile.ir.validate import validated
from puregraph.compile.lower.lowering import lower
from puregraph.compile.lower.packedweights import keepPackedWeights
from puregraph.compile.passes.cse import eliminateCommonSubexpressions
from puregraph.compile.passes.dce import eliminateDeadCode
from puregraph.compile.passes.fusion import fuse
from puregraph.compile.passes.hoist import hoistConstants
from puregraph.compile.passes.hoistupdates import hoistUpdates
from puregraph.compile.passes.inline import inlineCheapValues
from puregraph.compile.passes.predicate import storePredicates
from puregraph.compile.passes.relusign import readReluSigns
from puregraph.compile.passes.reorder import reorderForMemory
from puregraph.compile.passes.startbuckets import startBuckets
from puregraph.compile.trace.schedule import traceStep
from puregraph.compile.trace.steprequest import FORWARD, StepRequest

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.shape import Shape
    from puregraph.graph import Graph

Pass = Callable[[Any], Any]


class Pipeline(NamedTuple):
    """The passes that run once on a traced schedule, and those that lower it for one backend."""

    prepare: tuple[Pass, ...] = ()
    lower: tuple[Pass, ...] = ()


TRACED: tuple[Pass, ...] = (
    eliminateCommonSubexpressions,
    readReluSigns,
    eliminateDeadCode,
)

NATIVE = Pipeline(
    prepare=(storePredicates,),
    lower=(
        keepPackedWeights,
        hoistConstants,
        hoistUpdates,
        fuse,
        inlineCheapValues,
        lower,
        reorderForMemory,
        startBuckets,
    ),
)

PLAIN = Pipeline(lower=(startBuckets,))


def gpuPasses() -> Pipeline:
    """The passes for a GPU; their modules are imported only if there is one."""
    from puregraph.compile.gpu.lower.gpulowering import fuseForGpu, lowerToGpu
    from puregraph.compile.gpu.passes.attentionbackward import useLibraryAttention
    from puregraph.compile.gpu.passes.autocast import autocast
    from puregraph.compile.gpu.passes.concatgrads import concatenateGradients
    from puregraph.compile.gpu.passes.fusedstates import fuseStateUpdates
    from puregraph.compile.gpu.passes.fusedxent import fuseCrossEntropy
    from puregraph.compile.gpu.passes.gemmepilogues import fuseEpilogues
    from puregraph.compile.gpu.passes.lossscale import scaleLoss
    from puregraph.compile.gpu.passes.padrows import padRows
    from puregraph.compile.gpu.passes.predication import predicate
    from puregraph.compile.gpu.passes.scatterinto import scatterIntoSums
    from puregraph.compile.gpu.passes.shiftvariance import shiftVariance
    from puregraph.compile.gpu.passes.weightlayout import transposeWeights

    return Pipeline(
        prepare=(storePredicates,),
        lower=(
            scaleLoss,
            autocast,
            predicate,
            fuseStateUpdates,
            useLibraryAttention,
            concatenateGradients,
            fuseCrossEntropy,
            padRows,
            transposeWeights,
            fuseEpilogues,
            scatterIntoSums,
            shiftVariance,
            fuseForGpu,
            inlineCheapValues,
            lowerToGpu,
            startBuckets,
        ),
    )


def schedule(
    graph: Graph, shapes: Sequence[Shape], dtypes: Sequence[DTypeLike] | None = None, request: StepRequest = FORWARD
) -> Schedule:
    """The schedule of a step, traced and cleaned up."""
    return runPasses(traceStep(graph, shapes, dtypes, request), TRACED)


def runPasses(schedule: Schedule, passes: Sequence[Pass]) -> Schedule:
    """Apply passes in order.

    With PUREGRAPH_VERIFY=1 the schedule is validated after each, with PUREGRAPH_DUMP=FOLDER it is written to a file.
    """
    for change in passes:
        schedule = dumped(validated(change, schedule), change.__name__)
    return schedule
