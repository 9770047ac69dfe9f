"""Machine memory: report an array that is larger than the machine's memory, after its allocation has failed."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.errors import Fault, ShapeError, show

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from puregraph.graph.module import Module

MAX_ADDRESS_BYTES = 1 << 47  # bytes of address space, if the system does not report its memory


@cache
def memoryBytes() -> int:
    """The bytes of this machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return MAX_ADDRESS_BYTES


def largeFault(what: str, shape: Sequence[int], dtype: DTypeLike) -> Fault | None:
    """The error for an array that is larger than the memory; None if it fits."""
    if any(type(size) is not int for size in shape):
        return None
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size <= memoryBytes():
        return None
    return Fault(
        f"{what} that fits into {memoryBytes():,} bytes of memory",
        f"shape {show(tuple(shape))} of {np.dtype(dtype).name}, {size:,} bytes",
    )


def needMemory(what: str, shape: Sequence[int], dtype: DTypeLike) -> None:
    """Raises    ShapeError for an array that is larger than the memory of this machine"""
    fault = largeFault(what, shape, dtype)
    if fault is not None:
        raise ShapeError(fault)


def needOutputs(module: Module, shapes: Sequence[object], dtypes: Sequence[object]) -> None:
    """Check the outputs of a module for inputs of these shapes and dtypes.

    Raises    ShapeError for an output larger than the memory of this machine
    """
    outs = module.dataShapeFrom(*shapes)
    try:
        types = module.dataTypeFrom(*dtypes)
    except Exception:  # reported elsewhere
        return
    rows = zip(outs, types) if isinstance(outs, list) else [(outs, types)]
    for shape, dtype in rows:
        if shape is not None:
            needMemory("an output", shape, dtype or "float32")
