"""Guards: checks of integers by native code: of inputs before a step begins, of others as it runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np

from puregraph.compile.runtime.buffers import Buffers
from puregraph.compile.runtime.segment import Segment
from puregraph.core.base.align import addressOf
from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.native.nests import inputchecks


class InputGuard:
    """Returns, when called, whether input integers are out of bounds; `patches` as in `Segment`."""

    def __init__(self, bounds: Iterable[Bounds], memory: Buffers):
        self.flag = np.zeros(1, np.int64)
        self.outOfBounds = ctypes.c_int64.from_buffer(self.flag.data)
        bounds = sorted(dict.fromkeys(bounds), key=lambda b: b.kind)
        self.records = np.array([b.record for b in bounds], np.int64).reshape(len(bounds), inputchecks.RECORD_WORDS)
        self.patches = []
        for record, bound in zip(self.records, bounds):
            record[0] = addressOf(memory(bound.value))
            self.patches.append((record, 0, bound.value, 0))
        works, kinds = [], [b.kind for b in bounds]
        for kind in dict.fromkeys(kinds):
            first, count = kinds.index(kind), kinds.count(kind)
            works += inputchecks.bounded(self.records[first : first + count], count, self.flag, kind)
        self.table = Segment([[w] for w in works], memory).table if works else None

    def __call__(self) -> bool:
        if self.table is None:
            return False
        self.table()
        isOut = self.outOfBounds.value
        if isOut:
            self.outOfBounds.value = 0
        return bool(isOut)


class IndexGuard:
    """Raises IndexError, when called, if native code has set one of the flags for an index out of range."""

    def __init__(self, flags: Iterable[np.ndarray]):
        self.flags = tuple(flags)
        self.values = [ctypes.c_int64.from_buffer(flag.data) for flag in self.flags]

    def __call__(self) -> None:
        for value in self.values:
            if value.value:
                value.value = 0
                raise IndexError("an index is out of range")
