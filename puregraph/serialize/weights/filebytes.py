"""FileBytes: the bytes of an open file at any position, for several threads.

They are read into new arrays, and no file is mapped into memory: if another program truncates a mapped file, the system
ends the process (SIGBUS), and if one writes to it, weights change while a network runs. Reading from the system's cache
costs one copy, which a network would make anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import BinaryIO

import numpy as np

from puregraph.core.errors import CheckpointError
from puregraph.core.storage.archive import COPIED_BYTES, fill

STRUCTURE = 2 << 20  # most bytes of the description of arrays in a small file


class FileBytes:
    """The bytes of a file.

    `size`           the size of the file when it was opened
    `mostStructure`  most bytes of the description of its arrays, whose objects take up to thirty times as much memory
    """

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.lock = file, file.seek(0, 2), Lock()
        self.mostStructure = STRUCTURE + self.size // 16

    def bytesAt(self, offset: int, size: int) -> bytes:
        """Read bytes.

        Raises    CheckpointError if the file has fewer, or is closed
        """
        memory = bytearray(min(size, max(self.size - offset, 0)))
        if len(memory) < size:
            raise CheckpointError(f"it ends at byte {self.size}, before byte {offset + size}")
        self.into(offset, memoryview(memory))
        return bytes(memory)

    def into(self, offset: int, view: memoryview) -> None:
        """Fill a view of memory with the bytes from `offset` on.

        Raises    CheckpointError if the file has fewer, or is closed
        """
        with self.lock:
            if self.file.closed:
                raise CheckpointError("the file is closed; read arrays inside of the with block")
            self.file.seek(offset)
            if not fill(self.file, view):
                raise CheckpointError("the file has become shorter since it was opened")

    def array(self, offset: int, count: int, dtype: np.dtype) -> np.ndarray:
        """Read `count` elements into a new array of one axis, in the byte order of the machine.

        Raises    CheckpointError if the file has fewer bytes, or is closed
        """
        if offset + count * dtype.itemsize > self.size:
            raise CheckpointError(f"it ends at byte {self.size}, before byte {offset + count * dtype.itemsize}")
        values = np.empty(count, dtype)
        if count:
            self.into(offset, values.view(np.uint8).data)
        return values.astype(dtype.newbyteorder("="), copy=False)

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield bytes, a few megabytes at a time."""
        for start in range(0, size, COPIED_BYTES):
            yield self.bytesAt(offset + start, min(COPIED_BYTES, size - start))
