"""GPU lowering: turn the calls of a step into kernel launches and calls of NVIDIA's libraries.

Pointwise formulas and reductions are fused into groups, which `cuda.nests` turns into launches. Products, convolutions
and attention go to a library if it has a plan for them; other Kernels have their own launches. Calls without launches
stay calls on CuPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.compile.gpu.lower.copylaunch import moved
from puregraph.compile.gpu.lower.kernelcalls import launchesOf
from puregraph.compile.gpu.lower.librarycalls import fusedLaunches, productOf
from puregraph.compile.gpu.lower.maskbias import MaskedAttend
from puregraph.compile.gpu.passes.attentionbackward import AttendBack
from puregraph.compile.gpu.passes.fusedoptimizer import FusedFormula, FusedUpdate
from puregraph.compile.gpu.passes.fusedxent import FusedCrossEntropyGrad
from puregraph.compile.gpu.passes.gemmepilogues import FusedProduct
from puregraph.compile.gpu.passes.scatterinto import ScatterInto
from puregraph.compile.gpu.passes.weightlayout import WeightTranspose
from puregraph.compile.lower.callnest import callNest
from puregraph.compile.lower.lowering import Lowering, NativeCall, isMetOnce
from puregraph.compile.lower.nestcache import lateIn
from puregraph.compile.passes.fusion import Fuser
from puregraph.compile.passes.group import Group
from puregraph.compile.passes.nestlines import GPU
from puregraph.core.base.environment import variable
from puregraph.ops.cuda.libraries.cudnn import CudnnCall
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.nests import launches
from puregraph.ops.cuda.runtime.launch import Launch, Scratch, scratches
from puregraph.ops.formula.loopnest import LoopNest
from puregraph.ops.ir.elementlayout import OutputTiling
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.kernel import Kernel
from puregraph.ops.operation import declared

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

BYTE = np.dtype(np.uint8)
TUNING = 256 << 20  # workspace bytes that cuDNN's proposals may use when they are measured


class GpuTask(NamedTuple):
    """One launch, or one library call.

    `workspace`  memory that a library needs while it runs
    `extra`      the scratch memory of the launches: (Scratch, Value)
    """

    what: Launch | LibraryCall
    workspace: Value | None = None
    extra: tuple[tuple[Scratch, Value], ...] = ()

    @property
    def name(self) -> str:
        """The text in a table."""
        return self.what.name

    @property
    def by(self) -> str:
        """The name of the kernel or library."""
        return self.what.entry if isinstance(self.what, Launch) else self.what.library


def fuseForGpu(schedule: Schedule) -> Schedule:
    """Fuse neighbouring calls over one index space into groups that launches can compute."""
    schedule.calls = Fuser(schedule.calls, GPU).run()
    return schedule


def lowerToGpu(schedule: Schedule) -> Schedule:
    """Lower the calls that have launches."""

    def new(size: int) -> Value:
        schedule.count += 1
        return Value(schedule.count, (size,), BYTE, (1,), name="scratch")

    held = {id(target): v for target, v in schedule.held}
    schedule.calls = GpuLowering(schedule.calls, schedule.kept(), held, new, None).run()
    return schedule


class GpuLowering(Lowering):
    """Lowers one list of steps to launches."""

    def fused(self, nest: LoopNest, group: Group, reads: list[Value], makes: list[Value]) -> Call:
        """The loop nest of a group as one step."""
        isLone = group.size > 1 and not group.reductions  # a result of one element may not overwrite what others read
        over = [i for i in lateIn(nest) if isMetOnce(group, reads[i]) and not (isLone and reads[i].size == 1)]
        return self.launched(launches.launches(nest), group.calls, reads, makes, over)

    def launched(
        self,
        starts: Iterable[Any],
        calls: list[Call],
        reads: list[Value],
        makes: list[Any],
        over: Iterable[int] = (),
        checks: Iterable[Any] = (),
    ) -> Call:
        """Launches as one step, with their scratch memory among its results."""
        starts = list(starts)
        extra = tuple([(scratch, self.new(max(scratch.nbytes, 1))) for scratch in scratches(starts)])
        tasks = []
        for what in starts:
            size = what.workspace if isinstance(what, LibraryCall) else 0
            if isinstance(what, CudnnCall) and variable("TUNE", False):
                size = max(size, TUNING)
            tasks.append(GpuTask(what, self.new(size) if size else None, extra))
        more = [*(v for _, v in extra), *(t.workspace for t in tasks if t.workspace is not None)]
        name = "; ".join(dict.fromkeys(t.name for t in tasks))
        native = NativeCall(name, tasks, calls, len(makes), tuple(over), tuple(checks))
        return Call(native, tuple(reads), {}, [*makes, *more], "native", calls[-1].origin, True)

    # Products and kernels -------------------------------------------------------------------------------------------

    def tilingOf(self, call: Call) -> Any:
        """The call itself if its result takes an epilogue, otherwise None."""
        return call if call.function is np.matmul or declared(call.function, "epilogue") is not None else None

    def takesEpilogue(self, p: int, group: Group, kept: list[Value], tiling: OutputTiling) -> bool:
        """True if a library computes a group as the epilogue of a product or convolution."""
        call = self.steps[p]
        isKept = self.isRead(call.outs[0], (p, self.indices[id(group)]))
        return fusedLaunches(call, group, kept, isKept) is not None

    def call(self, i: int, call: Call) -> list[Call]:
        """A call as one step, or unchanged if it has no launches."""
        group = self.epilogues.get(i)
        if group is not None:
            (y,), j = call.outs, self.indices[id(group)]
            kept = [v for v in group.made.values() if self.isRead(v, (j,))]
            isKept = self.isRead(y, (i, j))
            done: Any = fusedLaunches(call, group, kept, isKept)
            others = [v for v, _ in group.loads.values() if v is not y]
            makes = [*kept, y] if isKept else kept
            return [self.launched(done, [call, *group.calls], [*call.values(), *others], makes)]
        if type(call.function) is FusedUpdate:
            over = [i for i, v in enumerate(call.arguments) if v.role in ("param", "state")]
            return [self.launched(call.function.launches(), call.function.calls, call.values(), call.outs, over)]
        if type(call.function) in (FusedFormula, WeightTranspose):
            return [self.launched(call.function.launches(call), [call], call.values(), call.outs)]
        if type(call.function) is FusedProduct:
            return [self.launched([call.function.launches(call)], call.function.calls, call.values(), call.outs)]
        if type(call.function) is ScatterInto:
            return [self.launched(call.function.launches(call), call.function.calls, call.values(), call.outs, [0])]
        if type(call.function) in (AttendBack, MaskedAttend):
            return [self.launched([call.function.launches(call)], [call], call.values(), call.outs)]
        if type(call.function) is FusedCrossEntropyGrad:
            over = [0] if call.arguments[0].strides == call.outs[0].strides else []
            return [self.launched(call.function.launches(call), [call], call.values(), call.outs, over)]
        starts, checks = self.launches(call)
        if starts is None:
            return [call]
        return [self.launched(starts, [call], call.values(), call.outs, (), checks)] if starts else [self.nothing(call)]

    def nothing(self, call: Call) -> Call:
        """A step without launches, for an empty result."""
        return self.launched([], [call], call.values(), call.outs)

    def launches(self, call: Call) -> tuple[list[Any] | None, list[Any]]:
        """The launches of a call, or None, and the input bounds to check first."""
        checks: list[Any] = []
        if call.kind.isContraction:
            return productOf(call), checks
        nest = callNest(call, GPU)
        if nest is not None:
            return launches.launches(nest), checks
        if call.kind.isExact and not call.kind.isView:
            return moved(call), checks
        if call.kind.isKernel and isinstance(call.function, Kernel):
            return launchesOf(call, checks)
        return None, checks
