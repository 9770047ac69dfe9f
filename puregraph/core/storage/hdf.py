"""The HDF5 layout of a set of named arrays, byte by byte: old-style groups and contiguous datasets, nothing else.

All bytes outside of the array data follow from the arrays' names, shapes and dtypes. A reader can therefore produce the
same bytes again and compare, instead of parsing an untrusted file: an external link, a virtual or compressed dataset
and a forged shape all differ in some byte.

    0      the user block, `BASE` bytes, which HDF5 ignores
    BASE   superblock, then groups, then one header for each dataset
    ...    the arrays, little-endian, each aligned to `ALIGN`, with zeros between

Source    HDF5 File Format Specification 3.0, sections II.A (superblock 0), III.A to III.D, IV.A.1, IV.A.2
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

BASE = 512
ALIGN = 64
NOWHERE = 0xFFFFFFFFFFFFFFFF
LEAF = 1024  # a symbol node holds up to twice as many names
RANK = 32  # HDF5's own limit
MAX_NAME_BYTES = 60_000  # bytes

# dtype: where the sign, exponent and mantissa of a float are, and its bias
FLOATS = {
    "float16": (15, 10, 5, 0, 10, 15),
    "bfloat16": (15, 7, 8, 0, 7, 127),
    "float32": (31, 23, 8, 0, 23, 127),
    "float64": (63, 52, 11, 0, 52, 1023),
}
WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = (*FLOATS, *WHOLE, "bool")  # HDF5 has no bool, so it is stored as uint8


class Array(NamedTuple):
    """The description of an array in HDF5: its name (`group/name`, or a name alone), shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * itemsize(self.dtype)


class HdfBlock(NamedTuple):
    """Some bytes of the structure, and the group or dataset that they describe."""

    name: str
    data: bytes


class HdfLayout:
    """The layout of a file. Offsets count from the start of the file; addresses, as HDF5 has it, from `BASE`.

    `offsets`  where each array begins
    `end`      where the last one ends
    """

    def __init__(self, arrays: Iterable[Array]):
        self.arrays = tuple(arrays)
        self.groups: dict[str, dict[str, int]] = {"": {}}
        for index, array in enumerate(self.arrays):
            group, _, name = array.name.rpartition("/")
            self.groups.setdefault(group, {})[name] = index
        most = max(len(members) for members in self.groups.values()) + len(self.groups)
        self.leaf = max(4, min(LEAF, (most + 1) // 2))
        self.fanout = max(16, -(-most // (4 * self.leaf)))
        self.assignOffsets()

    def assignOffsets(self) -> None:
        """Give every group, dataset and array its offset."""
        at = BASE + 96
        self.groupsAt: dict[str, int] = {}
        for group in self.groups:
            self.groupsAt[group] = at
            at += 40 + self.treeSize + self.heapSize(group) + self.nodeCount(group) * self.nodeSize
        self.headersAt = []
        for array in self.arrays:
            self.headersAt.append(at)
            at += len(datasetHeader(array, 0))
        self.structureEnd = at
        self.offsets = []
        for array in self.arrays:
            at = -(-at // ALIGN) * ALIGN
            self.offsets.append(at)
            at += array.nbytes
        self.end = at

    @property
    def treeSize(self) -> int:
        return 32 + 32 * self.fanout

    @property
    def nodeSize(self) -> int:
        return 8 + 80 * self.leaf

    def members(self, group: str) -> list[tuple[bytes, int]]:
        """Return the names in a group, as HDF5 sorts them, with the offsets of their objects."""
        offsets = {name: self.headersAt[index] for name, index in self.groups[group].items()}
        if not group:
            offsets |= {name: at for name, at in self.groupsAt.items() if name}
        return sorted((name.encode(), at) for name, at in offsets.items())

    def names(self, group: str) -> list[bytes]:
        inner = [name for name in self.groups if name] if not group else []
        return [name.encode() for name in (*self.groups[group], *inner)]

    def nodeCount(self, group: str) -> int:
        return -(-len(self.names(group)) // (2 * self.leaf))

    def heapSize(self, group: str) -> int:
        return 32 + 8 + sum(len(padded(name + b"\0")) for name in self.names(group))

    def structure(self) -> list[HdfBlock]:
        """Everything from `BASE` to the first array, in order."""
        pieces = [HdfBlock("the superblock", self.superblock())]
        for group in self.groups:
            pieces += self.group(group)
        for array, offset in zip(self.arrays, self.offsets, strict=True):
            address = offset - BASE if array.nbytes else NOWHERE
            pieces.append(HdfBlock(f"the header of '{array.name}'", datasetHeader(array, address)))
        return pieces

    def superblock(self) -> bytes:
        root = self.groupsAt[""] - BASE
        return (
            b"\x89HDF\r\n\x1a\n"
            + struct.pack("<8B2HI", 0, 0, 0, 0, 0, 8, 8, 0, self.leaf, self.fanout, 0)
            + struct.pack("<4Q", BASE, NOWHERE, self.end, NOWHERE)
            + entry(0, root)
        )

    def group(self, group: str) -> list[HdfBlock]:
        """A group: its header, a tree of one level, a heap of names, and the nodes that join names and headers."""
        label = f"the group '/{group}'"
        tree = self.groupsAt[group] - BASE + 40
        heap = tree + self.treeSize
        nodes = heap + self.heapSize(group)
        members, starts, text = self.members(group), [], b"\0" * 8
        for name, _ in members:
            starts.append(len(text))
            text += padded(name + b"\0")
        pieces = [HdfBlock(label, header([(0x11, struct.pack("<2Q", tree, heap))]))]
        chunks = [range(i, min(i + 2 * self.leaf, len(members))) for i in range(0, len(members), 2 * self.leaf)]
        keys = b"".join(
            struct.pack("<2Q", nodes + k * self.nodeSize, starts[chunk[-1]]) for k, chunk in enumerate(chunks)
        )
        tables = b"TREE" + struct.pack("<2BH3Q", 0, 0, len(chunks), NOWHERE, NOWHERE, 0) + keys
        pieces.append(HdfBlock(label, tables.ljust(self.treeSize, b"\0")))
        pieces.append(HdfBlock(label, b"HEAP" + struct.pack("<4x3Q", len(text), 1, heap + 32) + text))
        for chunk in chunks:
            pieces.append(HdfBlock(label, b"SNOD" + struct.pack("<2BH", 1, 0, len(chunk))))
            for i in chunk:
                name, at = members[i]
                path = f"{group}/{name.decode()}" if group else name.decode()
                pieces.append(HdfBlock(f"the link to '{path}'", entry(starts[i], at - BASE)))
            pieces.append(HdfBlock(label, bytes(40 * (2 * self.leaf - len(chunk)))))
        return pieces


def padded(data: bytes) -> bytes:
    """Pad with zeros to a multiple of eight bytes."""
    return data.ljust(-(-len(data) // 8) * 8, b"\0")


def entry(name: int, address: int) -> bytes:
    """A symbol table entry: the offset of a name in the heap, and of what it names."""
    return struct.pack("<2Q2I16x", name, address, 0, 0)


def header(messages: list[tuple[int, bytes]]) -> bytes:
    """An object header of version 1."""
    body = b"".join(struct.pack("<2HB3x", kind, len(padded(data)), 0) + padded(data) for kind, data in messages)
    return struct.pack("<2BH2I4x", 1, 0, len(messages), 1, len(body)) + body


def datasetHeader(array: Array, address: int) -> bytes:
    """Return the header of a contiguous dataset: dataspace, datatype, fill value and layout with address and size."""
    return datasetStart(array.shape, array.dtype) + struct.pack("<2Q6x", address, array.nbytes)


@lru_cache(4096)  # most arrays of a network have one of a few shapes
def datasetStart(shape: tuple[int, ...], dtype: str) -> bytes:
    """The header of a dataset up to its address."""
    rank = len(shape)
    messages = [
        (0x01, struct.pack(f"<3B5x{rank}Q", 1, rank, 0, *shape)),
        (0x03, datatype(dtype)),
        (0x05, struct.pack("<4BI", 2, 2, 2, 1, 0)),
        (0x08, struct.pack("<2B22x", 3, 1)),
    ]
    return header(messages)[:-22]


@cache
def itemsize(dtype: str) -> int:
    """The bytes of one element, also of bfloat16 where no package brings it."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def datatype(dtype: str) -> bytes:
    """Encode a datatype message: a little-endian float or integer."""
    size = itemsize(dtype)
    if dtype in FLOATS:
        sign, exponent, exponentBits, mantissa, mantissaBits, bias = FLOATS[dtype]
        fields = struct.pack("<2H4BI", 0, 8 * size, exponent, exponentBits, mantissa, mantissaBits, bias)
        return struct.pack("<4BI", 0x11, 0x20, sign, 0, size) + fields
    return struct.pack("<4BI2H", 0x10, 0x08 if dtype.startswith("int") else 0, 0, 0, size, 0, 8 * size)


def faultsOf(arrays: Iterable[Array]) -> list[str]:
    """Return the reasons why a set of arrays cannot be laid out; an empty list if it can."""
    faults, seen, groups = [], set(), set()
    arrays = list(arrays)
    for array in arrays:
        group, _, name = array.name.rpartition("/")
        groups.add(group)
        if array.name in seen:
            faults.append(f"'{array.name}' stands twice")
        seen.add(array.name)
        if "/" in group or name in ("", ".", "..") or "\0" in array.name or not encodable(array.name):
            faults.append(f"{array.name!r:.80} cannot be a name in HDF5")
        if array.dtype not in DTYPES:
            faults.append(f"'{array.name}' is {array.dtype}; known are {', '.join(DTYPES)}")
        if len(array.shape) > RANK:
            faults.append(f"'{array.name}' has {len(array.shape)} axes; HDF5 allows {RANK}")
        if any(n < 0 for n in array.shape) or math.prod(array.shape) >= 1 << 60:
            faults.append(f"'{array.name}' has the shape {array.shape}, which no memory holds")
    faults += [f"'{name}' names both a group and an array" for name in sorted(groups & seen)]
    return faults


def encodable(name: str) -> bool:
    """True if a name can be encoded in UTF-8 and is not too long."""
    try:
        return len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False
