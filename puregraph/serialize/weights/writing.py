"""Write weights for other programs: safetensors, which all of them read, and npz.

Equal arrays in equal order make equal bytes, and the path always holds a complete file.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Argument, FilePath, choice, takes
from puregraph.core.base.dtype import isBfloat16
from puregraph.core.errors import ArgumentError, CheckpointError, quote
from puregraph.core.storage.atomicwrite import whole
from puregraph.core.storage.jsoncodec import dumps
from puregraph.serialize.weights.narrowfloats import NARROW, narrowed, storedType
from puregraph.serialize.weights.safetensors import DTYPES, METADATA, isText
from puregraph.serialize.weights.weightfile import StoredTensor

CODES = {dtype: code for code, dtype in DTYPES.items()}
FLOATS = ("float64", "float32", "float16", *NARROW)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip archive
ALIGNMENT_BYTES = 8  # bytes
ArraysByName = Argument("a dict of arrays by name", lambda value: isinstance(value, Mapping))
TextsByName = Argument(
    "a dict of texts",
    lambda value: isinstance(value, dict) and all(map(isText, (*value, *value.values()))),
    hint="write other values as text: json.dumps(value)",
)


class WrittenArray(NamedTuple):
    """An array to write: its name, its shape, its dtype in the file, and the array."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    array: Any

    def values(self) -> np.ndarray:
        """The elements as the file has them: little-endian, narrow floats as their bits.

        Raises    CheckpointError for values that the dtype cannot hold
        """
        values, stored = elements(self.array, self.dtype), storedType(self.dtype)
        isWide = self.dtype in NARROW and values.dtype != stored
        with np.errstate(over="ignore"):
            result = np.asarray(values, np.float32 if isWide else stored.newbyteorder("<"), order="C")
        try:
            if result.dtype.kind == "f" and result.itemsize < values.itemsize and not sameFinite(result, values):
                raise CheckpointError(f"it has values that are too large for {result.dtype}")
            return np.asarray(narrowed(result, self.dtype), stored.newbyteorder("<")) if isWide else result
        except CheckpointError as error:
            raise CheckpointError(f"array {quote(self.name)}: {error}") from None


def elements(array: Any, dtype: str) -> np.ndarray:
    """The elements of an array, or of one in a file; the bits of a narrow float if that is the dtype to write."""
    if isinstance(array, StoredTensor):
        return array.read(widen=array.dtype != dtype)
    values = np.asarray(device.toHost(array))
    if isBfloat16(values.dtype):
        return values.view(np.uint16) if dtype == "bfloat16" else values.astype(np.float32)
    return values


def sameFinite(a: np.ndarray, b: np.ndarray) -> bool:
    """True if the same elements of both are finite."""
    return bool(np.array_equal(np.isfinite(a), np.isfinite(b)))


@takes(path=FilePath, arrays=ArraysByName, metadata=TextsByName | None, dtype=choice(*FLOATS) | None)
def writeWeights(
    path: Any,
    arrays: Mapping[str, Any],
    metadata: dict[str, str] | None = None,
    dtype: str | None = None,
) -> None:
    """Write arrays by name as `.safetensors`, or as `.npz` of numpy, by the suffix of the path.

    `arrays`    numpy's or CuPy's, or those of `readWeights`, each of which is read only when it is written
    `metadata`  texts for the header of a safetensors file
    `dtype`     store floats as float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2; None: as they are

    Raises    CheckpointError naming an array that cannot be stored, or why the file cannot be written

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/small.safetensors"
    >>> writeWeights(path, {"W": np.arange(6.0).reshape(2, 3), "steps": np.array(7)}, dtype="bfloat16")
    >>> list(readWeights(path).values())
    [<'W': (2, 3) bfloat16>, <'steps': () int64>]
    """
    suffix = os.path.splitext(os.fsdecode(path))[1].lower()
    if suffix not in WRITERS:
        raise ArgumentError(f"writeWeights: wanted a path that ends with {' or '.join(WRITERS)}, got {path!r}")
    rows = [described(name, array, dtype) for name, array in arrays.items()]
    with whole(path) as file:
        WRITERS[suffix](file, rows, metadata or {})


def described(name: Any, array: Any, dtype: str | None) -> WrittenArray:
    """Describe an array to write, with this dtype if it has floats.

    Raises    CheckpointError for an invalid name or an unsupported dtype
    """
    if not isText(name) or name == METADATA:
        raise CheckpointError(f"{quote(name)} cannot be the name of an array in a file")
    if not hasattr(array, "dtype"):
        array = np.asarray(array)
    stored = array.dtype if isinstance(array.dtype, str) else array.dtype.name
    if dtype is not None and stored in (*FLOATS, "float128"):
        stored = dtype
    if stored not in CODES:
        raise CheckpointError(f"{quote(name)} is of dtype {stored}; supported: {', '.join(CODES)}")
    return WrittenArray(name, tuple(array.shape), stored, array)


def writeSafetensors(file: BinaryIO, rows: list[WrittenArray], metadata: dict[str, str]) -> None:
    """Write a header in the order of the arrays, and the arrays by decreasing element size, so that all are aligned."""
    begins, at = {}, 0
    ordered = sorted(rows, key=lambda row: -storedType(row.dtype).itemsize)
    for row in ordered:
        begins[row.name] = at
        at += bytesOf(row)
    header: dict[str, Any] = {METADATA: metadata} if metadata else {}
    for row in rows:
        begin = begins[row.name]
        header[row.name] = {
            "dtype": CODES[row.dtype],
            "shape": list(row.shape),
            "data_offsets": [begin, begin + bytesOf(row)],
        }
    text = dumps(header)
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    file.write(len(text).to_bytes(8, "little") + text)
    for row in ordered:
        values = row.values()
        if values.shape != row.shape:
            raise CheckpointError(f"{quote(row.name)} changed its shape from {row.shape} to {values.shape}")
        file.write(values.reshape(-1).view(np.uint8).data if values.size else b"")


def bytesOf(row: WrittenArray) -> int:
    """Bytes that an array takes in the file."""
    return prod(row.shape) * storedType(row.dtype).itemsize


def writeNpz(file: BinaryIO, rows: list[WrittenArray], metadata: dict[str, str]) -> None:
    """Write an archive of numpy's, not compressed.

    Raises    CheckpointError for metadata and narrow floats, which it cannot hold
    """
    if metadata:
        raise CheckpointError("an .npz holds no metadata; write a .safetensors")
    for row in rows:
        if row.dtype in NARROW:
            raise CheckpointError(f"{quote(row.name)}: an .npz holds no {row.dtype}; give dtype='float32'")
        if "\0" in row.name:
            raise CheckpointError(f"{quote(row.name)} cannot be the name of an array in an .npz")
    with zipfile.ZipFile(file, "w") as archive:
        for row in rows:
            with archive.open(zipfile.ZipInfo(f"{row.name}.npy", EPOCH), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, row.values(), allow_pickle=False)


WRITERS = {".safetensors": writeSafetensors, ".npz": writeNpz}
