"""Rank file: the number of a process, in a file that it locks while it lives, so that its launcher knows who has ended.

When a process ends, Linux gives back its locks before it closes its connection to mpiexec, which then ends the others:
who was killed is never found alive once another is dead because of it. The end that `pidfd_open` reports comes later,
with the last thread, and often after that of the others.
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
    """Leave the number of this process in a folder; the descriptor, which holds the lock until the process ends."""
    descriptor = os.open(os.path.join(folder, f"{PREFIX}{rank}"), os.O_RDWR | os.O_CREAT, 0o600)
    if fcntl is not None:
        with suppress(OSError):  # a file system without locks: the launcher then names all as ended
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, str(os.getpid()).encode())  # after the lock: whoever can read the number finds the lock taken
    return descriptor


def finish(folder: str, rank: int) -> None:
    """Note that a process has come to its end as all others have."""
    with suppress(OSError):  # the launcher is gone, and nobody asks
        Path(folder, f"{FINISHED}{rank}").touch()


def unfinishedIn(folder: Path) -> list[int]:
    """The ranks that have left a number in a folder, and have not come to their end."""
    return sorted(rank for rank in ranksIn(folder) if not (folder / f"{FINISHED}{rank}").exists())


def ranksIn(folder: Path) -> dict[int, int]:
    """Return the number that each process has left in a folder, by rank."""
    numbers = {}
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):
            numbers[int(path.name.removeprefix(PREFIX))] = int(path.read_text())
    return numbers


def endedIn(folder: Path) -> list[int]:
    """The ranks that have left a number in a folder, and live no more."""
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
