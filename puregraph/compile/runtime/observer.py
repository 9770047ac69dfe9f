"""Step observer: calls around the steps of a program, for timing and checks."""

from __future__ import annotations

from collections.abc import Callable

from puregraph.compile.runtime.bind import Bound
from puregraph.compile.runtime.segment import Segment
from puregraph.ops.ir.value import Call


class StepObserver:
    """Calls around each step of an executable, whose steps then run one by one. This base class adds none.

    `start` and `finish` are called before the first step and after the last one. `gap` is the number of unused bytes
    between the kernels' blocks of scratch memory.
    """

    gap = 0

    def start(self) -> None:
        """Called before the first step."""

    def finish(self) -> None:
        """Called after the last step."""

    def around(self, number: int, call: Call, steps: list[Bound]) -> list[Bound]:
        """The calls to run in place of a step's bound calls."""
        return steps

    def aroundPacking(self, segment: Segment) -> Callable[[], None]:
        """The function to run in place of the segment that packs weights."""
        return segment

    def aroundHost(self, number: int, call: Call) -> tuple[list[Bound], list[Bound]]:
        """The calls to run before and after a Python call."""
        return [], []
