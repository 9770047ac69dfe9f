"""Kernel calls: launches of the CUDA implementations of Kernels; convolutions and attention by cuDNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import declared

INT64 = np.dtype(np.int64)


def launchesOf(call: Call, checks: list[Bounds]) -> tuple[list[Any] | None, list[Bounds]]:
    """A library call, or else the launches of the Kernel; None if it has neither.

    Bounds of indices that come from the host are added to `checks`.
    """
    rule = declared(call.function, "bounds")
    if rule is not None:
        bounds = Bounds(*rule(*call.arguments, **call.options))
        if bounds.value.root.role == "input" and bounds.value.dtype == INT64:
            checks.append(bounds)
    outs: Any = call.outs if call.several else call.outs[0]
    launches = libraryOf(call, outs)
    if launches is NotImplemented and "cuda" in call.function.implementations:
        launches = call.function.implementations["cuda"](outs, *call.arguments, **call.options)
    if launches is NotImplemented:
        return None, checks
    return (launches if isinstance(launches, list) else [launches]), checks


def libraryOf(call: Call, outs: Any) -> Any:
    """The library call of a Kernel; NotImplemented if no library has a plan."""
    make = declared(call.function, "library")
    return NotImplemented if make is None else make(outs, *call.arguments, **call.options, tf32=call.origin.isTf32)
