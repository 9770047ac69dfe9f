"""Workspace: the scratch memory that a native step needs, and the checks before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.compile.lower.packedweights import PackedWeights
from puregraph.ops.ir.bounds import Bounds, canBeBounded, isProved
from puregraph.ops.ir.elementlayout import SINGLE
from puregraph.ops.ir.value import Value
from puregraph.ops.native.llvm.kernelcall import KernelCall

UNREAD = np.zeros(1, np.int64)  # the flag of kernels whose indices are checked before they run


class LoweringWorkspace:
    """The needs of a step besides its results: `extra` has scratch memory, `checks` the bounds of inputs to check.

    `faults` has the flags that kernels set when an index is out of range; the run is then refused.
    `isRead` says whether a result is read; unread results that a rule leaves out are added to `left`.
    """

    def __init__(
        self,
        new: Callable[..., Value],
        packedWeights: PackedWeights | None,
        isRead: Callable[[Value], bool] = lambda v: True,
    ):
        self.new, self.packedWeights, self.isRead = new, packedWeights, isRead
        self.left: set[int] = set()
        self.extra: list[Value] = []
        self.checks: list[Bounds] = []
        self.faults: list[np.ndarray] = []

    def check(self, bounds: Bounds) -> None:
        """Check an input, or a view of one, before each run; if it is out of bounds, the graph itself runs."""
        self.checks.append(bounds)

    def faultOf(self, index: Value, low: int, limit: int) -> np.ndarray:
        """The flag that a kernel sets if an index is out of range; inputs are checked before each run, too."""
        if canBeBounded(index):
            self.check(Bounds(index, low, limit))
        if canBeBounded(index) or isProved(index, low, limit):
            return UNREAD
        self.faults.append(np.zeros(1, np.int64))
        return self.faults[-1]

    def leaves(self, value: Value) -> bool:
        """Leave a result out if it is not read; True if it is left out."""
        if not self.isRead(value):
            self.left.add(value.number)
        return value.number in self.left

    def __call__(self, count: int, dtype: np.dtype = SINGLE) -> Value:
        """Scratch memory for `count` elements."""
        self.extra.append(self.new(count, dtype))
        return self.extra[-1]

    def keeps(self, weight: Value) -> bool:
        """True if the packed weight is kept for later runs."""
        return self.packedWeights is not None and weight.root.role in ("param", "constant")

    def packed(
        self, weight: Value, count: int, write: Callable[[Any], list[KernelCall]]
    ) -> tuple[Value, list[KernelCall]]:
        """Memory for a packed weight, and the kernel calls that pack it in each run; none if it is kept."""
        if self.packedWeights is not None and self.keeps(weight):
            return self.packedWeights.keep(weight, self.new(0).number, count, write), []
        to = self(count, weight.dtype)
        return to, write(to)
