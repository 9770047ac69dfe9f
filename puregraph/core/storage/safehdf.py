"""Safe reading of untrusted HDF5 files, without HDF5's own library.

It supports the HDF5 that PuzzleLib writes (`libver="earliest"`): superblock 0, groups of symbol tables, object
headers of version 1; numbers that are compact, contiguous, or in chunks with gzip and shuffle; one text. An address or
a size is compared with the file before it is followed, no tree node is visited twice, no link leads elsewhere.

Source    HDF5 File Format Specification 3.0, sections II.A (superblock 0), III.A to III.E, IV.A.1, IV.A.2
"""

from __future__ import annotations

import math
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, show
from puregraph.core.storage.hdf import FLOATS, NOWHERE, RANK, WHOLE, datatype

SIGNATURE = b"\x89HDF\r\n\x1a\n"
DEFLATE, SHUFFLE = 1, 2  # the supported filters
MAX_NAMES = 1_000_000
MAX_HEADER_BLOCKS = 64  # most blocks of an object header

# messages of an object header
SPACE, LINKS, TYPE, EXTERNAL, LINK, LAYOUT, FILTERS, CONTINUED, TABLE = (
    0x01,
    0x02,
    0x03,
    0x07,
    0x06,
    0x08,
    0x0B,
    0x10,
    0x11,
)
COMPACT, CONTIGUOUS, CHUNKED, VIRTUAL = range(4)
SOFT, OUTSIDE = 1, 64  # kinds of links

NEWER = (
    "is stored in a newer form of HDF5 than PuzzleLib writes; copy the file with h5py.File(..., 'w', libver='earliest')"
)
CLASSES = (
    "whole numbers",
    "floats",
    "times",
    "texts",
    "bits",
    "opaque values",
    "records",
    "references",
    "enumerations",
)


NUMBERS = {datatype(name): np.dtype(name).newbyteorder("<") for name in (*FLOATS, *WHOLE) if name != "bfloat16"}


class Declared(NamedTuple):
    """The header of a dataset, read without allocating its values."""

    shape: tuple[int, ...]
    dtype: np.dtype
    layout: bytes
    filters: list[int]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Guarded:
    """The groups and datasets of one HDF5 file.

    Raises    CheckpointError naming the refused object and the reason
    """

    def __init__(self, file: BinaryIO, budget: Budget | None = None):
        self.source, self.length = file, file.seek(0, 2)
        self.budget = budget or Budget(self.length)
        self.groups: dict[str, dict[str, int]] = {}
        self.claims: list[tuple[int, int, str]] = []
        block = self.bytesAt("the superblock", 0, min(96, self.length)).ljust(96, b"\0")
        if not block.startswith(SIGNATURE):
            what = (
                "a checkpoint of puregraph"
                if block.startswith(b"puregraph")
                else f"one that begins with {block[:16]!r}"
            )
            raise CheckpointError(f"it is not an HDF5 file of PuzzleLib, it is {what}")
        self.length, self.root = self.superblock(block)

    def superblock(self, block: bytes) -> tuple[int, int]:
        """Return the length of the file and the address of its root group."""
        base, end, root = (struct.unpack_from("<Q", block, at)[0] for at in (24, 40, 64))
        if block[8] != 0 or block[13:15] != b"\x08\x08" or base != 0:
            raise CheckpointError(f"it {NEWER}")
        return self.checkLength(end), root

    def checkLength(self, end: int) -> int:
        """Check that the file has the length that its superblock declares, and return it."""
        if end > self.length:
            raise CheckpointError(f"it is cut off: wanted {end} bytes, got {self.length}")
        return end

    def close(self) -> None:
        """Do nothing: the caller, who opened the file, closes it."""

    # Bytes ----------------------------------------------------------------------------------------------------------

    def bytesAt(self, path: str, offset: int, size: int, what: str = "bytes of structure") -> bytes:
        """Read bytes of the file, and claim them for an object.

        Raises    CheckpointError if the file is too short, or if another object has claimed any of them
        """
        if offset + size > self.length:
            raise CheckpointError(f"it is damaged: {size} bytes at {offset} are not in the file")
        self.budget.spend(what, size)
        self.claim(path, offset, offset + size)
        self.source.seek(offset)
        data = self.source.read(size)
        if len(data) != size:
            raise CheckpointError(f"it is damaged: {size} bytes at {offset} are not in the file")
        return data

    def claim(self, path: str, start: int, end: int) -> None:
        """Record the owner of a byte range; overlapping ranges are refused, because no writer produces them."""
        claim = start, end, path
        at = bisect_left(self.claims, claim)
        if claim in self.claims[at : at + 1]:
            return
        for other in self.claims[max(at - 1, 0) : at + 1]:
            if start < other[1] and other[0] < end:
                raise damaged(path, f"its bytes at {start} belong to '{other[2]}' as well")
        if start < end:
            self.claims.insert(at, claim)

    def messages(self, path: str, address: int) -> dict[int, bytes]:
        """Return the messages of an object header by kind. Only attributes may repeat; the last one counts."""
        return dict(self.eachMessage(path, address))

    def eachMessage(self, path: str, address: int) -> list[tuple[int, bytes]]:
        """Return the kind and content of every message of an object header."""
        start = self.bytesAt(path, address, 16)
        if start.startswith(b"OHDR"):
            raise CheckpointError(f"'{path}' {NEWER}")
        version, count, size = struct.unpack("<BxH4xI4x", start)
        if version != 1:
            raise damaged(path, "it has no header")
        listed: list[tuple[int, bytes]] = []
        blocks, total = [(address + 16, size)], 0
        for offset, size in blocks:
            data, at = self.bytesAt(path, offset, size), 0
            while at + 8 <= len(data) and total < count:
                kind, length, flags = struct.unpack_from("<2HB", data, at)
                content = data[at + 8 : at + 8 + length]
                at, total = at + 8 + length, total + 1
                if len(content) != length or flags & 2 or isSecond(kind, listed):
                    raise damaged(path, "a message of its header cannot be")
                if kind == CONTINUED and length >= 16 and len(blocks) < MAX_HEADER_BLOCKS:
                    blocks.append(struct.unpack("<2Q", content[:16]))
                elif kind == CONTINUED:
                    raise damaged(path, "its header goes on without end")
                listed.append((kind, content))
        if total != count:
            raise damaged(path, f"its header has {total} of {count} messages")
        return listed

    def rows(self, path: str, address: int, kind: int, size: int) -> Iterator[tuple[bytes, int]]:
        """Yield the keys, of `size` bytes, and the addresses in the leaves of a tree."""
        waiting, seen = [(address, -1)], set()
        while waiting:
            at, wanted = waiting.pop()
            signature, sort, level, count = struct.unpack("<4s2BH", self.bytesAt(path, at, 8))
            if signature != b"TREE" or sort != kind or wanted not in (-1, level) or at in seen:
                raise damaged(path, "its tree cannot be")
            seen.add(at)
            data = self.bytesAt(path, at + 24, count * (size + 8))
            for i in range(0, len(data), size + 8):
                child = struct.unpack_from("<Q", data, i + size)[0]
                if level:
                    waiting.append((child, level - 1))
                else:
                    yield data[i : i + size], child

    # Groups ---------------------------------------------------------------------------------------------------------

    def names(self, path: str = "/") -> list[str]:
        """Return the names in a group; each must be a plain entry of this file."""
        address, full = self.find(path)
        return list(self.members(full or "/", address))

    def find(self, path: str) -> tuple[int, str]:
        """Return the address of the object at a path, and the full path."""
        address, full = self.root, ""
        for part in [part for part in path.split("/") if part]:
            members = self.members(full or "/", address)
            full = f"{full}/{part}"
            if part not in members:
                raise CheckpointError(f"'{full}' is missing")
            address = members[part]
        return address, full

    def members(self, path: str, address: int) -> dict[str, int]:
        """Return the entries of a group and their addresses."""
        if path not in self.groups:
            self.groups[path] = dict(self.entries(path, address))
        return self.groups[path]

    def entries(self, path: str, address: int) -> Iterator[tuple[str, int]]:
        """Yield the entries of a group one after the other."""
        messages = self.messages(path, address)
        if LINK in messages:
            refuseLink(path, messages[LINK])
        if LINKS in messages:
            raise CheckpointError(f"the group '{path}' {NEWER}")
        if len(messages.get(TABLE, b"")) < 16:
            raise CheckpointError(f"'{path}' is not a group")
        tree, heap = struct.unpack("<2Q", messages[TABLE][:16])
        signature, size, start = struct.unpack("<4s4xQ8xQ", self.bytesAt(path, heap, 32))
        if signature != b"HEAP":
            raise damaged(path, "its names are not there")
        texts, seen = self.bytesAt(path, start, size), set()
        for _, node in self.rows(path, tree, 0, 8):
            signature, count = struct.unpack("<4s2xH", self.bytesAt(path, node, 8))
            if signature != b"SNOD":
                raise damaged(path, "its entries are not there")
            data = self.bytesAt(path, node + 8, 40 * count)
            for at in range(0, len(data), 40):
                offset, header, cache = struct.unpack_from("<2QI", data, at)
                name = self.name(path, texts, offset)
                full = f"{path.rstrip('/')}/{name}"
                if cache == 2:
                    raise CheckpointError(f"'{full}' is a soft link; a checkpoint has none")
                if name in seen:
                    raise damaged(path, f"{name!r:.80} stands twice in it")
                seen.add(name)
                yield name, header
        if len(seen) > MAX_NAMES:
            raise CheckpointError(f"'{path}' holds {len(seen)} names, more than {MAX_NAMES}")

    def name(self, path: str, texts: bytes, start: int) -> str:
        """A name in the heap of a group."""
        end = texts.find(b"\0", start) if start < len(texts) else -1
        self.budget.spend("bytes of structure", max(end - start, 0))
        name = texts[start:end].decode("utf-8", "replace") if end >= 0 else ""
        if name in ("", ".", "..") or "/" in name or "\ufffd" in name:
            raise damaged(path, "one of its names cannot be")
        return name

    # Datasets -------------------------------------------------------------------------------------------------------

    def declared(self, path: str) -> Declared:
        """Return the description of a dataset of plain numbers in this file."""
        shape, message, layout, filters = self.describe(path)
        dtype = next((d for known, d in NUMBERS.items() if message.startswith(known)), None)
        if dtype is None:
            kind = message[0] & 15 if message else 15
            what = CLASSES[kind] if kind < len(CLASSES) else "values of any length" if kind == 9 else "arrays"
            raise CheckpointError(f"'{path}' cannot be read: it holds {what} that are none of numpy's numbers")
        return Declared(shape, dtype, layout, filters)

    def datasetHeader(self, path: str) -> dict[int, bytes]:
        """Return the header messages of a dataset.

        Raises    CheckpointError for anything else, and for data in another file
        """
        address, full = self.find(path)
        messages = self.messages(full, address)
        if EXTERNAL in messages:
            raise CheckpointError(f"'{path}' keeps its data in another file (external storage)")
        if not {SPACE, TYPE, LAYOUT} <= messages.keys():
            raise CheckpointError(f"'{path}' is not a dataset")
        return messages

    def describe(self, path: str) -> tuple[tuple[int, ...], bytes, bytes, list[int]]:
        """Return the shape, datatype, layout and filters of a dataset."""
        messages = self.datasetHeader(path)
        layout = messages[LAYOUT]
        if len(layout) >= 2 and layout[0] == 4 and layout[1] == VIRTUAL:
            raise CheckpointError(f"'{path}' is a virtual dataset, which would read other files")
        if len(layout) < 2 or layout[0] != 3:
            raise CheckpointError(f"'{path}' {NEWER}")
        return shapeOf(path, messages[SPACE]), messages[TYPE], layout, filtersOf(path, messages.get(FILTERS))

    def read(self, path: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Read the values of a dataset that must have this shape and dtype."""
        dataset = self.declared(path)
        if dataset.shape != shape or dataset.dtype != np.dtype(dtype):
            raise CheckpointError(
                f"'{path}': wanted {show(shape)} {np.dtype(dtype)}, got {show(dataset.shape)} {dataset.dtype}"
            )
        if dataset.layout[1] == CHUNKED:
            return inflated(self, path, dataset)
        if dataset.filters:
            raise damaged(path, "it has filters, but no chunks")
        return np.frombuffer(self.whole(path, dataset.layout, dataset.nbytes), dataset.dtype).reshape(shape)

    def whole(self, path: str, layout: bytes, size: int) -> bytes:
        """Return the bytes of a compact or contiguous dataset."""
        if layout[1] == COMPACT and len(layout) >= 4:
            held = struct.unpack_from("<H", layout, 2)[0]
            if held != size or len(layout) < 4 + size:
                raise CheckpointError(f"'{path}' holds {held} of its {size} bytes")
            return layout[4 : 4 + size]
        if layout[1] != CONTIGUOUS or len(layout) < 18:
            raise damaged(path, "its layout cannot be")
        address, held = struct.unpack_from("<2Q", layout, 2)
        if address == NOWHERE and size or held != size:
            raise CheckpointError(f"'{path}' holds {0 if address == NOWHERE else held} of its {size} bytes")
        return self.bytesAt(path, address, size, "bytes of arrays") if size else b""

    def text(self, path: str) -> bytes:
        """Read a dataset with one variable-length text, which HDF5 stores in a global heap."""
        shape, message, layout, filters = self.describe(path)
        if shape != () or message[:2] != b"\x19\x01" or layout[1] == CHUNKED or filters:
            raise CheckpointError(f"'{path}' is not a text")
        length, address, wanted = struct.unpack("<IQI", self.whole(path, layout, 16))
        signature, size = struct.unpack("<4s4xQ", self.bytesAt(path, address, 16))
        at, end = address + 16, min(address + size, self.length)
        while signature == b"GCOL" and at + 16 <= end:
            index, size = struct.unpack("<H6xQ", self.bytesAt(path, at, 16))
            if index == wanted and length <= size <= end - at - 16:
                return self.bytesAt(path, at + 16, length)
            if index in (0, wanted):  # 0 is the free space at the end
                break
            at += 16 + -(-size // 8) * 8
        raise CheckpointError(f"'{path}' is damaged: the heap of texts does not hold it")

    # Chunks ---------------------------------------------------------------------------------------------------------


def inflated(guarded: Guarded, path: str, dataset: Declared) -> np.ndarray:
    """Read the values of a chunked dataset; no chunk may be larger than declared."""
    rank, itemsize = len(dataset.shape), dataset.dtype.itemsize
    if len(dataset.layout) < 11 + 4 * (rank + 1) or dataset.layout[2] != rank + 1:
        raise damaged(path, "its layout cannot be")
    tree, *chunk, last = struct.unpack_from(f"<Q{rank + 1}I", dataset.layout, 3)
    size = math.prod(chunk) * itemsize
    if dataset.filters not in ([], [DEFLATE], [SHUFFLE, DEFLATE]):
        raise CheckpointError(f"'{path}' uses HDF5 filters {dataset.filters}; known are gzip and shuffle")
    if not rank or 0 in chunk or last != itemsize or size > max(dataset.nbytes, 1) * 2**rank:
        raise CheckpointError(f"'{path}' is cut into chunks of {show(tuple(chunk))}, which cannot be")
    counts = [-(-n // c) for n, c in zip(dataset.shape, chunk, strict=True)]
    if math.prod(counts) > guarded.length:
        raise CheckpointError(f"'{path}' is cut into chunks of {show(tuple(chunk))}, which cannot be")
    guarded.budget.spend("bytes of arrays", dataset.nbytes)
    values, seen = np.zeros(dataset.shape, dataset.dtype), set()
    for key, address in guarded.rows(path, tree, 1, 8 + 8 * (rank + 1)) if math.prod(counts) else ():
        held, mask, *start, element = struct.unpack(f"<2I{rank + 1}Q", key)
        corner = tuple(start)
        fits = all(s % c == 0 and s < n for s, c, n in zip(start, chunk, dataset.shape, strict=True))
        if mask or element or not fits or corner in seen:
            raise CheckpointError(f"'{path}' has a chunk at {corner} that cannot be there, or without its filters")
        if not 0 < held <= (size + size // 1000 + 100 if dataset.filters else size):
            raise CheckpointError(f"'{path}' has a chunk of {held} bytes, wanted {size}")
        seen.add(corner)
        data = unpack(path, guarded.bytesAt(path, address, held, "bytes of arrays"), dataset.filters, size, itemsize)
        guarded.budget.spend("bytes of arrays", size)
        inside = tuple(slice(s, s + c) for s, c in zip(start, chunk, strict=True))
        target = values[inside]
        target[...] = np.frombuffer(data, dataset.dtype).reshape(chunk)[tuple(slice(n) for n in target.shape)]
    if len(seen) != math.prod(counts):
        raise CheckpointError(f"'{path}' holds {len(seen)} of its {math.prod(counts)} chunks")
    return values


def damaged(path: str, why: str) -> CheckpointError:
    """Return the error for content that no writer produces."""
    return CheckpointError(f"'{path}' is damaged: {why}")


def isSecond(kind: int, listed: list[tuple[int, bytes]]) -> bool:
    """True if a message of this kind is a repetition in an object header, where it must be unique."""
    return kind in (SPACE, TYPE, LAYOUT, FILTERS) and any(kind == other for other, _ in listed)


def refuseLink(path: str, message: bytes) -> None:
    """Raise the error for a link of the newer form."""
    kind = message[2] if len(message) > 2 and message[1] & 8 else 0
    what = {SOFT: "a soft link; a checkpoint has none", OUTSIDE: "an external link, which would read another file"}
    if kind in what:
        raise CheckpointError(f"'{path}' holds {what[kind]}")
    raise CheckpointError(f"the group '{path}' {NEWER}")


def shapeOf(path: str, message: bytes) -> tuple[int, ...]:
    """Return the shape of a dataspace message."""
    version, rank = message[:2] if len(message) >= 4 else (0, 0)
    if version == 2 and message[3] == 2:
        raise CheckpointError(f"'{path}' has no data space")
    start = {1: 8, 2: 4}.get(version, len(message))
    if rank > RANK or len(message) < start + 8 * rank or start == len(message) and rank:
        raise damaged(path, "its shape cannot be")
    shape = struct.unpack_from(f"<{rank}Q", message, start)
    if math.prod(n or 1 for n in shape) >= 1 << 60:
        raise CheckpointError(f"'{path}' has the shape {show(shape)}, which no memory holds")
    return shape


def filtersOf(path: str, message: bytes | None) -> list[int]:
    """Return the numbers of the filters applied to each chunk."""
    if message is None:
        return []
    filters, at = [], 8
    for _ in range(message[1] if len(message) >= 8 and message[0] == 1 else 0):
        if len(message) < at + 8:
            break
        number, name, _, values = struct.unpack_from("<4H", message, at)
        filters.append(number)
        at += 8 + -(-name // 8) * 8 + 4 * (values + values % 2)
    if not filters or len(filters) != message[1] or at > len(message):
        raise damaged(path, "its filters cannot be")
    return filters


def unpack(path: str, data: bytes, filters: list[int], size: int, itemsize: int) -> bytes:
    """Undo the filters of a chunk, which must have exactly `size` bytes."""
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
