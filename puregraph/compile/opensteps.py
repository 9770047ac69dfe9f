"""Open steps of a graph: programs for sizes that no program has had yet, without tracing and lowering again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from puregraph.compile.lower.openstep import OpenStep
from puregraph.compile.runtime.validity import Validity
from puregraph.core.base.signals import isAsynchronous
from puregraph.core.opensize import SizeTape

if TYPE_CHECKING:
    from puregraph.compile.program import Program
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.core.shape import Shape

MAX_STEPS = 8  # most open steps of a graph; shapes that none holds for are compiled for themselves
MAX_FAILURES = 3  # attempts that led to none for the very shapes that they were made for

InputAxis = tuple[int, int]  # the index of an input, and an axis


class OpenSteps:
    """The open steps of one graph with one request, in the order in which they were made.

    The first shapes are compiled for themselves. Axes whose sizes differ from these later are open; those that had one
    size then, and have one now, are one symbol.
    """

    def __init__(self) -> None:
        self.first: tuple[Shape, ...] = ()
        self.varying: set[InputAxis] = set()
        self.steps: list[tuple[OpenStep, list[list[InputAxis]], Validity]] = []
        self.failures = 0

    def schedule(self, program: Program) -> Schedule | None:
        """The lowered schedule for the shapes of a program; None if they are compiled for themselves."""
        shapes = tuple(program.shapes)
        self.steps = [entry for entry in self.steps if entry[2]]
        if not self.first:
            self.first = shapes
            return None
        for step, groups, _ in self.steps:
            symbols = symbolsFor(shapes, self.first, groups)
            schedule = None if symbols is None else step.schedules(symbols)
            if schedule is not None:
                return schedule
        if len(self.steps) >= MAX_STEPS or self.failures >= MAX_FAILURES:
            return None
        return self.opened(program, shapes)

    def refuse(self, step: OpenStep) -> None:
        """Make no more programs of a step, one of whose kernels has a size that cannot be exchanged."""
        self.steps = [entry for entry in self.steps if entry[0] is not step]
        self.failures += 1

    def opened(self, program: Program, shapes: tuple[Shape, ...]) -> Schedule | None:
        """The schedule of a new open step."""
        self.varying |= {(i, a) for i, a, size, before in sizesBeside(shapes, self.first) if size != before}
        groups = self.groupsOf(shapes)
        sizes = [shapes[i][a] for (i, a), *_ in groups]
        if min(sizes, default=0) < 2:
            return None
        for hints in ([primeFrom(n) for n in sizes], [primeTimesPower(n) for n in sizes], sizes):
            step = self.traced(program, shapes, groups, hints)
            schedule = None if step is None else step.schedules(sizes)
            if step is not None and schedule is not None:
                self.steps.append((step, groups, validityOf(program, step.schedule)))
                return schedule
        self.failures += 1
        return None

    def groupsOf(self, shapes: tuple[Shape, ...]) -> list[list[InputAxis]]:
        """The open axes, those of one symbol together."""
        groups: dict[Any, list[InputAxis]] = {}
        for i, a, size, before in sizesBeside(shapes, self.first):
            if (i, a) in self.varying:
                groups.setdefault((size, before), []).append((i, a))
        return list(groups.values())

    def traced(
        self, program: Program, shapes: tuple[Shape, ...], groups: list[list[InputAxis]], hints: list[int]
    ) -> OpenStep | None:
        """The step with open sizes; None if numbers occur where they cannot be exchanged."""
        tape = SizeTape(hints)
        opened = [list(shape) for shape in shapes]
        for symbol, group in zip(tape.symbols, groups):
            for i, a in group:
                opened[i][a] = symbol
        try:
            schedule = program.scheduleFor([tuple(shape) for shape in opened])
            step = OpenStep(program.backend.lowered(program.backend.prepared(schedule)), tape)
        except Exception as error:  # compiling for these sizes alone raises what is wrong besides
            if isAsynchronous(error):
                raise
            return None
        return step if step.isNative else None


def sizesBeside(shapes: Sequence[Shape], others: Sequence[Shape]) -> Iterator[tuple[int, int, int, int]]:
    """(input, axis, size, size in the others) of all axes."""
    for i, (shape, other) in enumerate(zip(shapes, others)):
        for a, (size, before) in enumerate(zip(shape, other)):
            yield i, a, size, before


def symbolsFor(shapes: Sequence[Shape], first: Sequence[Shape], groups: list[list[InputAxis]]) -> list[int] | None:
    """The size of each group of axes; None if a group has two, or another axis differs from the first shapes."""
    free = {axis for group in groups for axis in group}
    if any(size != before and (i, a) not in free for i, a, size, before in sizesBeside(shapes, first)):
        return None
    sizes = [{shapes[i][a] for i, a in group} for group in groups]
    return [one.pop() for one in sizes] if all(len(one) == 1 for one in sizes) else None


def validityOf(program: Program, schedule: Schedule) -> Validity:
    """A snapshot of the graph and the optimizer that a step was traced from."""
    anyMode = program.train is not None
    return Validity(
        program.graph, program.steps, schedule.held, program.optimizer, anyMode, schedule.unread, schedule.reads
    )


def primeTimesPower(size: int) -> int:
    """The power of two that divides a size, times a prime of two digits at least, for sizes that are halved."""
    power = size & -size
    return power * primeFrom(max(size // power, 11))


def primeFrom(size: int) -> int:
    """The least prime from a size on: no other size of a network is likely to equal it."""
    while any(size % n == 0 for n in range(2, int(size**0.5) + 1)):
        size += 1
    return size
