"""Opening a file to load from: a regular file, or bytes."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, BinaryIO

from puregraph.core.errors import CheckpointError


def folderOf(source: Any) -> str | None:
    """Return the folder that holds the pieces of a file; None for bytes."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return None
    return os.path.dirname(os.path.realpath(os.fsdecode(source)))


def openFile(source: Any) -> BinaryIO:
    """A regular file, opened without waiting for a writer at the other end of a pipe."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)

    def opener(path: str, flags: int) -> int:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(source, "rb", opener=opener)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise CheckpointError("it is not a regular file")
    return file
