"""Schedules: the factor of the learning rate at each update, a pure function of how many came before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import Any

from puregraph.core.arguments import AnyFunction, Fraction, NotNegative, takes
from puregraph.core.errors import ArgumentError
from puregraph.core.late import Late
from puregraph.optimizers.initrecorder import InitRecorder


class Schedule(InitRecorder):
    """factor = schedule(step); step 0 is the first update. A subclass writes `__call__`.

    Lengths are counted in updates, or in epochs inside `Epochs`. `end` is the update from which the factor no longer
    changes, None if it always changes. If `total` is left out, a Trainer sets it to the length of the run by `fit`.
    """

    plot: Any = Late("puregraph.draw.charts.plots", "plotSchedule")

    @property
    def end(self) -> int | None:
        """The update from which the factor no longer changes; None if it always changes."""
        return None

    def fit(self, total: int) -> None:
        """Set the length to that of a run of `total` updates, if none was passed to the constructor."""

    def fitEpoch(self, count: int) -> None:
        """Set the number of updates in an epoch. A Trainer calls this."""

    def __call__(self, step: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} has no factor: write __call__(self, step)")


class EndingSchedule(Schedule):
    """A schedule with a length: `total`, or by default the length of the run."""

    def __init__(self, total: int | None):
        self.given = total is not None
        self.total = total

    @property
    def end(self) -> int | None:
        return self.total

    def fit(self, total: int) -> None:
        if not self.given:
            self.total = total

    def length(self) -> int:
        """Return the length.

        Raises    ArgumentError if it is not set
        """
        if self.total is None:
            name = type(self).__name__
            raise ArgumentError(
                f"{name}: wanted a total, the number of updates, as no Trainer sets it: write {name}(1000)"
            )
        return self.total


class Step(Schedule):
    """factor^floor(step / size)

    Source    Krizhevsky, Sutskever, Hinton 2012, section 5; PyTorch's StepLR
    Raises    ArgumentError for a size below 1
    """

    @takes(factor=NotNegative)
    def __init__(self, size: int, factor: float = 0.1):
        self.size, self.factor = atLeast(1, "Step", "size", size), factor

    def __call__(self, step: int) -> float:
        return self.factor ** (step // self.size)


class Cosine(EndingSchedule):
    """final + (1 - final) (1 + cos(pi step / total)) / 2, and `final` from step `total` on, by default the run's length

    Source    Loshchilov, Hutter 2017, arXiv:1608.03983, eq. 5, without restarts; PyTorch's CosineAnnealingLR
    Raises    ArgumentError for a total below 1
    """

    @takes(final=NotNegative)
    def __init__(self, total: int | None = None, final: float = 0.0):
        super().__init__(None if total is None else atLeast(1, "Cosine", "total", total))
        self.final = final

    def __call__(self, step: int) -> float:
        return arc(1.0, self.final, step / self.length())


class WarmUp(Schedule):
    """start + (1 - start) step / steps for the first `steps` updates, after them then(step - steps), or 1

    `start` is 1 / (steps + 1) if not given, so that no update is lost to a rate of 0.

    Source    Goyal et al. 2017, arXiv:1706.02677, section 2.2; PyTorch's LinearLR, and SequentialLR with `then`
    Raises    ArgumentError for steps below 1

    >>> schedule = WarmUp(4, then=Step(10), start=0.0)
    >>> [schedule(step) for step in (0, 1, 2, 4, 14)]
    [0.0, 0.25, 0.5, 1.0, 0.1]
    """

    @takes(then=AnyFunction | None, start=NotNegative | None)
    def __init__(self, steps: int, then: Callable[[int], float] | None = None, start: float | None = None):
        self.steps, self.then = atLeast(1, "WarmUp", "steps", steps), then
        self.start = 1.0 / (steps + 1) if start is None else start

    @property
    def end(self) -> int | None:
        last = getattr(self.then, "end", None)
        return None if last is None else self.steps + last

    def fit(self, total: int) -> None:
        if isinstance(self.then, Schedule):
            self.then.fit(max(1, total - self.steps))

    def fitEpoch(self, count: int) -> None:
        if isinstance(self.then, Schedule):
            self.then.fitEpoch(count)

    def __call__(self, step: int) -> float:
        if step < self.steps:
            return self.start + (1.0 - self.start) * step / self.steps
        return 1.0 if self.then is None else self.then(step - self.steps)


class OneCycle(EndingSchedule):
    """From `start` up to 1, the learning rate itself, and down to `final` at the last of `total` updates, on cosines

    `rise` is the fraction of the updates in which the rate rises. From step `total` on the factor stays `final`;
    `total` is by default the length of the run.

    Source    Smith, Topin 2018, arXiv:1708.07120; PyTorch's OneCycleLR, with start = 1 / div_factor and
              final = start / final_div_factor, and without its cycle of momentum
    Raises    ArgumentError for a total or a rise that leaves no update to go up or down

    >>> schedule = OneCycle(101)
    >>> [round(schedule(step), 3) for step in (0, 15, 30, 65, 100)]
    [0.04, 0.538, 1.0, 0.492, 0.0]
    """

    @takes(rise=Fraction, start=NotNegative, final=NotNegative)
    def __init__(self, total: int | None = None, rise: float = 0.3, start: float = 0.04, final: float = 4e-6):
        super().__init__(None if total is None else atLeast(1, "OneCycle", "total", total))
        self.rise, self.start, self.final = rise, start, final
        self.check()

    def fit(self, total: int) -> None:
        super().fit(total)
        self.check()

    def check(self) -> None:
        """Check that the cycle has at least one update upwards and one downwards."""
        total = 1000 if self.total is None else self.total
        if not 0 < self.rise * total - 1 < total - 1:
            raise ArgumentError(
                f"OneCycle: with total {total} and rise {self.rise} there is no update to go up, or down"
            )

    def __call__(self, step: int) -> float:
        total = self.length()
        top = self.rise * total - 1
        if step <= top:
            return arc(self.start, 1.0, step / top)
        return arc(1.0, self.final, (step - top) / (total - 1 - top))


class Epochs(Schedule):
    """factor = schedule(step / n) with n updates an epoch: a schedule, or a function, whose lengths are epochs.

        Adam(1e-3, schedule=Epochs(Step(30)))                    # a tenth after 30 epochs, a hundredth after 60
        Adam(1e-3, schedule=Epochs(WarmUp(5, Cosine(85))))       # the rate changes with every update

    A Trainer sets the number of updates in an epoch. Schedules as long as the run, `Cosine()` and `OneCycle()`, need
    no `Epochs`; `OneCycle` cannot be in one, as it counts the updates of its two sides.

    Source    the schedules of PyTorch, which count epochs where `scheduler.step()` is called once in each
    Raises    ArgumentError for a OneCycle or another Epochs; in use, if the number of updates in an epoch is not set
    """

    @takes(schedule=AnyFunction)
    def __init__(self, schedule: Callable[[float], float]):
        if isinstance(schedule, (OneCycle, Epochs)) or isinstance(getattr(schedule, "then", None), (OneCycle, Epochs)):
            raise ArgumentError(f"Epochs: wanted a schedule such as Step(30), got {schedule!r:.60}")
        self.schedule = schedule
        self.count: int | None = None

    @property
    def end(self) -> int | None:
        last = getattr(self.schedule, "end", None)
        return None if last is None or self.count is None else math.ceil(last * self.count)

    def fit(self, total: int) -> None:
        if self.count is not None and isinstance(self.schedule, Schedule):
            self.schedule.fit(max(1, round(total / self.count)))

    def fitEpoch(self, count: int) -> None:
        self.count = count

    def __call__(self, step: int) -> float:
        if self.count is None:
            raise ArgumentError(
                "Epochs: the number of updates in an epoch is not set; a Trainer sets it if the length of its data is "
                "known, or call fitEpoch(n)"
            )
        return self.schedule(step / self.count)


def factorAt(schedule: Callable[[int], Any], step: int, option: str = "", limit: float = math.inf) -> float:
    """Return a schedule's number after `step` updates: a factor of the learning rate, or the value of an `option`.

    Raises    ArgumentError for anything but a finite number from 0 to below `limit`
    """
    factor = schedule(step)
    try:
        number = math.nan if isinstance(factor, (str, bytes)) else float(factor)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < limit:
        bounds = "on, finite" if limit == math.inf else f"to below {limit}"
        raise ArgumentError(
            f"{option or 'schedule'}: wanted {'a number' if option else 'a factor of the learning rate'} from 0 "
            f"{bounds}, got {factor!r:.60} from {schedule!r:.60} after {step} updates"
        )
    return number


def arc(start: float, end: float, part: float) -> float:
    """Return a half cosine from `start` at part 0 to `end` at part 1, and `end` beyond."""
    return end + (start - end) * (1.0 + math.cos(math.pi * min(part, 1.0))) / 2.0


def atLeast(least: int, owner: str, name: str, value: int) -> int:
    """Return a whole number of at least `least`. Raises ArgumentError for any other value."""
    if isinstance(value, bool) or not (isinstance(value, Integral) and value >= least):
        raise ArgumentError(f"{owner}: wanted {name} of at least {least}, got {value!r}")
    return value
