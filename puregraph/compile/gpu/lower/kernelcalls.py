"""Kernels: launches of the CUDA twins of Kernels, and convolutions and attention by cuDNN, where it has a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.compile.gpu.lower.nestlaunch import rounds
from puregraph.compile.ir.value import Call, Value
from puregraph.compile.lower.bounds import Bounds
from puregraph.cuda.libraries import attention, convolution
from puregraph.kernels.attention import attend
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.labels import classIndex
from puregraph.kernels.recurrent import alive
from puregraph.kernels.scatter import gather, putClass, scatterAdd, takeClass

WHOLE = np.dtype(np.int64)


def attended(outs: Any, q: Value, k: Value, v: Value, mask: Any, causal: bool, scale: float, tf32: bool) -> Any:
    """Attention by cuDNN, which knows no masks."""
    return NotImplemented if mask is not None else attention.attend(outs, q, k, v, causal, scale, tf32=tf32)


LIBRARY: dict[Any, Callable[..., Any]] = {
    convolve: convolution.convolve,
    convolveData: convolution.convolveData,
    convolveWeight: convolution.convolveWeight,
    attend: attended,
}
LIMITS: dict[Any, Callable[[Call], Bounds]] = {
    gather: lambda c: Bounds(c.arguments[1], -1, c.arguments[0].shape[0]),
    scatterAdd: lambda c: Bounds(c.arguments[1], -1, c.arguments[2]),
    takeClass: lambda c: Bounds(c.arguments[1], -1, c.arguments[0].shape[1]),
    putClass: lambda c: Bounds(c.arguments[1], -1, c.arguments[2]),
    alive: lambda c: Bounds(c.arguments[0], 0, c.arguments[1] + 1),
    classIndex: lambda c: Bounds(c.arguments[0], 0, c.arguments[1], ignoredOf(c)),
}


def ignoredOf(call: Call) -> int | None:
    """The label that counts as none."""
    found = call.arguments[2] if len(call.arguments) > 2 else call.options.get("ignored")
    return None if found is None else int(found)


def launchesOf(call: Call, checks: list[Bounds]) -> tuple[list[Any] | None, list[Bounds]]:
    """A library's call, else the launches of the Kernel itself; None where it has none. Indices that come from the
    host are looked at there."""
    if call.function in LIMITS:
        bounds = LIMITS[call.function](call)
        if bounds.value.root.role == "input" and bounds.value.dtype == WHOLE:
            checks.append(bounds)
    outs: Any = call.outs if call.several else call.outs[0]
    found = libraryOf(call, outs)
    if found is NotImplemented and "cuda" in call.function.implementations:
        found = call.function.implementations["cuda"](outs, *call.arguments, **call.options)
    if found is NotImplemented:
        return None, checks
    return (found if isinstance(found, list) else [found]), checks


def libraryOf(call: Call, outs: Any) -> Any:
    """A library's call; NotImplemented where it has none."""
    make = LIBRARY.get(call.function)
    return NotImplemented if make is None else make(outs, *call.arguments, **call.options, tf32=rounds(call))
