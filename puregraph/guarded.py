"""Reading HDF5 from somewhere, without trusting it: the only place where a foreign file meets HDF5's library.

No link is followed that leads elsewhere, no dataset read that is kept in another file, and nothing inflated beyond the
size that it declares. The library reads through the one open file it is given, and opens none.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from puregraph.errors import CheckpointError, show

DEFLATE, SHUFFLE = 1, 2  # HDF5's numbers of the only filters that are undone here
NAMES = 1_000_000


def library() -> Any:
    """h5py, imported when the first foreign file is read: nothing else needs it, and it takes 0.1 s."""
    import h5py

    return h5py


class Declared(NamedTuple):
    """What a dataset says of itself; nothing of it is allocated."""

    shape: tuple[int, ...]
    dtype: np.dtype
    dataset: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Guarded:
    """The groups and datasets of one HDF5 file.

    Raises    CheckpointError naming what is refused, and why
    """

    def __init__(self, file: BinaryIO):
        self.source, self.length = file, file.seek(0, 2)
        file.seek(0)
        try:
            self.file = library().File(file, "r")
        except Exception as error:  # the library raises what it likes
            raise CheckpointError(f"HDF5 cannot open it: {error!s:.200}") from error

    def close(self) -> None:
        self.file.close()

    def names(self, path: str = "/") -> list[str]:
        """The names in a group, each of which must be a plain entry of this file."""
        group = self.open(path)
        if not isinstance(group, library().Group):
            raise CheckpointError(f"'{path}' is not a group")
        count = self.call(path, lambda: len(group))
        if count > NAMES:
            raise CheckpointError(f"'{path}' holds {count} names, more than {NAMES}")
        names = self.call(path, lambda: list(group))
        for name in names:
            self.hard(group, name)
        return names

    def open(self, path: str) -> Any:
        """What a path names, one part after the other, none of them a link to elsewhere."""
        found = self.file
        for part in [part for part in path.split("/") if part]:
            self.hard(found, part)
            found = self.call(path, lambda group=found, name=part: group[name])
        return found

    def hard(self, group: Any, name: str) -> None:
        """Refuse what is not directly in this group."""
        place = f"'{group.name.rstrip('/')}/{name}'"
        if not isinstance(group, library().Group) or name in ("", ".", "..") or "/" in name:
            raise CheckpointError(f"{place} cannot be looked up")
        link = self.call(name, lambda: group.get(name, getlink=True))
        if isinstance(link, library().ExternalLink):
            raise CheckpointError(f"{place} is an external link, which would read another file")
        if isinstance(link, library().SoftLink):
            raise CheckpointError(f"{place} is a soft link; a checkpoint has none")
        if not isinstance(link, library().HardLink):
            raise CheckpointError(f"{place} is missing")

    def declared(self, path: str) -> Declared:
        """A dataset of plain numbers, kept whole in this file."""
        dataset = self.open(path)
        if not isinstance(dataset, library().Dataset):
            raise CheckpointError(f"'{path}' is not a dataset")
        return self.call(path, lambda: self.describe(path, dataset))

    def describe(self, path: str, dataset: Any) -> Declared:
        plist = dataset.id.get_create_plist()
        if plist.get_external_count():
            raise CheckpointError(f"'{path}' keeps its data in another file (external storage)")
        if plist.get_layout() == library().h5d.VIRTUAL:
            raise CheckpointError(f"'{path}' is a virtual dataset, which would read other files")
        if dataset.shape is None:
            raise CheckpointError(f"'{path}' has no data space")
        return Declared(tuple(map(int, dataset.shape)), dataset.dtype, dataset)

    def read(self, path: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """The values of a dataset that must have this shape and dtype."""
        found = self.declared(path)
        if found.shape != shape or found.dtype != np.dtype(dtype) or found.dtype.kind not in "fiub":
            raise CheckpointError(
                f"'{path}': wanted {show(shape)} {np.dtype(dtype)}, got {show(found.shape)} {found.dtype}"
            )
        if found.dataset.chunks is not None:
            return self.inflate(path, found)
        if found.nbytes > self.length:
            raise CheckpointError(f"'{path}' declares {found.nbytes} bytes in a file of {self.length}")
        if found.dataset.id.get_storage_size() != found.nbytes:
            raise CheckpointError(f"'{path}' holds {found.dataset.id.get_storage_size()} of its {found.nbytes} bytes")
        return self.call(path, lambda: np.asarray(found.dataset[()], found.dtype))

    def text(self, path: str) -> bytes:
        """A dataset that holds one text of any length, which HDF5 keeps in a heap apart.

        The heap is read here, because the library can loop for ever over a damaged one.
        """
        found = self.declared(path)
        kind = library().check_string_dtype(found.dtype)
        if found.shape != () or kind is None or kind.length is not None or found.dataset.chunks is not None:
            raise CheckpointError(f"'{path}' is not a text")
        entry = self.bytesAt(found.dataset.id.get_offset(), 16)
        length, address, wanted = struct.unpack("<IQI", entry)
        signature, size = struct.unpack("<4s4xQ", self.bytesAt(address, 16))
        at, end = address + 16, min(address + size, self.length)
        while signature == b"GCOL" and at + 16 <= end:
            index, size = struct.unpack("<H6xQ", self.bytesAt(at, 16))
            if index == wanted and length <= size <= end - at - 16:
                return self.bytesAt(at + 16, length)
            if index in (0, wanted):  # 0 is the free space at the end
                break
            at += 16 + -(-size // 8) * 8
        raise CheckpointError(f"'{path}' is damaged: the heap of texts does not hold it")

    def bytesAt(self, offset: int | None, size: int) -> bytes:
        self.source.seek(min(offset or 0, self.length))
        data = self.source.read(size)
        if len(data) != size:
            raise CheckpointError(f"it is damaged: {size} bytes at {offset} are not in the file")
        return data

    def inflate(self, path: str, found: Declared) -> np.ndarray:
        """The values of a compressed dataset, chunk by chunk, each no larger than it says."""
        plist, chunk = found.dataset.id.get_create_plist(), found.dataset.chunks
        filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
        counts = [-(-n // c) for n, c in zip(found.shape, chunk, strict=True)]
        size = math.prod(chunk) * found.dtype.itemsize
        if filters not in ([], [DEFLATE], [SHUFFLE, DEFLATE]):
            raise CheckpointError(f"'{path}' uses HDF5 filters {filters}; known are gzip and shuffle")
        if math.prod(counts) > self.length or size > max(found.nbytes, 1) * 2 ** len(chunk):
            raise CheckpointError(f"'{path}' is cut into chunks of {show(chunk)}, which cannot be")
        if found.nbytes > 1100 * self.length:  # what gzip can do at best
            raise CheckpointError(f"'{path}' declares {found.nbytes} bytes in a file of {self.length}")
        values = np.zeros(found.shape, found.dtype)
        for index in np.ndindex(*counts):
            start = tuple(i * c for i, c in zip(index, chunk, strict=True))
            mask, data = self.call(path, lambda at=start: found.dataset.id.read_direct_chunk(at))
            if mask:
                raise CheckpointError(f"'{path}' has a chunk at {start} without its filters")
            block = np.frombuffer(unpack(path, data, filters, size, found.dtype.itemsize), found.dtype).reshape(chunk)
            inside = tuple(slice(s, s + c) for s, c in zip(start, chunk, strict=True))
            target = values[inside]
            target[...] = block[tuple(slice(n) for n in target.shape)]
        return values

    def call(self, path: str, function: Any) -> Any:
        try:
            return function()
        except CheckpointError:
            raise
        except Exception as error:  # the library raises what it likes
            raise CheckpointError(f"'{path}' cannot be read: {error!s:.200}") from error


def unpack(path: str, data: bytes, filters: list[int], size: int, itemsize: int) -> bytes:
    """A chunk of exactly `size` bytes."""
    if DEFLATE in filters:
        inflater = zlib.decompressobj()
        try:
            data = inflater.decompress(data, size + 1)
        except zlib.error as error:
            raise CheckpointError(f"'{path}' is damaged: {error}") from None
        if not inflater.eof:
            raise CheckpointError(f"'{path}' has a chunk that is cut off, or inflates to more than {size} bytes")
    if len(data) != size:
        raise CheckpointError(f"'{path}' has a chunk of {len(data)} bytes, wanted {size}")
    if SHUFFLE in filters:
        data = np.frombuffer(data, np.uint8).reshape(itemsize, -1).T.tobytes()
    return data
