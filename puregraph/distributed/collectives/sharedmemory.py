"""Shared memory of the processes of one machine, which is gone with the last of them, whatever ends it."""

from __future__ import annotations

import mmap
import os
import platform
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "/dev/shm"  # the tmpfs of Linux
ORDERED = ("x86_64", "AMD64", "i686")  # architectures on which stores become visible to other cores in program order
PAGE_BYTES = 4096
MPICH = re.compile(rf"{FOLDER}/(mpich_shm_[0-9a-f]+_)")  # the prefix is unique to a run


def sharedMemory(world: Any, sizes: list[int]) -> list[np.ndarray] | None:
    """Allocate `sizes[r]` zero bytes for each process r, which all processes read and write; None if they cannot.

    All processes of one machine call it, with the same sizes. They map one file, which is then unlinked.
    """
    ends = np.cumsum([0, *[-(-size // PAGE_BYTES) * PAGE_BYTES for size in sizes]]).tolist()
    isFirst, path, memory = world.rank == 0, b"", None
    if isFirst and platform.machine() in ORDERED and os.path.isdir(FOLDER):
        path = made(world.folder, ends[-1])
    names = world.gather(b"%d %b" % (ends[-1], path))
    isAlike = len({name.partition(b" ")[0] for name in names}) == 1  # if not, an error is raised later
    path = names[0].partition(b" ")[2]
    try:
        if path and isAlike:
            memory = opened(path)
        isEverywhere = all(world.gather(b"1" if memory is not None else b""))
    finally:
        if path and isFirst:
            os.unlink(path)
    if memory is None or not isEverywhere:
        return None
    whole = np.frombuffer(memory, np.uint8)
    return [whole[begin : begin + size] for begin, size in zip(ends, sizes)]


def made(folder: str, nbytes: int) -> bytes:
    """Create a shared-memory file for the run of this folder; returns its path, or b"" if n bytes are not available."""
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"{os.path.basename(folder)}-", dir=FOLDER)
    except OSError:
        return b""
    try:
        os.posix_fallocate(descriptor, 0, nbytes)
    except OSError:
        os.unlink(path)
        return b""
    finally:
        os.close(descriptor)
    return path.encode()


def removeFiles(folder: str, others: Iterable[str] = ()) -> None:
    """Remove the shared-memory files of an ended run, and files with the prefixes in `others`."""
    for prefix in (f"{os.path.basename(folder)}-", *others):
        for path in Path(FOLDER).glob(f"{prefix}*"):
            path.unlink(missing_ok=True)


def mpichFilesOf(pid: int) -> set[str]:
    """Return the prefixes of the files that MPICH uses for a live process. MPICH leaves them behind when the process
    is killed."""
    try:
        return set(MPICH.findall(Path(f"/proc/{pid}/maps").read_text()))
    except OSError:
        return set()


def opened(path: bytes) -> mmap.mmap | None:
    """Map a shared-memory file; None if that fails."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(descriptor, 0)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
