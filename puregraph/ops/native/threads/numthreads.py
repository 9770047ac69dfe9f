"""The number of threads in the pool."""

from __future__ import annotations

import os

from puregraph.core.base.environment import MOSTTHREADS as MAX_THREADS
from puregraph.core.base.environment import variable

WANTED: list[int] = []


def threads() -> int:
    """The number of threads that run tasks: from `want` or PUREGRAPH_THREADS, else one for each usable CPU."""
    if WANTED:
        return WANTED[0]
    count: int | None = variable("THREADS")
    if count is not None:
        return count
    return min(cores(), MAX_THREADS)


def cores() -> int:
    """The number of CPUs that this process may use."""
    hasAffinity = hasattr(os, "sched_getaffinity")  # not on macOS, not on Windows
    return len(os.sched_getaffinity(0)) if hasAffinity else os.cpu_count() or 1


def divideAmong(processes: int) -> None:
    """Share the CPUs with other processes on this machine, unless each has been given its own."""
    if variable("THREADS") is None and cores() == os.cpu_count():
        want(max(1, cores() // processes))


def want(count: int) -> None:
    """Set the number of threads."""
    if not 1 <= count <= MAX_THREADS:
        raise ValueError(f"the number of threads goes from 1 to {MAX_THREADS}, got {count}")
    WANTED[:] = [count]
