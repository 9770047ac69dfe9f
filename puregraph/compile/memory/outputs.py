"""Outputs: a large result is computed in separate memory, which the user gets without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from puregraph.core.base.align import CACHE_LINE_BYTES, addressOf
from puregraph.core.base.introspection import isAlone
from puregraph.ops.ir.value import Value

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

SPARE = 2  # blocks kept for later runs: the user usually still holds the last result during the next run


class StepOutput:
    """The memory of a large result that the user gets; each run uses a block that no user holds.

    `value`    the result
    `patches`  (slots, index, Value, bytes) of every native argument that is an address in the result
    """

    __slots__ = ("bytes", "owner", "patches", "spare", "value")

    def __init__(self, value: Value):
        self.value, self.bytes = value, value.root.nbytes + CACHE_LINE_BYTES
        self.patches: list[tuple[Any, int, Value, int]] = []
        self.spare: list[Any] = []
        self.owner: Any = None
        self.renew()

    @property
    def array(self) -> AnyArray:
        """The result; a reference to it or to a view of it keeps the memory alive."""
        v = self.value
        return np.ndarray(v.shape, v.dtype, self.owner, self.start - addressOf(self.owner) + v.offset, v.strides)

    @property
    def start(self) -> int:
        """The address of the result, aligned to a cache line."""
        return -(-addressOf(self.owner) // CACHE_LINE_BYTES) * CACHE_LINE_BYTES

    def renew(self) -> None:
        """Move to a block that no user holds."""
        self.owner = None
        index = next((i for i in reversed(range(len(self.spare))) if isAlone(self.spare, i)), None)
        self.owner = np.empty(self.bytes, np.uint8) if index is None else self.spare.pop(index)
        self.spare = [*self.spare[1 - SPARE :], self.owner]
        start = self.start
        for slots, i, v, bytes in self.patches:
            slots[i] = start + v.offset + bytes

    def release(self) -> None:
        """Leave the result to its users; here the next run decides."""


class FreshOutput(StepOutput):
    """The memory of a large result, which numpy allocates in each run: the result is an array without a base.

    `outline` has the shape and the layout of the result, and no memory.
    """

    __slots__ = ("made", "outline")

    def __init__(self, value: Value):
        self.value, self.patches = value, []
        self.outline = as_strided(np.empty((), value.dtype), value.shape, value.strides)
        self.made: Any = None
        self.renew()

    @property
    def array(self) -> AnyArray:
        return self.made

    @property
    def start(self) -> int:
        return 0 if self.made is None else addressOf(self.made)

    @property
    def owner(self) -> Any:
        """The bytes of the result."""
        return self.made.ravel("K").view(np.uint8)

    def renew(self) -> None:
        """Allocate new memory."""
        self.made = np.empty_like(self.outline)
        start = addressOf(self.made)
        for slots, i, v, bytes in self.patches:
            slots[i] = start + v.offset + bytes

    def release(self) -> None:
        """Leave the result to its users."""
        self.made = None
