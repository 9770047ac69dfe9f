"""Step timer: measures each step of a program."""

from __future__ import annotations

from statistics import median
from time import perf_counter_ns

from puregraph.compile.runtime.bind import Bound
from puregraph.compile.runtime.observer import StepObserver
from puregraph.ops.ir.value import Call


class StepTimer(StepObserver):
    """Measures the steps of an executable by call number; only complete runs count."""

    def __init__(self) -> None:
        self.runs: list[dict[int, int]] = []  # the nanoseconds of each step, for each run
        self.now: dict[int, int] = {}
        self.begun = 0

    def start(self) -> None:
        self.now = {}

    def finish(self) -> None:
        self.runs.append(self.now)

    def around(self, number: int, call: Call, steps: list[Bound]) -> list[Bound]:
        before, after = self.aroundHost(number, call)
        return [*before, *steps, *after]

    def aroundHost(self, number: int, call: Call) -> tuple[list[Bound], list[Bound]]:
        return [Bound(call, self.begin, [], {})], [Bound(call, self.end, [number], {})]

    def begin(self) -> None:
        """A step begins."""
        self.begun = perf_counter_ns()

    def end(self, number: int) -> None:
        """The step that began last is done."""
        self.now[number] = perf_counter_ns() - self.begun

    def seconds(self) -> dict[int, float]:
        """The median seconds of each step over all runs, by call number."""
        return {number: 1e-9 * median([run[number] for run in self.runs]) for number in self.runs[0]}
