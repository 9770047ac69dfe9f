"""GGUF files of versions 2 and 3: metadata, plain numbers, and block formats, which `read` widens to float32.

    "GGUF"  version  counts of tensors and metadata  metadata  tensors (name, sizes, type, offset)  padding  data

GGUF lists the size that varies fastest first; shapes here are numpy's, in the reverse order.

Source    GGUF, ggml project, docs/gguf.md, versions 2 and 3
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, quote, show
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.ggufblocks import BLOCKFORMATS
from puregraph.serialize.weights.narrowfloats import storedType, widened
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

NUMBERS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"}
TEXT, LIST = 8, 9  # the other types of metadata
PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
BLOCKS = {2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0"}
BLOCKS |= {10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k"}
DTYPES = PLAIN | BLOCKS
MAX_AXES = 4
LISTS = 4  # lists in lists
READ_AHEAD_BYTES = 1 << 20  # bytes read ahead
WIDENED = 1 << 18  # elements widened at a time


class TensorRow(NamedTuple):
    """The description of a tensor; `type` is GGUF's number, `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


class HeaderReader:
    """Numbers and texts from the start of a file on, one after the other."""

    def __init__(self, file: FileBytes):
        self.file, self.budget = file, Budget(file.size)
        self.start, self.at, self.buffer = 0, 0, b""

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self.start + self.at

    def take(self, size: int) -> bytes:
        """Read bytes."""
        if self.at + size > len(self.buffer):
            self.start, self.at = self.position, 0
            left = self.file.size - self.start
            if size > left:
                raise CheckpointError(f"it ends at byte {self.file.size}, before byte {self.start + size}")
            self.buffer = self.file.bytesAt(self.start, min(max(size, READ_AHEAD_BYTES), left))
        self.at += size
        return self.buffer[self.at - size : self.at]

    def number(self, form: str) -> Any:
        """Read a number of a `struct` form."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self) -> str:
        """Read a length and a text."""
        size = self.number("Q")
        self.budget.spend("bytes of structure", size)
        return self.take(size).decode("utf-8", "replace")

    def value(self, kind: int, level: int = 0) -> Any:
        """Read a value of metadata."""
        if kind in NUMBERS:
            return self.numbers(kind, 1)[0]
        if kind == TEXT:
            return self.text()
        if kind != LIST or level == LISTS:
            raise CheckpointError(f"its metadata has a value of type {kind}, or lists nested more than {LISTS} deep")
        inner, count = self.number("I"), self.number("Q")
        if inner in NUMBERS:
            return self.numbers(inner, count)
        if count > self.file.size // 8:  # the least that a text or a list takes
            raise CheckpointError(f"its metadata has a list of {count} elements in a file of {self.file.size} bytes")
        self.budget.spend("bytes of structure", 8 * count)
        return [self.value(inner, level + 1) for _ in range(count)]

    def numbers(self, kind: int, count: int) -> list[Any]:
        """Read several numbers of one type."""
        dtype = np.dtype(f"<{NUMBERS[kind]}")
        self.budget.spend("bytes of structure", count * dtype.itemsize)
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the tensors of a GGUF file."""
    data = FileBytes(file)
    header = HeaderReader(data)
    signature, version = header.take(4), header.number("I")
    if signature != b"GGUF" or version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3)
        kind = (
            "a big-endian file, which is not supported" if swapped else f"version {version}; versions 2 and 3 are read"
        )
        raise CheckpointError(f"it is GGUF, but {kind}")
    tensorCount, valueCount = header.number("Q"), header.number("Q")
    metadata = dict(metadataOf(header, valueCount))
    rows = list(rowsOf(header, tensorCount))
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment > 1 << 20 or alignment & (alignment - 1):
        raise CheckpointError(f"its general.alignment must be a power of two up to 2**20, got {alignment!r:.40}")
    start = -(-header.position // alignment) * alignment
    checkRows(rows, alignment, data.size - start)
    tensors = {}
    for row in rows:
        dtype = DTYPES.get(row.type, f"ggml type {row.type}")
        tensors[row.name] = StoredTensor(row.name, row.shape, dtype, partial(fetch, data, start + row.offset, row))
    if len(tensors) != len(rows):
        raise CheckpointError("it has two tensors of one name")
    return WeightFile("gguf", source, tensors, metadata, file.close)


def metadataOf(header: HeaderReader, count: int) -> Iterator[tuple[str, Any]]:
    """Read the keys and values of the metadata, whose keys must differ."""
    seen = set()
    for _ in range(count):
        key, kind = header.text(), header.number("I")
        if key in seen:
            raise CheckpointError(f"its metadata has {quote(key)} twice")
        seen.add(key)
        yield key, header.value(kind)


def rowsOf(header: HeaderReader, count: int) -> Iterator[TensorRow]:
    """Read the descriptions of tensors."""
    for _ in range(count):
        name, axes = header.text(), header.number("I")
        if axes > MAX_AXES:
            raise CheckpointError(f"{quote(name)} has {axes} axes; GGUF allows {MAX_AXES}")
        sizes = [header.number("Q") for _ in range(axes)]
        header.budget.spend("bytes of structure", 64)
        yield TensorRow(name, tuple(reversed(sizes)), header.number("I"), header.number("Q"))


def checkRows(rows: list[TensorRow], alignment: int, size: int) -> None:
    """Check that tensors are whole blocks inside of the data, aligned, and that none share bytes."""
    end, owner = 0, ""
    for row in sorted(rows, key=lambda row: row.offset):
        length = bytesOf(row)
        if row.offset % alignment or row.offset + length > size:
            raise CheckpointError(
                f"{quote(row.name)} cannot be {length} bytes at {row.offset} of the data: there are {size}, "
                f"and offsets are multiples of {alignment}"
            )
        if row.offset < end and length:
            raise CheckpointError(f"{quote(row.name)} shares bytes with {quote(owner)}")
        if length:
            end, owner = row.offset + length, row.name


def bytesOf(row: TensorRow) -> int:
    """Number of bytes of a tensor; 1 where its type is unknown.

    Raises    CheckpointError for rows of the tensor that are not whole blocks, and for a shape that no memory holds
    """
    if prod(n or 1 for n in row.shape) >= 1 << 60:
        raise CheckpointError(f"{quote(row.name)} has the shape {show(row.shape)}, which no memory holds")
    if row.type in PLAIN:
        return prod(row.shape) * storedType(PLAIN[row.type]).itemsize
    if row.type not in BLOCKS:
        return 1
    form = BLOCKFORMATS[BLOCKS[row.type]]
    if not row.shape or row.shape[-1] % form.elements:
        raise CheckpointError(
            f"{quote(row.name)} has the shape {show(row.shape)}; the last size of {BLOCKS[row.type]} is a multiple of "
            f"{form.elements}"
        )
    return prod(row.shape) // form.elements * form.bytes


def fetch(data: FileBytes, start: int, row: TensorRow) -> np.ndarray:
    """Read a tensor; blocks are widened a few at a time."""
    count = prod(row.shape)
    if row.type in PLAIN:
        dtype = PLAIN[row.type]
        values = data.array(start, count, storedType(dtype).newbyteorder("<"))
        return (widened(values, dtype) if dtype == "bfloat16" else values).reshape(row.shape)
    if row.type not in BLOCKS:
        raise CheckpointError(
            f"{quote(row.name)} has ggml type {row.type}, which is not supported; {', '.join(DTYPES.values())} are"
        )
    form = BLOCKFORMATS[BLOCKS[row.type]]
    result = np.empty((count // form.elements, form.elements), np.float32)
    step = WIDENED // form.elements
    with np.errstate(all="ignore"):  # scales may be infinite
        for first in range(0, len(result), step):
            part = result[first : first + step]
            blocks = data.array(start + first * form.bytes, len(part) * form.bytes, np.dtype(np.uint8))
            part[...] = form.widen(blocks.reshape(len(part), form.bytes))
    return result.reshape(row.shape)
