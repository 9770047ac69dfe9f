"""OnnxValue: a value of a file while it is read: its source, and its shape, dtype and elements as far as known."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.shape import MAX_KNOWN_ELEMENTS, valued, valueOf


class OnnxValue:
    """An output of a node, or a constant.

    `shape`, `dtype`    as inferred by rules; None if unknown
    `array`     the elements, of an initializer or computed from constants
    `isWeight`  whether `array` becomes a parameter if floats are computed with it
    `isShared`  whether several nodes read it, and must share the parameter
    `isSplit`   whether these nodes are different layers, not one layer at several nodes
    `isMerged`  whether the exporter may have merged equal weights into it, so that each layer gets a separate copy
    `computed`  the elements as floats, computed from known shapes
    `origin`    the node that made it; `readers`: the number of times that nodes of the file read it; both for patterns
    `before`    for a view: the module that made it, the value that it views, and whether the view is in the file
    """

    __slots__ = (
        *("array", "before", "computed", "dtype", "edge", "isMerged", "isShared", "isSplit", "isWeight"),
        *("name", "origin", "readers", "shape"),
    )

    def __init__(self, name: str, shape: Any = None, dtype: Any = None, edge: Any = None, array: Any = None):
        self.name, self.shape, self.dtype, self.edge, self.array = name, shape, dtype, edge, array
        self.before: Any = None
        self.computed: Any = None
        self.origin: Any = None
        self.readers = 0
        self.isWeight = self.isShared = self.isSplit = self.isMerged = False

    @classmethod
    def of(cls, name: str, array: Any, isWeight: bool = False) -> OnnxValue:
        """A constant."""
        array = np.asarray(array)
        known = array if array.dtype.kind in "iub" and array.size <= MAX_KNOWN_ELEMENTS else None
        value = cls(name, valued(array.shape, known), array.dtype, array=array)
        value.isWeight = isWeight and array.dtype.kind in "fV"
        return value

    @property
    def rank(self) -> int | None:
        """The number of axes, if it is known."""
        return None if self.shape is None else len(self.shape)

    @property
    def numbers(self) -> Any:
        """The elements as an array of numbers, if known and free of symbols."""
        if self.array is not None or self.computed is not None:
            return self.computed if self.array is None else self.array
        elements = None if self.shape is None else valueOf(self.shape)
        return None if elements is None or elements.dtype.kind == "O" else elements

    def __repr__(self) -> str:
        return f"OnnxValue({self.name!r}, {self.shape}, {self.dtype})"
