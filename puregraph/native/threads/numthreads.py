"""How many threads the pool has."""

from __future__ import annotations

import os

from puregraph.base.environment import MOSTTHREADS as MOST
from puregraph.base.environment import variable

WANTED: list[int] = []


def threads() -> int:
    """How many threads run tasks: what `want` or PUREGRAPH_THREADS says, or one for each CPU that may be used."""
    if WANTED:
        return WANTED[0]
    count: int | None = variable("THREADS")
    if count is not None:
        return count
    hasAffinity = hasattr(os, "sched_getaffinity")  # not on macOS, not on Windows
    cores = len(os.sched_getaffinity(0)) if hasAffinity else os.cpu_count() or 1
    return min(cores, MOST)


def want(count: int) -> None:
    """Set the number of threads."""
    if not 1 <= count <= MOST:
        raise ValueError(f"the number of threads goes from 1 to {MOST}, got {count}")
    WANTED[:] = [count]
