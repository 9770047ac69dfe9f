"""HdfFile: groups, datasets and attributes of HDF5 that any program wrote, read by the guards of `safehdf`.

In addition to those: superblocks 1 to 3, object headers of version 2, links and attributes inside of headers or in a
heap, texts of fixed or any length in attributes, numbers of either byte order, bfloat16. Links to other names or files,
virtual and external datasets, shared messages and chunks indexed by anything but a B-tree of version 1 are refused.

Source    HDF5 File Format Specification 3.0, sections II.A, III.E (global heap), IV.A.1.b, IV.A.2
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.hdf import NOWHERE, datatype
from puregraph.core.storage.hdfheap import ATTRIBUTENAMES, LINKNAMES, checked, denseObjects
from puregraph.core.storage.safehdf import (
    CHUNKED,
    CONTINUED,
    FILTERS,
    LAYOUT,
    LINK,
    LINKS,
    MAX_HEADER_BLOCKS,
    NUMBERS,
    OUTSIDE,
    SOFT,
    SPACE,
    TABLE,
    TYPE,
    VIRTUAL,
    Declared,
    Guarded,
    damaged,
    filtersOf,
    isSecond,
    shapeOf,
)

ATTRIBUTE, ATTRIBUTES = 0x0C, 0x15  # messages: an attribute, and the location of many attributes
OPAQUE, TEXT, VARIABLE = 5, 3, 9  # classes of datatypes
MAX_GROUP_LEVELS = 100  # nesting of groups
CONVERT = "copy the file with h5py.File(..., 'w', libver='earliest')"


class Elements(NamedTuple):
    """The elements of a dataset or attribute: numpy's dtype in the file, and the name of what they are."""

    dtype: np.dtype
    name: str


class HdfFile(Guarded):
    """The groups, datasets and attributes of one HDF5 file.

    Raises    CheckpointError naming the refused object and the reason
    """

    def __init__(self, file: Any, budget: Budget | None = None):
        self.lock = Lock()  # held while a thread reads
        self.headers: dict[int, list[tuple[int, bytes]]] = {}
        self.paths: dict[int, str] = {}
        self.heaps: dict[int, dict[int, bytes]] = {}
        super().__init__(file, budget)

    def superblock(self, block: bytes) -> tuple[int, int]:
        version = block[8]
        if version < 2:
            skip = 4 * version  # version 1 has one more field
            base, end, root = (struct.unpack_from("<Q", block, at + skip)[0] for at in (24, 40, 64))
            sizes = block[13:15]
        else:
            base, _, end, root = struct.unpack_from("<4Q", block, 12)
            sizes = block[9:11]
            self.claims.clear()  # drop the claim on 96 bytes, which only older superblocks have
            checked(self, "the superblock", 0, 48, block[:4])
        if version > 3 or sizes != b"\x08\x08" or base != 0:
            raise CheckpointError(f"its superblock has version {version}, or addresses of other sizes; {CONVERT}")
        return self.checkLength(end), root

    def renew(self) -> None:
        """Start a new budget: time and memory count for one array."""
        self.budget = Budget(self.length)

    # Object headers -------------------------------------------------------------------------------------------------

    def eachMessage(self, path: str, address: int) -> list[tuple[int, bytes]]:
        if address not in self.headers:
            self.source.seek(min(address, self.length))
            isNewer = self.source.read(4) == b"OHDR"
            self.headers[address] = self.newer(path, address) if isNewer else super().eachMessage(path, address)
            self.paths[address] = path
        if self.paths[address] != path:
            raise CheckpointError(f"'{path}' is also '{self.paths[address]}' (a hard link), which is not supported")
        return self.headers[address]

    def newer(self, path: str, address: int) -> list[tuple[int, bytes]]:
        """Return the messages of an object header of version 2, all of whose blocks have checksums."""
        self.source.seek(address)
        start = self.source.read(42).ljust(42, b"\0")  # claimed below with its block
        version, flags = start[4], start[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(start[at : at + width], "little")
        if version != 2 or address + size > self.length:
            raise damaged(path, "it has no header")
        blocks = [(address, at + width, at + width + size + 4, b"OHDR")]
        listed: list[tuple[int, bytes]] = []
        skip = 6 if flags & 4 else 4
        for offset, at, length, signature in blocks:
            data = checked(self, path, offset, length, signature)[:-4]
            while at + skip <= len(data):
                kind, length, messageFlags = struct.unpack_from("<BHB", data, at)
                content = data[at + skip : at + skip + length]
                at += skip + length
                if len(content) != length or messageFlags & 2 or isSecond(kind, listed):
                    raise damaged(path, "a message of its header cannot be")
                if kind == CONTINUED:
                    if length < 16 or len(blocks) >= MAX_HEADER_BLOCKS:
                        raise damaged(path, "its header goes on without end")
                    where, size = struct.unpack_from("<2Q", content)
                    if size < 8:
                        raise damaged(path, "a block of its header cannot be")
                    blocks.append((where, 4, size, b"OCHK"))
                elif kind:
                    listed.append((kind, content))
        return listed

    # Groups ---------------------------------------------------------------------------------------------------------

    def isGroup(self, path: str) -> bool:
        """True for a group, False for a dataset."""
        address, full = self.find(path)
        return not {TABLE, LINKS, LINK}.isdisjoint(self.messages(full or "/", address))

    def datasets(self) -> Iterator[str]:
        """Yield the paths of all datasets, a group's own before those of its groups' where it lists them so."""
        waiting = [("", 0)]
        while waiting:
            path, level = waiting.pop()
            if level > MAX_GROUP_LEVELS:
                raise CheckpointError(f"'{path}' is in more than {MAX_GROUP_LEVELS} groups")
            if self.isGroup(path):
                inner = [f"{path}/{name}" if path else name for name in self.names(path)]
                self.budget.spend("characters of paths", sum(map(len, inner)))
                waiting += [(name, level + 1) for name in reversed(inner)]
            elif path:
                yield path
            else:
                raise CheckpointError("its root is not a group")

    def entries(self, path: str, address: int) -> Iterator[tuple[str, int]]:
        """Yield the entries of a group in the order of their creation where the file has it, else by name."""
        messages = self.eachMessage(path, address)
        kinds = dict(messages)
        if TABLE in kinds:
            yield from sorted(super().entries(path, address))
            return
        if LINKS not in kinds and LINK not in kinds:
            raise CheckpointError(f"'{path}' is not a group")
        rows = [content for kind, content in messages if kind == LINK]
        rows += self.dense(path, kinds.get(LINKS, b""), LINKNAMES)
        links = sorted(linkOf(path, row) for row in rows)
        self.budget.spend("characters of paths", len(links))
        names = [name for _, name, _ in links]
        if len(set(names)) != len(names):
            raise damaged(path, "a name stands twice in it")
        yield from ((name, target) for _, name, target in links)

    def dense(self, path: str, message: bytes, kind: int) -> list[bytes]:
        """Return the links or attributes of an object that are in a heap."""
        if len(message) < 18:
            return []
        at = 2 + ((8 if kind == LINKNAMES else 2) if message[1] & 1 else 0)
        if len(message) < at + 16:
            raise damaged(path, "a message of its header cannot be")
        heap, tree = struct.unpack_from("<2Q", message, at)
        return [] if heap == NOWHERE else list(denseObjects(self, path, heap, tree, kind))

    # Datasets -------------------------------------------------------------------------------------------------------

    def describe(self, path: str) -> tuple[tuple[int, ...], bytes, bytes, list[int]]:
        messages = self.datasetHeader(path)
        layout = messages[LAYOUT]
        if len(layout) < 2 or layout[0] not in (3, 4, 5):
            raise CheckpointError(f"'{path}' has a layout of another version than 3, 4 or 5; {CONVERT}")
        if layout[0] > 3 and layout[1] == VIRTUAL:
            raise CheckpointError(f"'{path}' is a virtual dataset, which would read other files")
        if layout[0] > 3 and layout[1] == CHUNKED:
            raise CheckpointError(f"'{path}' has its chunks in an index that is not supported; {CONVERT}")
        filters = messages.get(FILTERS)
        if filters is not None and filters[:1] == b"\x02":
            return shapeOf(path, messages[SPACE]), messages[TYPE], layout, newerFilters(path, filters)
        return shapeOf(path, messages[SPACE]), messages[TYPE], layout, filtersOf(path, filters)

    def declared(self, path: str) -> Declared:
        shape, message, layout, filters = self.describe(path)
        elements = self.elementsOf(path, message)
        if elements is None:
            return super().declared(path)  # raises an error that describes them
        return Declared(shape, elements.dtype, layout, filters)

    def dtypeName(self, path: str) -> str | None:
        """The name of the numbers that a dataset holds: numpy's, or "bfloat16"; None for a dataset of anything else."""
        elements = self.elementsOf(path, self.describe(path)[1])
        return elements.name if elements else None

    def elementsOf(self, path: str, message: bytes) -> Elements | None:
        """The numbers that a datatype describes. Keras keeps bfloat16 in opaque values, named by an attribute."""
        if message[:1] and message[0] & 15 == OPAQUE and message[4:8] == b"\2\0\0\0":
            return Elements(np.dtype("<u2"), "bfloat16") if self.attributes(path).get("dtype") == "bfloat16" else None
        return numbersOf(message)

    def values(self, path: str) -> np.ndarray:
        """Read a dataset, bfloat16 as its bits in uint16."""
        declared = self.declared(path)
        return self.read(path, declared.shape, declared.dtype)

    # Attributes -----------------------------------------------------------------------------------------------------

    def attributes(self, path: str) -> dict[str, Any]:
        """The attributes of a group or dataset: texts, numbers, and lists of them; others are left out."""
        address, full = self.find(path)
        messages = self.eachMessage(full or "/", address)
        rows = [content for kind, content in messages if kind == ATTRIBUTE]
        for kind, content in messages:
            if kind == ATTRIBUTES:
                rows += self.dense(full or "/", content, ATTRIBUTENAMES)
        values: dict[str, Any] = {}
        for row in rows:
            name, value = self.attribute(full or "/", row)
            if value is not None:
                values[name] = value
        return values

    def attribute(self, path: str, message: bytes) -> tuple[str, Any]:
        """The name and value of an attribute; None for a value of another type."""
        version, flags, *sizes = struct.unpack("<2B3H", message[:8].ljust(8, b"\0"))
        at = 9 if version == 3 else 8
        if version not in (1, 2, 3) or version > 1 and flags & 3:
            raise damaged(path, "one of its attributes cannot be, or has a shared type")
        fields = []
        for size in sizes:
            fields.append(message[at : at + size])
            at += -(-size // 8) * 8 if version == 1 else size
        name, kind, space = fields
        if at > len(message) or not kind or len(space) < 4:
            raise damaged(path, "one of its attributes is cut off")
        label = name.split(b"\0")[0].decode("utf-8", "replace")
        if space[0] == 2 and space[3] == 2:
            return label, None
        shape = shapeOf(path, space)
        count = int(np.prod(shape, dtype=object)) if shape else 1
        self.budget.spend("bytes of structure", 8 * count)
        return label, self.attributeValue(path, kind, shape, count, message[at:])

    def attributeValue(self, path: str, kind: bytes, shape: tuple[int, ...], count: int, data: bytes) -> Any:
        """A text, a number, or a list of them; None for another type."""
        sort, size = kind[0] & 15, struct.unpack_from("<I", kind.ljust(8, b"\0"), 4)[0]
        elements = numbersOf(kind)
        if sort not in (TEXT, VARIABLE) and elements is None or sort == VARIABLE and kind[1] & 15 != 1:
            return None
        if not size or count * size > len(data):
            raise damaged(path, "one of its attributes is cut off")
        if elements is not None:
            return np.frombuffer(data, elements.dtype, count).reshape(shape).tolist()
        texts = [data[i : i + size] for i in range(0, count * size, size)]
        if sort == VARIABLE:
            if size != 16:
                raise damaged(path, "one of its attributes cannot be")
            texts = [self.heapText(path, *struct.unpack("<IQI", text)) for text in texts]
        values = [text.split(b"\0")[0].rstrip(b" ").decode("utf-8", "replace") for text in texts]
        return values if shape else values[0]

    def heapText(self, path: str, length: int, address: int, index: int) -> bytes:
        """A text of any length in a global heap."""
        if address == 0 or length == 0:
            return b""
        if address not in self.heaps:
            self.heaps[address] = dict(self.heapObjects(f"the heap at {address}", address))
        text = self.heaps[address].get(index)
        if text is None or len(text) < length:
            raise damaged(path, "the heap of texts does not hold one of its attributes")
        self.budget.spend("bytes of structure", length)
        return text[:length]

    def heapObjects(self, path: str, address: int) -> Iterator[tuple[int, bytes]]:
        """Yield the objects of a global heap by number."""
        signature, size = struct.unpack("<4s4xQ", self.bytesAt(path, address, 16))
        if signature != b"GCOL" or size < 16:
            raise damaged(path, "it is no heap")
        data, at = self.bytesAt(path, address + 16, size - 16), 0
        while at + 16 <= len(data):
            index, size = struct.unpack_from("<H6xQ", data, at)
            if index == 0:  # the free space at the end
                return
            yield index, data[at + 16 : at + 16 + size]
            at += 16 + -(-size // 8) * 8


def numbersOf(message: bytes) -> Elements | None:
    """The numbers that a datatype describes, of either byte order; None for anything else."""
    if len(message) < 8:
        return None
    isBig = message[1] & 1
    plain = bytes([message[0] & 15 | 16, message[1] & 0xFE]) + message[2:]
    if plain.startswith(datatype("bfloat16")):
        return Elements(np.dtype(">u2" if isBig else "<u2"), "bfloat16")
    dtype = next((dtype for known, dtype in NUMBERS.items() if plain.startswith(known)), None)
    return Elements(dtype.newbyteorder(">" if isBig else "<"), dtype.name) if dtype is not None else None


def newerFilters(path: str, message: bytes) -> list[int]:
    """Return the numbers of the filters in a message of version 2."""
    filters, at = [], 2
    for _ in range(message[1] if len(message) > 1 else 0):
        if len(message) < at + 6:
            raise damaged(path, "its filters cannot be")
        number = struct.unpack_from("<H", message, at)[0]
        if number >= 256:
            raise CheckpointError(f"'{path}' uses the HDF5 filter {number}; known are gzip and shuffle")
        filters.append(number)
        at += 6 + 4 * struct.unpack_from("<H", message, at + 4)[0]
    return filters


def linkOf(path: str, message: bytes) -> tuple[int, str, int]:
    """The number in order of creation (0 where none is kept), name and address of a link to an object of the file."""
    flags = message[1] if len(message) > 1 else 0
    at, order = 2, 0
    kind = message[at] if flags & 8 and len(message) > at else 0
    at += 1 if flags & 8 else 0
    if kind:
        what = {SOFT: "a soft link", OUTSIDE: "an external link, which would read another file"}
        raise CheckpointError(f"'{path}' holds {what.get(kind, 'a link of an unknown kind')}, which is not followed")
    if flags & 4:
        order = int.from_bytes(message[at : at + 8], "little")
        at += 8
    at += 1 if flags & 16 else 0
    width = 1 << (flags & 3)
    length = int.from_bytes(message[at : at + width], "little")
    at += width
    name, target = message[at : at + length], message[at + length : at + length + 8]
    if message[:1] != b"\1" or len(name) != length or len(target) != 8:
        raise damaged(path, "one of its links cannot be")
    return order, nameFrom(path, name), int.from_bytes(target, "little")


def nameFrom(path: str, data: bytes) -> str:
    """A name in a group."""
    name = data.decode("utf-8", "replace")
    if name in ("", ".", "..") or "/" in name or "\0" in name or "\ufffd" in name:
        raise damaged(path, "one of its names cannot be")
    return name
