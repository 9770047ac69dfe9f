"""WeightFile: the arrays of a file by name, described before any of their elements is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from puregraph.core.errors import CheckpointError, quote, show
from puregraph.graph.lookup import nearest


class StoredTensor:
    """One array of a file.

    `shape`   its sizes
    `dtype`   the name of what is stored: numpy's ("float32"), "bfloat16", "float8_e4m3fn", or a block format ("q4_0")
    `fetch`   read its elements from the file; called by `read` alone
    """

    __slots__ = ("dtype", "fetch", "name", "shape")

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, fetch: Callable[[], np.ndarray]) -> None:
        self.name, self.shape, self.dtype, self.fetch = name, shape, dtype, fetch

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def read(self) -> np.ndarray:
        """Read the elements, of this shape and numpy's dtype; what numpy has no dtype for is widened to float32.

        The array may be a read-only view of the file.

        Raises    CheckpointError if the elements are damaged
        """
        return self.fetch()

    def __repr__(self) -> str:
        return f"<{quote(self.name)}: {show(self.shape)} {self.dtype}>"


class WeightFile(Mapping[str, StoredTensor]):
    """The arrays of a file, in its order; a context manager that closes the file.

    `format`    the name of the file's format, such as "safetensors"
    `metadata`  what the file says beside its arrays, as plain values
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
