"""Safetensors: a JSON header, and the arrays behind it without a gap.

    8 bytes       length of the header, little-endian
    header        {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
    the buffer    the elements, little-endian; each byte belongs to exactly one array

A file has no checksums: its structure is proven, its numbers are not.

Source    the format's description, github.com/huggingface/safetensors
"""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from puregraph.core.errors import CheckpointError, brief, quote, show
from puregraph.core.storage.jsoncodec import loads
from puregraph.serialize.weights.filebytes import FileBytes
from puregraph.serialize.weights.narrowfloats import storedType
from puregraph.serialize.weights.weightfile import StoredTensor, WeightFile, checkedBools, countOf

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
METADATA = "__metadata__"
PREFIX_BYTES = 8  # bytes of the header's length
KEYS = ["data_offsets", "dtype", "shape"]


def lengthOf(head: bytes) -> int:
    """The length of the header, as the file says it."""
    return int.from_bytes(head[:PREFIX_BYTES], "little")


def opened(file: BinaryIO, source: str) -> WeightFile:
    """Open a file, of which the header alone is read.

    Raises    CheckpointError for anything that the format does not allow
    """
    data = FileBytes(file)
    header, start = readHeader(data)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(map(isText, (*metadata, *metadata.values()))):
        raise CheckpointError(f"{METADATA}: wanted an object of texts, got {brief(metadata)}")
    tensors, ranges = {}, []
    for name, row in header.items():
        try:
            tensors[name], begin, end = tensorOf(name, row, data, start)
        except CheckpointError as error:
            raise CheckpointError(f"array {quote(name)}: {error}") from None
        ranges.append((begin, end, name))
    checkCover(ranges, data.size - start)
    return WeightFile("safetensors", source, tensors, metadata, file.close)


def readHeader(data: FileBytes) -> tuple[dict[str, Any], int]:
    """Read the header, and where the buffer begins.

    Raises    CheckpointError for a header that is cut off, too long, or not JSON
    """
    length = lengthOf(data.bytesAt(0, PREFIX_BYTES))
    if length > data.size - PREFIX_BYTES:
        raise CheckpointError(f"it is cut off: its header takes {length:,} bytes, and the file has {data.size:,}")
    if length > data.mostStructure:
        raise CheckpointError(f"its header has {length:,} bytes, too many for a file of {data.size:,}")
    text = data.bytesAt(PREFIX_BYTES, length)
    try:
        if not text.startswith(b"{") or b"\0" in text:  # with \0, json would decode it as UTF-16
            raise ValueError("it is not a text that begins with {")
        header = loads(text)
    except ValueError as error:
        raise CheckpointError(f"its header is not JSON: {error!s:.200}") from None
    return header, PREFIX_BYTES + length


def tensorOf(name: str, row: object, data: FileBytes, start: int) -> tuple[StoredTensor, int, int]:
    """The array that a row of the header describes, and where it begins and ends in the buffer.

    Raises    CheckpointError for a row that describes none
    """
    if not isText(name):
        raise CheckpointError("its name is not valid Unicode")
    if not isinstance(row, dict) or sorted(row) != KEYS:
        raise CheckpointError(f"wanted an object with {', '.join(KEYS)}, got {brief(row)}")
    offsets, kind, shape = (row[key] for key in KEYS)
    if not isinstance(kind, str) or kind not in DTYPES:
        raise CheckpointError(f"its dtype {brief(kind)} is not supported; supported: {', '.join(DTYPES)}")
    count = countOf(shape)
    if not isinstance(offsets, list) or [type(n) for n in offsets] != [int, int] or not 0 <= offsets[0] <= offsets[1]:
        raise CheckpointError(f"wanted data_offsets [begin, end], got {brief(offsets)}")
    begin, end = offsets
    dtype = DTYPES[kind]
    stored = storedType(dtype)
    if end - begin != count * stored.itemsize:
        wanted = count * stored.itemsize
        raise CheckpointError(f"{show(tuple(shape))} {dtype} takes {wanted} bytes, its data_offsets {end - begin}")

    def fetch() -> np.ndarray:
        values = data.array(start + begin, count, stored.newbyteorder("<"))
        return checkedBools(values).reshape(shape)

    return StoredTensor(name, tuple(shape), dtype, fetch), begin, end


def checkCover(ranges: list[tuple[int, int, str]], size: int) -> None:
    """Check that the arrays cover a buffer, each byte once.

    Raises    CheckpointError naming an array that begins elsewhere than the one before it ends
    """
    at = 0
    for begin, end, name in sorted(ranges):
        if begin != at:
            fault = "overlaps the array before it" if begin < at else "leaves a gap before it"
            raise CheckpointError(f"array {quote(name)}: it {fault}: wanted data_offsets from {at} on, got {begin}")
        at = end
    if at != size:
        kind = "cut off" if at > size else "longer than its arrays"
        raise CheckpointError(f"it is {kind}: its arrays take {at:,} bytes, and it has {size:,} behind the header")


def isText(value: object) -> bool:
    """True for a text that is valid Unicode, without half of a surrogate pair."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))
