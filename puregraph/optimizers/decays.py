"""Decays: schedules that go one way: by steps, exponentially, along a line or a power."""

from __future__ import annotations

from collections.abc import Sequence

from puregraph.core.arguments import Fraction, NotNegative, takes
from puregraph.core.errors import ArgumentError
from puregraph.optimizers.schedules import EndingSchedule, Schedule, atLeast


class MultiStep(Schedule):
    """factor^(number of `steps` that are reached)

    Source    PyTorch's MultiStepLR; He et al. 2016, arXiv:1512.03385, section 4.2
    Raises    ArgumentError for steps that do not rise

    >>> schedule = MultiStep((30, 60), 0.1)
    >>> [round(schedule(step), 3) for step in (0, 29, 30, 60)]
    [1.0, 1.0, 0.1, 0.01]
    """

    @takes(factor=NotNegative)
    def __init__(self, steps: Sequence[int], factor: float = 0.1):
        self.steps, self.factor = tuple(atLeast(1, "MultiStep", "a step", step) for step in steps), factor
        if list(self.steps) != sorted(set(self.steps)):
            raise ArgumentError(f"MultiStep: wanted steps that rise, such as (30, 60), got {tuple(steps)!r:.80}")

    @property
    def end(self) -> int | None:
        return self.steps[-1] if self.steps and not self.factor else None

    def __call__(self, step: int) -> float:
        return self.factor ** sum(step >= reached for reached in self.steps)


class Exponential(Schedule):
    """factor^step

    Source    PyTorch's ExponentialLR
    Raises    ArgumentError for a factor that is not from 0 to 1

    >>> Exponential(0.5)(3)
    0.125
    """

    @takes(factor=Fraction)
    def __init__(self, factor: float):
        self.factor = factor

    def __call__(self, step: int) -> float:
        return self.factor**step


class Polynomial(EndingSchedule):
    """final + (start - final) (1 - step / total)^power, and `final` from step `total` on

    `total` is by default the length of the run; power 1 is a straight line. As a value of an option, such as
    `Adam(beta1=Polynomial(100, start=0.95, final=0.85))`, it needs no factor.

    Source    PyTorch's PolynomialLR and LinearLR; BERT's schedule is WarmUp(steps, Polynomial())
    Raises    ArgumentError for a total below 1, or a number below 0

    >>> schedule = Polynomial(4, power=2.0)
    >>> [schedule(step) for step in (0, 1, 2, 4, 9)]
    [1.0, 0.5625, 0.25, 0.0, 0.0]
    """

    @takes(power=NotNegative, start=NotNegative, final=NotNegative)
    def __init__(self, total: int | None = None, power: float = 1.0, start: float = 1.0, final: float = 0.0):
        super().__init__(None if total is None else atLeast(1, type(self).__name__, "total", total))
        self.power, self.start, self.final = power, start, final

    def __call__(self, step: int) -> float:
        left = 1.0 - min(step / self.length(), 1.0)
        return self.final + (self.start - self.final) * left**self.power


class Hold(Schedule):
    """`factor` for the first `steps` updates, then 1; for ever without steps

    Source    PyTorch's ConstantLR
    Raises    ArgumentError for steps below 1 or a factor below 0

    >>> [Hold(0.5, 3)(step) for step in (0, 2, 3)]
    [0.5, 0.5, 1.0]
    """

    @takes(factor=NotNegative)
    def __init__(self, factor: float, steps: int | None = None):
        self.factor, self.steps = factor, None if steps is None else atLeast(1, "Hold", "steps", steps)

    def __call__(self, step: int) -> float:
        return self.factor if self.steps is None or step < self.steps else 1.0
