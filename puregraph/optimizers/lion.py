"""Lion: a step by the sign of a momentum."""

from __future__ import annotations

from typing import Any

from puregraph.optimizers.optimizer import Optimizer


class Lion(Optimizer):
    """w = w - rate (sign(beta1 m + (1 - beta1) g) + decay w),   m = beta2 m + (1 - beta2) g

    Every element moves by the rate. One state array, where Adam has two; rates are three to ten times smaller.

    Source    Chen et al. 2023, arXiv:2302.06675, algorithm 2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), Lion(1e-3), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "param": "param - rate * (sign(beta1 * mean + (1 - beta1) * grad) + decay * param)",
        "mean": "beta2 * mean + (1 - beta2) * grad",
    }

    def __init__(self, learnRate: float = 1e-4, beta1: float = 0.9, beta2: float = 0.99, **options: Any):
        super().__init__(learnRate, **options)
        self.beta1, self.beta2 = self.option("beta1", beta1, 1), self.option("beta2", beta2, 1)
