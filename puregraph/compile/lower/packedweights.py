"""Packed weights: weights in the layout of native code, kept until the weights change."""

from __future__ import annotations

import operator
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.param import Param
from puregraph.ops.ir.value import Value
from puregraph.ops.native.llvm.kernelcall import KernelCall, settled
from puregraph.ops.native.threads.pages import AlignedBlock

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.protocols import AnyArray

VERSION, LEASES = attrgetter("version"), attrgetter("leases")


class PackedWeights:
    """Packed weights of a program that changes no parameter.

    Constants are packed once. Parameters are packed again when the version of one changes (see `Stored`), before each
    run while its array is leased and may be written to, and once more after the lease ends.
    """

    def __init__(self) -> None:
        self.works: list[KernelCall] = []
        self.values: dict[Any, Value] = {}
        self.weights: dict[int, Any] = {}
        self.versions: list[int] = []
        self.isStale = True

    def keep(self, weight: Value, number: int, count: int, write: Callable[[Value], list[KernelCall]]) -> Value:
        """The Value with the packed weight; `write(to)` returns the kernel calls that pack it."""
        dtype = weight.dtype
        count = operator.index(count)
        source = zeros(count, dtype)
        made = Value(number, (count,), dtype, (dtype.itemsize,), "constant", "packed", source=source)
        works = list(map(settled, write(made)))
        key = weight.number, *((w.key, *[v for v in w.slots.values() if isinstance(v, int)]) for w in works)
        if key not in self.values:
            self.values[key] = made
            if weight.root.role == "param":
                self.weights[weight.root.number] = weight.root.source
            self.works += works
        return self.values[key]

    def refresh(self, pack: Callable[[], None]) -> None:
        """Run `pack`, which packs all weights, unless they are current."""
        weights = self.weights.values()
        versions, areLeased = list(map(VERSION, weights)), any(map(LEASES, weights))
        if self.isStale or versions != self.versions:
            self.isStale = True  # until packed; a weight changed meanwhile is packed by the next run
            pack()
            self.versions, self.isStale = versions, areLeased


def zeros(count: int, dtype: np.dtype) -> AnyArray:
    """Zeros of a dtype, on huge pages if there are many."""
    block = AlignedBlock(dtype.itemsize * count)
    buffer = np.frombuffer(block.map, np.uint8)
    start = block.address - buffer.__array_interface__["data"][0]
    return buffer[start : start + dtype.itemsize * count].view(dtype)


def keepPackedWeights(schedule: Schedule) -> Schedule:
    """Pack weights once for all runs, unless the step changes parameters."""
    changes = schedule.paramGrads or any(isinstance(target, Param) for target, _ in schedule.stores)
    schedule.packedWeights = None if changes else PackedWeights()
    return schedule
