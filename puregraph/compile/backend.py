"""Backend: numpy, native code, or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from puregraph.compile import pipeline
from puregraph.compile.lower.registry import isLowered
from puregraph.compile.memory.outputs import StepOutput
from puregraph.compile.memory.planner import ALIGNMENT_BYTES, GPUALIGNMENT, MemoryPlan
from puregraph.compile.passes.rematerialize import planned
from puregraph.compile.pipeline import Pipeline, runPasses
from puregraph.compile.runtime.executable import Executable
from puregraph.compile.trace.opaque import NotArraysError
from puregraph.core import device
from puregraph.core.base.dtype import isBfloat16
from puregraph.ops.ir.channelslast import layoutFor
from puregraph.ops.kernel import allowed
from puregraph.ops.native.llvm import jit

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.graph import Graph


class Backend(NamedTuple):
    """Turns a schedule into an executable.

    `passes`     the passes that lower a schedule
    `build`      builds an executable from a plan and a workspace
    `layout`     returns the strides of a Kernel's result, see `channelslast.layoutFor`
    `keepsComposite`  whether a CompositeKernel, composed of numpy functions, stays one call
    `alignment`  of every value, in bytes
    `halves`     whether values are stored in 16 bits if modules allow it
    `outputType`  the memory of large results that the user gets; None: they are copied
    """

    name: str
    passes: Callable[[], Pipeline] = lambda: pipeline.PLAIN
    build: Callable[..., Any] = Executable
    layout: Callable[..., tuple[int, ...] | None] | None = None
    keepsComposite: Callable[[Any], bool] = lambda piece: True
    alignment: int = ALIGNMENT_BYTES
    halves: bool = False
    outputType: type[StepOutput] | None = None

    def plan(self, schedule: Schedule, budget: int | None) -> MemoryPlan:
        """The memory plan of a traced schedule, after all passes.

        Raises    PuregraphError if the budget, in bytes, cannot be met
        """
        return planned(self.prepared(schedule), budget, self.lowered, self.alignment, self.outputType)

    def prepared(self, schedule: Schedule) -> Schedule:
        """A traced schedule after the passes that run once."""
        return runPasses(schedule, self.passes().prepare)

    def planOf(self, lowered: Schedule) -> MemoryPlan:
        """The memory plan of a lowered schedule."""
        return MemoryPlan(lowered, self.alignment, self.outputType)

    def lowered(self, schedule: Schedule) -> Schedule:
        """A lowered copy of a schedule."""
        passes = self.passes().lower
        return runPasses(copy(schedule), passes) if passes else schedule


def hasLaunches(piece: Any) -> bool:
    """True if a GPU runs a composite function as one call."""
    return "cuda" in piece.implementations


def gpuExecutable(*arguments: Any) -> Any:
    """The executable of a plan on a GPU."""
    from puregraph.compile.gpu.runtime.gpuexecutable import GpuExecutable

    return GpuExecutable(*arguments)


NUMPY = Backend("numpy")
NATIVE = Backend("native", lambda: pipeline.NATIVE, layout=layoutFor, keepsComposite=isLowered, outputType=StepOutput)
GPU = Backend("gpu", pipeline.gpuPasses, gpuExecutable, layoutFor, hasLaunches, GPUALIGNMENT, halves=True)


def backendFor(graph: Graph, dtype: DTypeLike) -> Backend:
    """The backend for a graph that computes in this dtype: the GPU if its parameters are there.

    Raises    NotArraysError if only some parameters are on a GPU
    """
    stored = [*graph.params.values(), *graph.states.values()]
    there = {device.isDeviceArray(s.array) for s in stored if s.made} or {device.name() == "cuda"}
    if len(there) > 1:
        raise NotArraysError("some parameters are on a GPU, others are not")
    if there.pop():
        return GPU
    return NATIVE if isNative(dtype) else NUMPY


def isNative(dtype: DTypeLike) -> bool:
    """True if a step that computes in this dtype is compiled to native code."""
    return (
        allowed.fast
        and (np.dtype(dtype) in (np.float32, np.float64) or isBfloat16(np.dtype(dtype)))
        and jit.available()
    )
