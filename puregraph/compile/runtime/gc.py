"""Garbage collection: off while a program is built; afterwards freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from puregraph.core.base.uncollected import uncollected
from puregraph.ops.native.llvm import jit


@contextmanager
def tidied() -> Iterator[None]:
    """Run the body `uncollected`, then collect; if kernels were compiled, give freed memory back to the system."""
    loaded = len(jit.LOADED)
    with uncollected():
        yield
        gc.collect(0)
    if len(jit.LOADED) != loaded:
        giveBack()


def giveBack() -> None:
    """Make the C allocator return free memory to the system; only glibc can."""
    trim = trimmer()
    if trim is not None:
        trim(0)


@cache
def trimmer() -> Any:
    """glibc's function that returns free memory; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
