"""Rprop: steps by the sign of the gradient, whose sizes grow while it stays the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import ArgumentError
from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class Rprop(Optimizer):
    """d = clip(rise d, least, most) where g has the sign that it had,   clip(fall d, least, most) where it has not
    w = w - sign(g) d, and w stays where the sign has changed

    d begins at `learnRate`. For gradients of all data, not of batches. As PyTorch's Rprop; a `schedule` affects only
    the first d.

    Source    Riedmiller, Braun 1993, IEEE International Conference on Neural Networks; as iRprop- of Igel, Huesken 2000
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), Rprop(1e-3), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "size": "clip(size * where(grad * last > 0, rise, where(grad * last < 0, fall, 1)), least, most)",
        "param": "param - where(grad * last < 0, 0, sign(grad)) * size",
        "last": "where(grad * last < 0, 0, grad)",
    }

    def __init__(
        self,
        learnRate: float = 1e-2,
        fall: float = 0.5,
        rise: float = 1.2,
        least: float = 1e-6,
        most: float = 50.0,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        self.fall, self.rise = self.option("fall", fall, 1), self.option("rise", rise)
        self.least, self.most = self.option("least", least), self.option("most", most)
        fixed = [value for value in (rise, least, most) if not callable(value)]
        if len(fixed) == 3 and (rise < 1 or most < least):
            raise ArgumentError(f"Rprop: wanted rise of at least 1, and least <= most, got {rise}, {least} and {most}")

    def start(self, param: Array) -> dict[str, Array]:
        return {"size": np.full_like(param, self.learnRate), "last": np.zeros_like(param)}
