"""The constants of a TFLite model: its tensors that have data, of all subgraphs, with their quantisation in metadata.

`read` gives the stored integers. metadata["quantization"] has scale, zeroPoint and axis of each quantised tensor:
value = scale (integer - zeroPoint), with one scale, or one for each index of the axis.

The file is a FlatBuffer, whose tables are read here by hand: every offset and length is compared with the file.

Source    FlatBuffers internals (google.github.io/flatbuffers); TensorFlow Lite schema.fbs, version 3
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any, BinaryIO

import numpy as np

from puregraph.core.base.budget import Budget
from puregraph.core.errors import CheckpointError, quote, show
from puregraph.core.storage.hdf import RANK
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.narrowfloats import storedType, widened
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile

DTYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
DTYPES |= {10: "float64", 12: "uint64", 15: "uint32", 16: "uint16", 17: "int4", 18: "bfloat16"}
MODEL = {"version": 0, "subgraphs": 2, "description": 3, "buffers": 4}  # fields by number, as the schema lists them
SUBGRAPH = {"tensors": 0, "name": 4}
TENSOR = {"shape": 0, "type": 1, "buffer": 2, "name": 3, "quantization": 4, "sparsity": 6}
BUFFER = {"data": 0, "offset": 1, "size": 2}
QUANTIZATION = {"scale": 2, "zeroPoint": 3, "details": 4, "axis": 6}


class FlatBuffer:
    """Numbers, texts, tables and lists of a FlatBuffer. A missing field is None."""

    def __init__(self, file: FileBytes):
        self.file, self.budget = file, Budget(file.size)

    def number(self, at: int, form: str) -> int:
        """The number of a `struct` form at a byte."""
        size = struct.calcsize(f"<{form}")
        if at < 0:
            raise CheckpointError("one of its offsets leads out of the file")
        self.budget.spend("bytes of structure", size)
        return int(struct.unpack(f"<{form}", self.file.bytesAt(at, size))[0])

    def target(self, at: int) -> int:
        """The byte to which the offset at a byte leads."""
        return at + self.number(at, "I")

    def fieldAt(self, table: int, field: int) -> int | None:
        """The byte at which a field of a table is."""
        listing = table - self.number(table, "i")
        entry = 4 + 2 * field
        if entry + 2 > self.number(listing, "H"):
            return None
        offset = self.number(listing + entry, "H")
        return table + offset if offset else None

    def scalar(self, table: int, field: int, form: str) -> int:
        """A number in a table; 0 if it is left out."""
        at = self.fieldAt(table, field)
        return 0 if at is None else self.number(at, form)

    def inner(self, table: int, field: int) -> int | None:
        """The byte of a table, list or text that a field leads to."""
        at = self.fieldAt(table, field)
        return None if at is None else self.target(at)

    def extent(self, table: int, field: int, size: int) -> tuple[int, int]:
        """The first byte and the length of a list of elements of `size` bytes, all of which the file has."""
        at = self.inner(table, field)
        if at is None:
            return 0, 0
        count = self.number(at, "I")
        if at + 4 + count * size > self.file.size:
            raise CheckpointError(f"one of its lists has {count} elements, more than the file holds")
        return at + 4, count

    def numbers(self, table: int, field: int, dtype: str) -> list[Any]:
        """A list of numbers."""
        size = np.dtype(dtype).itemsize
        at, count = self.extent(table, field, size)
        self.budget.spend("bytes of structure", count * size)
        return np.frombuffer(self.file.bytesAt(at, count * size), f"<{dtype}").tolist()

    def tables(self, table: int, field: int) -> Iterator[int]:
        """Yield the byte of each table in a list."""
        at, count = self.extent(table, field, 4)
        for i in range(count):
            yield self.target(at + 4 * i)

    def text(self, table: int, field: int) -> str:
        """A text; an empty one if it is left out."""
        at, count = self.extent(table, field, 1)
        self.budget.spend("bytes of structure", count)
        return self.file.bytesAt(at, count).decode("utf-8", "replace")


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Describe the constants of a TFLite model."""
    flat = FlatBuffer(FileBytes(file))
    model = flat.target(0)
    buffers = list(flat.tables(model, MODEL["buffers"]))
    tensors: dict[str, StoredTensor] = {}
    quantization: dict[str, Any] = {}
    skipped: list[str] = []
    for name, tensor in tensorsOf(flat, model):
        extent = bufferExtent(flat, buffers, flat.scalar(tensor, TENSOR["buffer"], "I"), name)
        if not extent[1]:
            continue  # computed when the model runs
        stored = describe(flat, tensor, name, *extent)
        if stored is None:
            skipped.append(name)
            continue
        tensors[name] = stored
        quantised = quantizationOf(flat, tensor, name, stored.shape)
        if quantised:
            quantization[name] = quantised
    metadata: dict[str, Any] = {"version": flat.scalar(model, MODEL["version"], "I")}
    metadata["description"] = flat.text(model, MODEL["description"])
    metadata |= {"quantization": quantization} if quantization else {}
    metadata |= {"skipped": skipped} if skipped else {}
    return WeightFile("tflite", source, tensors, metadata, file.close)


def tensorsOf(flat: FlatBuffer, model: int) -> Iterator[tuple[str, int]]:
    """Yield all tensors by unique names: with the subgraph's number but for the first, with their own where needed."""
    names: set[str] = set()
    seen: set[int] = set()
    for number, subgraph in enumerate(flat.tables(model, MODEL["subgraphs"])):
        for i, tensor in enumerate(flat.tables(subgraph, SUBGRAPH["tensors"])):
            if tensor in seen:
                raise CheckpointError("one of its tensors is listed twice")
            seen.add(tensor)
            text = flat.text(tensor, TENSOR["name"])
            name = f"{number}/{text}" if number else text
            name = f"{name}#{i}" if not text or name in names else name
            if name in names:
                raise CheckpointError(f"two of its tensors have the name {quote(name)}")
            names.add(name)
            yield name, tensor


def bufferExtent(flat: FlatBuffer, buffers: list[int], number: int, name: str) -> tuple[int, int]:
    """The first byte and the size of a buffer, in the FlatBuffer or behind it; a size of 0 for one without data."""
    if number >= len(buffers):
        raise CheckpointError(f"{quote(name)} has the buffer {number} of {len(buffers)}")
    at, size = flat.extent(buffers[number], BUFFER["data"], 1)
    offset = flat.scalar(buffers[number], BUFFER["offset"], "Q")
    if size or offset < 2:  # 0 and 1 mean no offset
        return at, size
    size = flat.scalar(buffers[number], BUFFER["size"], "Q")
    if offset + size > flat.file.size:
        raise CheckpointError(f"{quote(name)} has {size} bytes at {offset}, which are not in the file")
    return offset, size


def describe(flat: FlatBuffer, tensor: int, name: str, at: int, size: int) -> StoredTensor | None:
    """Describe a tensor whose data is at a byte; None for texts, complex numbers and sparse tensors."""
    dtype = DTYPES.get(flat.scalar(tensor, TENSOR["type"], "b"))
    if dtype is None or flat.fieldAt(tensor, TENSOR["sparsity"]) is not None:
        return None
    shape = tuple(flat.numbers(tensor, TENSOR["shape"], "i4"))
    if len(shape) > RANK or any(n < 0 for n in shape):
        raise CheckpointError(f"{quote(name)} has the shape {show(shape[:RANK])}, which is not possible")
    count = prod(shape)
    wanted = -(-count // 2) if dtype == "int4" else count * storedType(dtype).itemsize
    if size != wanted:
        raise CheckpointError(
            f"{quote(name)} is {dtype} {show(shape)}, which needs {wanted} bytes; its buffer has {size}"
        )
    return StoredTensor(name, shape, dtype, partial(fetch, flat.file, at, shape, dtype))


def quantizationOf(flat: FlatBuffer, tensor: int, name: str, shape: tuple[int, ...]) -> dict[str, Any] | None:
    """The scales, zero points and axis of a tensor; None for one that is not quantised."""
    table = flat.inner(tensor, TENSOR["quantization"])
    if table is None:
        return None
    scale = flat.numbers(table, QUANTIZATION["scale"], "f4")
    zero = flat.numbers(table, QUANTIZATION["zeroPoint"], "i8") or [0] * len(scale)
    axis = flat.scalar(table, QUANTIZATION["axis"], "i")
    if not scale:
        return None
    isPerAxis = len(scale) > 1
    if len(zero) not in (1, len(scale)) or isPerAxis and not (0 <= axis < len(shape) and shape[axis] == len(scale)):
        raise CheckpointError(
            f"{quote(name)} {show(shape)} has {len(scale)} scales and {len(zero)} zero points on axis {axis}"
        )
    return {"scale": scale, "zeroPoint": zero, "axis": axis if isPerAxis else None}


def fetch(file: FileBytes, at: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Read a tensor; int4, two to a byte, as int8."""
    count = prod(shape)
    if dtype == "int4":
        packed = file.array(at, -(-count // 2), np.dtype(np.int8))
        both = np.stack([packed << 4 >> 4, packed >> 4], axis=1)
        return both.reshape(-1)[:count].reshape(shape)
    values = file.array(at, count, storedType(dtype).newbyteorder("<"))
    return (widened(values, dtype) if dtype == "bfloat16" else values).reshape(shape)
