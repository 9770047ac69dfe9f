"""Step observer: what looks on while a program runs its steps one by one."""

from __future__ import annotations

from collections.abc import Callable

from puregraph.compile.ir.value import Call
from puregraph.compile.runtime.bind import Bound
from puregraph.compile.runtime.segment import Segment


class StepObserver:
    """What stands between the steps of an executable, each of which is then run by itself. This one does nothing.

    `start` and `finish` are called before the first step and after the last one. `gap` is the number of unused bytes
    that the kernels' blocks of scratch memory have between them.
    """

    gap = 0

    def start(self) -> None:
        """Before the first step."""

    def finish(self) -> None:
        """After the last step."""

    def around(self, number: int, call: Call, steps: list[Bound]) -> list[Bound]:
        """What is run in place of the bound calls of a step."""
        return steps

    def aroundPacking(self, segment: Segment) -> Callable[[], None]:
        """The function that packs weights, in place of the segment that does."""
        return segment

    def aroundHost(self, number: int, call: Call) -> tuple[list[Bound], list[Bound]]:
        """What is run before a call of Python, and after it."""
        return [], []
