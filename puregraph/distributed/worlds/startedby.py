"""Started by: the environment that an MPI launcher gives to this process, and its end with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

DEATHSIGNAL = 1  # the option of Linux's prctl
SIZES = {"PMI_SIZE": "MPICH", "OMPI_COMM_WORLD_SIZE": "Open MPI"}  # environment variables that launchers set
RANKS = {"PMI_SIZE": "PMI_RANK", "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK"}


def launcherRank() -> int:
    """Return the rank that an MPI launcher has set for this process."""
    launcher = launcherSize()
    return 0 if launcher is None else int(os.environ.get(RANKS[launcher[0]], "0"))


def launcherSize() -> tuple[str, int] | None:
    """Return the environment variable in which an MPI launcher has set the number of processes, and that number."""
    for name in SIZES:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return name, int(text)
    return None


def endWithParent(number: int = signal.SIGTERM) -> None:
    """Have Linux send this process a signal when the thread that started it ends; no effect on other systems."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(DEATHSIGNAL, number)
