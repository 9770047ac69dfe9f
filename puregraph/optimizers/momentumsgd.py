"""MomentumSGD: gradient descent with a velocity that accumulates gradients."""

from __future__ import annotations

from typing import Any

from puregraph.core.arguments import takes
from puregraph.optimizers.optimizer import Optimizer, Share
from puregraph.optimizers.ruleoption import RuleOption


class MomentumSGD(Optimizer):
    """v = momRate v + (1 - dampening) g,   w = w - rate v

    The first v is g itself. As PyTorch's SGD with momentum. PuzzleLib keeps rate v instead, which is the same while the
    rate does not change.

    Source    Polyak 1964, USSR Computational Mathematics and Mathematical Physics 4(5), eq. 9
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`
    """

    rule = {
        "velocity": "momRate * velocity + grad",
        "param": "param - rate * velocity",
    }

    dampening: Any = RuleOption()

    @takes(momRate=Share, dampening=Share)
    def __init__(self, learnRate: float = 1e-3, momRate: float = 0.9, dampening: float = 0.0, **options: Any):
        super().__init__(learnRate, **options)
        self.momRate, self.dampening = self.option("momRate", momRate), self.option("dampening", dampening, 1)
        if dampening:
            self.rule = {**self.rule, "velocity": "momRate * velocity + gradShare * grad"}
            self.scalars = {**self.scalars, "gradShare": "where(step == 1, 1, 1 - dampening)"}
