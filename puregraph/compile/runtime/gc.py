"""Garbage collection: none while a program is built, and afterwards freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection, which would traverse all objects that are being built again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def tidied() -> Iterator[None]:
    """`uncollected`; at the end only what was built stays in memory."""
    with uncollected():
        yield
    if gc.isenabled():
        gc.collect(0)  # else the next object would trigger it
    giveBack()


def giveBack() -> None:
    """Have the C allocator return its free memory; only glibc's can."""
    trim = trimmer()
    if trim is not None:
        trim(0)


@cache
def trimmer() -> Any:
    """The function of glibc that returns free memory; None where there is another library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
