"""Guard: what is looked at, in native code, before a step begins."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from puregraph.aligned import addressOf
from puregraph.compile.bounds import Bounds
from puregraph.compile.memory import Memory
from puregraph.compile.native import Segment
from puregraph.native import guard

SAMPLES = 64  # numbers of a weight that tell whether it has changed


class Guard:
    """Called, it says what is not as it has to be: bits of `guard.WRONG` (numbers out of bounds), `guard.OTHER` (some
    sample of a weight is another than in the last call).

    `patches` are those of `Segment`
    """

    def __init__(self, bounds: Iterable[Bounds], weights: Iterable[Any], memory: Memory):
        self.flag = np.zeros(1, np.int64)
        self.found = ctypes.c_int64.from_buffer(self.flag)
        bounds = sorted(dict.fromkeys(bounds), key=lambda b: b.kind)
        self.records = np.array([b.record for b in bounds], np.int64).reshape(len(bounds), guard.WORDS)
        self.patches = []
        for record, each in zip(self.records, bounds):
            record[0] = addressOf(memory(each.value))
            self.patches.append((record, 0, each.value, 0))
        self.places = np.concatenate([np.zeros(0, np.int64), *map(samplesOf, weights)])
        self.kept = np.zeros(self.places.size, np.int32)
        works, kinds = [], [b.kind for b in bounds]
        for kind in dict.fromkeys(kinds):
            first, count = kinds.index(kind), kinds.count(kind)
            works += guard.bounded(self.records[first : first + count], count, self.flag, kind)
        if self.places.size:
            works += guard.compared(self.places, self.kept, self.places.size, self.flag)
        self.look = Segment([[w] for w in works], memory).table if works else None

    def __call__(self) -> int:
        if self.look is None:
            return 0
        self.look()
        found = self.found.value
        if found:
            self.found.value = 0
        return found


def samplesOf(array: Any) -> Any:
    """The addresses of some numbers of an array, spread evenly."""
    at = np.unravel_index(np.arange(0, array.size, max(1, array.size // SAMPLES)), array.shape)
    return addressOf(array) + sum(i * s for i, s in zip(at, array.strides))
