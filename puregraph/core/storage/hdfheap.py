"""The storage that newer HDF5 has for many links or attributes: objects in a fractal heap, listed by a B-tree.

Every block of both ends in a checksum, which is compared before anything in the block is used.

Source    HDF5 File Format Specification 3.0, sections III.A.2 (B-tree version 2), III.G (fractal heap)
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

from puregraph.core.storage.hdf import NOWHERE
from puregraph.core.storage.safehdf import Guarded, damaged

MAX_TREE_LEVELS = 8  # levels of indirect blocks or of a tree; HDF5 needs fewer for a million objects
LINKNAMES, ATTRIBUTENAMES = 5, 8  # kinds of trees
IDAT = {LINKNAMES: 4, ATTRIBUTENAMES: 0}  # offset of the heap ID in a record
MASK = 0xFFFFFFFF


def denseObjects(guarded: Guarded, path: str, heap: int, tree: int, kind: int) -> Iterator[bytes]:
    """Yield the objects of a heap that the records of a tree list, up to the end of the heap block that holds them."""
    objects = FractalHeap(guarded, path, heap)
    for record in treeRecords(guarded, path, tree, kind):
        yield objects.read(record[IDAT[kind] :])


class FractalHeap:
    """The objects of one fractal heap, without the large ones that HDF5 keeps outside of it."""

    def __init__(self, guarded: Guarded, path: str, address: int):
        self.guarded, self.path, self.address = guarded, path, address
        head = checked(guarded, path, address, 146, b"FRHP")
        self.idLength, filters, self.flags, largestObject = struct.unpack_from("<2HBI", head, 5)
        self.width, self.first, self.largest, bits, _, root, rows = struct.unpack_from("<H2Q2HQH", head, 110)
        isPower = all(n and n & (n - 1) == 0 for n in (self.width, self.first, self.largest))
        if filters or not isPower or not 0 < bits <= 64 or not self.first <= self.largest < 1 << 32:
            raise damaged(path, "its heap cannot be, or is compressed")
        self.offsetSize = -(-bits // 8)
        self.lengthSize = min(bytesFor(self.largest), bytesFor(largestObject))
        self.starts: list[int] = []
        self.blocks: list[bytes] = []
        if root != NOWHERE and rows:
            self.indirect(root, 0, rows, 0)
        elif root != NOWHERE:
            self.direct(root, 0, self.first)

    def direct(self, address: int, offset: int, size: int) -> None:
        """Read a block of objects."""
        start = 13 + self.offsetSize
        if self.flags & 2:
            data = self.guarded.bytesAt(self.path, address, size)
            stored = struct.unpack_from("<I", data, start)[0] if len(data) >= start + 4 else -1
            if stored != checksum(data[:start] + bytes(4) + data[start + 4 :]):
                raise damaged(self.path, f"the checksum at {address} is wrong")
        else:
            data = self.guarded.bytesAt(self.path, address, size)
        self.checkBlock(data, b"FHDB", offset)
        self.starts.append(offset)
        self.blocks.append(data)

    def indirect(self, address: int, offset: int, rows: int, depth: int) -> None:
        """Read the blocks that a block of addresses names: rows of equal blocks, each from the third twice as large."""
        directRows = self.largest.bit_length() - self.first.bit_length() + 2
        count = rows * self.width
        if depth > MAX_TREE_LEVELS or rows > 64:
            raise damaged(self.path, "its heap is nested too deep")
        start = 13 + self.offsetSize
        data = checked(self.guarded, self.path, address, start + 8 * count + 4, b"FHIB")
        self.checkBlock(data, b"FHIB", offset)
        for i, child in enumerate(struct.unpack_from(f"<{count}Q", data, start)):
            row = i // self.width
            size = self.first << max(row - 1, 0)
            if child != NOWHERE and row < directRows:
                self.direct(child, offset, size)
            elif child != NOWHERE:
                self.indirect(child, offset, size.bit_length() - (self.first * self.width).bit_length() + 1, depth + 1)
            offset += size

    def checkBlock(self, data: bytes, signature: bytes, offset: int) -> None:
        """Check that a block is of this heap and at this offset in it."""
        owner, at = struct.unpack_from("<Q", data, 5)[0], int.from_bytes(data[13 : 13 + self.offsetSize], "little")
        if not data.startswith(signature) or owner != self.address or at != offset:
            raise damaged(self.path, "its heap cannot be")

    def read(self, heapId: bytes) -> bytes:
        """Read the object of an ID."""
        if not heapId or heapId[0] & 0x30:
            raise damaged(self.path, "an object of its heap is stored outside of it, which is not supported")
        offset = int.from_bytes(heapId[1 : 1 + self.offsetSize], "little")
        length = int.from_bytes(heapId[1 + self.offsetSize : 1 + self.offsetSize + self.lengthSize], "little")
        at = bisect_right(self.starts, offset) - 1
        start = offset - self.starts[at] if at >= 0 else -1
        if start < 13 + self.offsetSize or start + length > len(self.blocks[at]):
            raise damaged(self.path, "an object is not in its heap")
        self.guarded.budget.spend("bytes of structure", length)
        return self.blocks[at][start : start + length]


def treeRecords(guarded: Guarded, path: str, address: int, kind: int) -> Iterator[bytes]:
    """Yield the records of a B-tree of version 2."""
    head = checked(guarded, path, address, 38, b"BTHD")
    sort, nodeSize, size, depth = struct.unpack_from("<BI2H", head, 5)
    root, count = struct.unpack_from("<QH", head, 16)
    if sort != kind or depth > MAX_TREE_LEVELS or size < 11 or nodeSize < 10 + 3 * size:
        raise damaged(path, "its tree cannot be")
    most, below, pointers = [(nodeSize - 10) // size], [(nodeSize - 10) // size], [0]
    for level in range(depth):  # the sizes of the fields in a node follow from how many records fit below it
        pointers.append(8 + bytesFor(most[0]) + (bytesFor(below[level]) if level else 0))
        most.append(max(nodeSize - 10 - pointers[-1], 0) // (size + pointers[-1]))
        below.append((most[-1] + 1) * below[-1] + most[-1])
    waiting = [(root, count, depth)] if count and root != NOWHERE else []
    while waiting:
        at, count, level = waiting.pop()
        if count > most[level]:
            raise damaged(path, "its tree cannot be")
        length = 6 + count * size + (count + 1 if level else 0) * pointers[level]
        data = checked(guarded, path, at, length + 4, b"BTIN" if level else b"BTLF")
        if data[5] != kind:
            raise damaged(path, "its tree cannot be")
        yield from (data[6 + i * size : 6 + (i + 1) * size] for i in range(count))
        for start in range(6 + count * size, length, pointers[level] or 1):
            child = struct.unpack_from("<Q", data, start)[0]
            records = int.from_bytes(data[start + 8 : start + 8 + bytesFor(most[0])], "little")
            waiting.append((child, records, level - 1))


def bytesFor(number: int) -> int:
    """Number of bytes in which HDF5 writes numbers up to this one."""
    return max(number.bit_length() - 1, 0) // 8 + 1


def checked(guarded: Guarded, path: str, address: int, size: int, signature: bytes) -> bytes:
    """A block of structure that begins with its signature and ends in its checksum."""
    data = guarded.bytesAt(path, address, size)
    if not data.startswith(signature):
        raise damaged(path, f"wanted {signature.decode()} at {address}, got {data[:4]!r}")
    if checksum(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise damaged(path, f"the checksum at {address} is wrong")
    return data


def checksum(data: bytes) -> int:
    """Return the checksum that HDF5 uses: Bob Jenkins' lookup3 with initial value 0.

    Source    Jenkins, "lookup3.c, for hash table lookup", 2006, hashlittle
    """
    a = b = c = (0xDEADBEEF + len(data)) & MASK
    end = max(len(data) - 1, 0) // 12 * 12
    for x, y, z in struct.iter_unpack("<3I", data[:end]):
        a, b, c = a + x & MASK, b + y & MASK, c + z & MASK
        for bits in (4, 6, 8, 16, 19, 4):
            a = (a - c ^ rotated(c, bits)) & MASK
            a, b, c = b, c + b & MASK, a
    if data:
        x, y, z = struct.unpack("<3I", data[end:].ljust(12, b"\0"))
        a, b, c = a + x & MASK, b + y & MASK, c + z & MASK
        for bits in (14, 11, 25, 16, 4, 14, 24):
            c = (c ^ b) - rotated(b, bits) & MASK
            a, b, c = b, c, a
        c = b  # seven rounds rotate a, b, c by one
    return c


def rotated(x: int, bits: int) -> int:
    """A number of 32 bits with its bits rotated to the left."""
    return (x << bits | x >> 32 - bits) & MASK
