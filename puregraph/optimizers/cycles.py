"""Cycles: schedules that come back: cosines with restarts, and triangles."""

from __future__ import annotations

from typing import Any

from puregraph.core.arguments import Count, NotNegative, choice, takes
from puregraph.optimizers.schedules import Schedule, arc, atLeast


class CosineRestarts(Schedule):
    """final + (1 - final) (1 + cos(pi t / T)) / 2,   t = updates since the last restart, T the length of this cycle

    The first cycle has `first` updates, each one after it `growth` times as many as the one before.

    Source    Loshchilov, Hutter 2017, arXiv:1608.03983, eq. 5; PyTorch's CosineAnnealingWarmRestarts
    Raises    ArgumentError for a first cycle or a growth below 1

    >>> schedule = CosineRestarts(2, growth=2)
    >>> [round(schedule(step), 3) for step in range(7)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """

    @takes(growth=Count, final=NotNegative)
    def __init__(self, first: int, growth: int = 1, final: float = 0.0):
        self.first, self.growth, self.final = atLeast(1, "CosineRestarts", "first", first), growth, final

    def __call__(self, step: int) -> float:
        length: int = self.first
        if self.growth == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.growth
        return arc(1.0, self.final, step / length)


class Cyclic(Schedule):
    """From `least` up to 1 in `up` updates and down again in `down`, along lines, over and over

    With mode "halving" each cycle goes up half as far as the one before; with "exponential" the height is
    factor^step.

    Source    Smith 2017, arXiv:1506.01186; PyTorch's CyclicLR with base_lr = least * max_lr
    Raises    ArgumentError for less than one update up or down

    >>> schedule = Cyclic(2, 2, least=0.0)
    >>> [schedule(step) for step in range(6)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]
    """

    @takes(least=NotNegative, mode=choice("triangle", "halving", "exponential"), factor=NotNegative)
    def __init__(
        self, up: int, down: int | None = None, least: float = 0.1, mode: str = "triangle", factor: float = 1.0
    ):
        self.up = atLeast(1, "Cyclic", "up", up)
        self.down = self.up if down is None else atLeast(1, "Cyclic", "down", down)
        self.least, self.mode, self.factor = least, mode, factor

    def __call__(self, step: int) -> float:
        cycle, position = divmod(step, self.up + self.down)
        part: Any = position / self.up if position <= self.up else 1.0 - (position - self.up) / self.down
        height = {"triangle": 1.0, "halving": 0.5**cycle, "exponential": self.factor**step}[self.mode]
        return self.least + (1.0 - self.least) * part * height
