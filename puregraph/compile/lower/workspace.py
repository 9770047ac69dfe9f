"""Workspace: the memory that a native step needs beside its results, and what is checked before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.compile.ir.value import Value
from puregraph.compile.lower.bounds import Bounds
from puregraph.compile.lower.packedweights import PackedWeights
from puregraph.native.llvm.kernelcall import KernelCall


class Offset(NamedTuple):
    """An offset in bytes from the start of a Value."""

    value: Value
    bytes: int


class LoweringWorkspace:
    """What a step needs beside its results: memory, noted in `extra`, and looks at inputs, noted in `checks`.

    `isRead` says whether anybody reads a result; what nobody does need not be made, and is noted in `left`.
    """

    def __init__(
        self,
        new: Callable[[int], Value],
        packedWeights: PackedWeights | None,
        isRead: Callable[[Value], bool] = lambda v: True,
    ):
        self.new, self.packedWeights, self.isRead = new, packedWeights, isRead
        self.left: set[int] = set()
        self.extra: list[Value] = []
        self.checks: list[Bounds] = []

    def check(self, bounds: Bounds) -> None:
        """Have an input, or a view of one, looked at before a run; if it is out of bounds, the graph itself runs."""
        self.checks.append(bounds)

    def leaves(self, value: Value) -> bool:
        """Whether a result is left out, as nobody reads it."""
        if not self.isRead(value):
            self.left.add(value.number)
        return value.number in self.left

    def __call__(self, count: int) -> Value:
        self.extra.append(self.new(count))
        return self.extra[-1]

    def keeps(self, weight: Any) -> bool:
        """Whether what a weight is packed to is kept for later runs."""
        return self.packedWeights is not None and weight.root.role == "param"

    def packed(
        self, weight: Any, count: int, write: Callable[[Any], list[KernelCall]]
    ) -> tuple[Value, list[KernelCall]]:
        """Room for a weight in another order, and the work that each run has with it: `write(to)`, or none."""
        if self.packedWeights is not None and self.keeps(weight):
            return self.packedWeights.keep(weight, self.new(0).number, count, write), []
        to = self(count)
        return to, write(to)
