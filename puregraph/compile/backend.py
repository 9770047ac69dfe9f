"""Backend: what carries a program out: numpy, native code, or a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph import device
from puregraph.compile import gpu
from puregraph.compile.lower import nativesegment
from puregraph.compile.memory.planner import ALIGNMENT
from puregraph.compile.runtime import executable
from puregraph.compile.trace.opaque import NotArraysError


class Backend(NamedTuple):
    """A way from a schedule to something that runs.

    `build`      makes it of a plan and the memory that several programs share; see `built.Built`
    `lower`      makes a schedule's calls what it carries out best; None: they are all numpy's
    `layout`     says how the results of kernels lie, see `layout.layoutFor`
    `isWhole`    whether a composite kernel, a function of numpy's functions, is carried out whole
    `alignment`  that of every value, in bytes
    `halves`     whether values are kept in 16 bits where modules say that they may be
    `gives`      whether large results are made where their user gets them
    """

    name: str
    build: Callable[..., Any] = executable.Executable
    lower: Callable[[Any], Any] | None = None
    layout: Any = None
    isWhole: Callable[[Any], bool] = lambda piece: True
    alignment: int = ALIGNMENT
    halves: bool = False
    gives: bool = False


NUMPY = Backend("numpy")
NATIVE = Backend(
    "native", executable.Executable, nativesegment.lowered, nativesegment.layoutFor, nativesegment.isWhole, gives=True
)
GPU = Backend("gpu", gpu.GpuExecutable, gpu.lowered, gpu.layoutFor, gpu.isWhole, gpu.ALIGNMENT, True)


def backendFor(graph: Any, dtype: Any) -> Backend:
    """The backend for a graph that computes in a dtype: on a GPU if its parameters lie there.

    Raises    NotArraysError if some do, and some do not
    """
    stored = [*graph.params.values(), *graph.states.values()]
    there = {device.isDeviceArray(s.array) for s in stored if s.made} or {device.name() == "cuda"}
    if len(there) > 1:
        raise NotArraysError("some parameters lie on a GPU, and some do not")
    if there.pop():
        return GPU
    return NATIVE if nativesegment.isWanted(dtype) else NUMPY
