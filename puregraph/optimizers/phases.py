"""Phases: schedules one after another: warm-up, stable, decay, or a chain of any."""

from __future__ import annotations

import math
from typing import Any

from puregraph.core.arguments import NotNegative, takes
from puregraph.core.errors import ArgumentError
from puregraph.optimizers.schedules import EndingSchedule, Schedule, atLeast


class WSD(EndingSchedule):
    """step / warmUp at first, 1 in the middle, and 1 - sqrt((step - total + decay) / decay), down to `final`

    Warm-up, stable, decay: `decay` updates at the end of `total`, which is by default the run, go down; where they
    begin can be chosen late, since everything before does not depend on it.

    Source    Hu et al. 2024, arXiv:2404.06395, section 4; the root of Haegele et al. 2024, arXiv:2405.18392, eq. 2
    Raises    ArgumentError for less than 1 update to warm up or decay

    >>> schedule = WSD(warmUp=2, decay=4, total=10)
    >>> [round(schedule(step), 3) for step in (0, 1, 2, 6, 7, 9, 10)]
    [0.333, 0.667, 1.0, 1.0, 0.5, 0.134, 0.0]
    """

    @takes(final=NotNegative)
    def __init__(self, warmUp: int, decay: int, total: int | None = None, final: float = 0.0):
        super().__init__(None if total is None else atLeast(1, "WSD", "total", total))
        self.warmUp, self.decay = atLeast(1, "WSD", "warmUp", warmUp), atLeast(1, "WSD", "decay", decay)
        self.final = final

    def __call__(self, step: int) -> float:
        begin = self.length() - self.decay
        if step < min(self.warmUp, begin):
            return (step + 1) / (self.warmUp + 1)
        if step < begin:
            return 1.0
        return self.final + (1.0 - self.final) * (1.0 - math.sqrt(min(1.0, (step - begin) / self.decay)))


class Chain(Schedule):
    """Schedules one after another, each with its number of updates: Chain((WarmUp(100), 1000), Cosine())

    Each counts its updates from 0. The last one has no number of updates: it continues to the end, and if it needs a
    length, has that of the rest of the run.

    Source    PyTorch's SequentialLR
    Raises    ArgumentError for anything but pairs of a schedule and a number, and a schedule

    >>> schedule = Chain((lambda step: 0.1, 2), (lambda step: 1.0, 3), Step(2))
    >>> [round(schedule(step), 3) for step in range(9)]
    [0.1, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, *phases: Any):
        *first, last = phases or (None,)
        if not callable(last) or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in first):
            raise ArgumentError(
                f"Chain: wanted pairs of a schedule and its updates, and a last schedule, as in "
                f"Chain((WarmUp(100), 1000), Cosine()), got {phases!r:.80}"
            )
        self.first = tuple((schedule, atLeast(1, "Chain", "updates", count)) for schedule, count in first)
        if not all(callable(schedule) for schedule, _ in self.first):
            raise ArgumentError(f"Chain: wanted schedules or functions of the step, got {phases!r:.80}")
        self.last = last

    @property
    def before(self) -> int:
        """The number of updates before the last schedule."""
        return sum(count for _, count in self.first)

    @property
    def end(self) -> int | None:
        last = getattr(self.last, "end", None)
        return None if last is None else self.before + last

    def fit(self, total: int) -> None:
        for schedule, count in self.first:
            if isinstance(schedule, Schedule):
                schedule.fit(count)
        if isinstance(self.last, Schedule):
            self.last.fit(max(1, total - self.before))

    def fitEpoch(self, count: int) -> None:
        for schedule in (*(schedule for schedule, _ in self.first), self.last):
            if isinstance(schedule, Schedule):
                schedule.fitEpoch(count)

    def __call__(self, step: int) -> float:
        for schedule, count in self.first:
            if step < count:
                return schedule(step)
            step -= count
        return self.last(step)
