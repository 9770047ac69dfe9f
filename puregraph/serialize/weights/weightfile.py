"""WeightFile: the arrays of a file by name, described before any of their elements is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from puregraph.core.errors import CheckpointError, brief, printable, quote, show
from puregraph.core.storage.hdf import RANK
from puregraph.graph.lookup import nearest
from puregraph.serialize.weights.narrowfloats import NARROW, widened

MAX_ELEMENTS = 1 << 48  # most elements of an array, not counting empty axes


class StoredTensor:
    """One array of a file.

    `shape`   its sizes
    `dtype`   the name of what is stored: numpy's ("float32"), "bfloat16", "float8_e4m3fn", or a block format ("q4_0")
    `fetch`   read its elements from the file, or the bits of a float that numpy has no dtype for; called by `read`
    """

    __slots__ = ("dtype", "fetch", "name", "shape", "source")

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, fetch: Callable[[], np.ndarray]) -> None:
        self.name, self.shape, self.dtype, self.fetch = name, shape, dtype, fetch
        self.source = ""  # set by the WeightFile

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Bytes of its elements in the file; None for a block format."""
        if self.dtype in NARROW:
            return self.size * NARROW[self.dtype].itemsize
        try:
            return self.size * np.dtype(self.dtype).itemsize
        except TypeError:
            return None

    def read(self, widen: bool = True) -> np.ndarray:
        """Read the elements into a new array; dtypes that numpy lacks are widened to float32, exactly.

        `widen=False` gives bfloat16 and float8 as their bits, in unsigned integers.

        Raises    CheckpointError if the elements are damaged, or the file is closed
        """
        try:
            values = self.fetch()
        except CheckpointError as error:
            raise CheckpointError(printable(f"cannot read {quote(self.name)} of {self.source}: {error}")) from error
        isBits = self.dtype in NARROW and values.dtype == NARROW[self.dtype]
        return widened(values, self.dtype) if isBits and widen else values

    def __repr__(self) -> str:
        return f"<{quote(self.name)}: {show(self.shape)} {self.dtype}>"


class WeightFile(Mapping[str, StoredTensor]):
    """The arrays of a file, in its order; a context manager that closes the file.

    `format`    the name of the file's format, such as "safetensors"
    `metadata`  further contents of the file, as plain values
    `source`    the path, for messages
    """

    def __init__(
        self,
        format: str,
        source: str,
        tensors: dict[str, StoredTensor],
        metadata: dict[str, Any] | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.format, self.source, self.tensors = format, source, tensors
        self.metadata: dict[str, Any] = metadata or {}
        self.close = close
        for tensor in tensors.values():
            tensor.source = tensor.source or source

    def __getitem__(self, name: str) -> StoredTensor:
        if name not in self.tensors:
            near = ", ".join(map(quote, nearest(name, list(self.tensors))))
            raise CheckpointError(f"{self.source} has no array {quote(name)}" + (f"; it has {near}" if near else ""))
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.format} file {quote(self.source)}: {len(self)} arrays>"


def countOf(shape: Any) -> int:
    """Number of elements of a shape that a file has, as a list or a tuple.

    Raises    CheckpointError for sizes that no array can have, beside an empty axis too
    """
    if not isinstance(shape, (list, tuple)) or not all(type(size) is int and size >= 0 for size in shape):
        raise CheckpointError(f"wanted a shape of whole numbers, got {brief(shape)}")
    if len(shape) > RANK:
        raise CheckpointError(f"wanted a shape of at most {RANK} axes, got {len(shape)}")
    if prod(size for size in shape if size) >= MAX_ELEMENTS:
        raise CheckpointError(f"its shape is too large: {brief(shape)}")
    return prod(shape)


def checkedBools(values: np.ndarray) -> np.ndarray:
    """Return an array of a file, whose bools are each 0 or 1.

    Raises    CheckpointError for bools that are not
    """
    if values.dtype == bool and values.size and values.view(np.uint8).max() > 1:
        raise CheckpointError("wanted bools, got bytes other than 0 and 1")
    return values
