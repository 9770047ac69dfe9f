"""Rank file: the process id of a rank, in a file that it locks while it lives, so that the launcher sees it end.

When a process ends, Linux releases its locks before it closes its connection to mpiexec, which then ends the others.
So the lock of the first to end is always free before mpiexec ends another. `pidfd_open` reports the end only with
the last thread, often after the end of other processes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "rank-"
FINISHED = "finished-"


def writeRankFile(folder: str, rank: int) -> int:
    """Write this process's id to a folder. Returns the descriptor, which holds the lock until the process ends."""
    descriptor = os.open(os.path.join(folder, f"{PREFIX}{rank}"), os.O_RDWR | os.O_CREAT, 0o600)
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks: the launcher then reports all as ended
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, str(os.getpid()).encode())  # after the lock, so that a readable id is locked
    return descriptor


def finish(folder: str, rank: int) -> None:
    """Note that a process has finished normally."""
    with suppress(OSError):  # the launcher is gone, with its folder
        Path(folder, f"{FINISHED}{rank}").touch()


def unfinishedIn(folder: Path) -> list[int]:
    """Return the ranks in a folder that have not finished normally."""
    return sorted(rank for rank in ranksIn(folder) if not (folder / f"{FINISHED}{rank}").exists())


def ranksIn(folder: Path) -> dict[int, int]:
    """Return the process ids in a folder, by rank."""
    numbers = {}
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):
            numbers[int(path.name.removeprefix(PREFIX))] = int(path.read_text())
    return numbers


def endedIn(folder: Path) -> list[int]:
    """Return the ranks in a folder whose processes have ended."""
    return sorted(rank for rank in ranksIn(folder) if isFree(folder / f"{PREFIX}{rank}"))


def isFree(path: Path) -> bool:
    """True if no process holds the lock of a file."""
    if fcntl is None:
        return False
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
