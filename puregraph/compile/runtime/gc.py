"""Garbage: what nobody has any more is looked for later, and the memory of it goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without a search for garbage, which would go through all that is being made again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def tidied() -> Iterator[None]:
    """Uncollected; in the end nothing stays but what was made."""
    with uncollected():
        yield
    if gc.isenabled():
        gc.collect(0)  # the next object would have it done
    giveBack()


def giveBack() -> None:
    """Have the allocator of C return what it keeps free; only that of glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
