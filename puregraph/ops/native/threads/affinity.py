"""CPU affinity: keeps woken threads off the CPU of the thread that wakes them.

A scheduler may put a thread that wakes up onto the CPU of the one that woke it although another CPU is idle, and move
it away only after 5 to 25 milliseconds. Linux does so in virtual machines, where a CPU that is idle counts as one that
the host has taken away (`vcpu_is_preempted`): after a pause, all steps would run on one CPU for that long.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any


def cpuFunction() -> Callable[[], int]:
    """The system's function that returns the CPU of the calling thread; -1 if unknown."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(AttributeError, OSError):
            return ctypes.PyDLL(None).sched_getcpu
    return lambda: -1


currentCpu: Any = cpuFunction()


def keepOff(cpu: int, threads: Sequence[int]) -> None:
    """Let threads, by their native ids, run on any CPU of the calling thread but this, if there is one for each."""
    if cpu < 0:
        return
    others = os.sched_getaffinity(0) - {cpu}
    if len(threads) <= len(others):
        for thread in threads:
            with suppress(OSError):  # it has ended, or may run on none of them
                os.sched_setaffinity(thread, others)
