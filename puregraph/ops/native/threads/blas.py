"""BLAS: the number of threads that numpy's matrix products use; the order of their sums depends on it."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from puregraph.core.base.introspection import numpyCore
from puregraph.core.base.mutex import Mutex

NAMES = list(product(("scipy_openblas", "openblas"), ("64_", "")))  # prefixes and suffixes of OpenBLAS's functions
LOCK = Mutex()
OUTER: list[int] = []  # the numbers of threads to restore, one for each block of `oneThread`


class Blas(NamedTuple):
    """The functions of OpenBLAS that read and set the number of its threads."""

    read: Any
    set: Any


@cache
def openBlas() -> Blas | None:
    """The OpenBLAS that numpy uses; None if numpy uses another BLAS."""
    near = Path(inspect.getfile(numpy)).parents[1] / "numpy.libs"
    for path in [numpyCore(), *sorted(map(str, near.glob("*openblas*")))]:  # the core does not do on Windows
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in NAMES:
            read, write = (f"{prefix}_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            if hasattr(library, read) and hasattr(library, write):
                return Blas(getattr(library, read), getattr(library, write))
    return None


@contextmanager
def oneThread(blas: Blas | None) -> Iterator[None]:
    """Make the BLAS of this process use one thread until the block ends; without a BLAS, do nothing."""
    if blas is None:
        yield
        return
    with LOCK.lock:
        OUTER.append(blas.read())
        blas.set(1)
    try:
        yield
    finally:
        with LOCK.lock:
            before = OUTER.pop()
            if not OUTER:
                blas.set(before)
