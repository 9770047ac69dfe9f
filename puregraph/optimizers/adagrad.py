"""AdaGrad and AdaDelta: each element's step divided by the gradients that it has had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class AdaGrad(Optimizer):
    """h = h + g^2,   w = w - rate g / (sqrt(h) + epsilon)

    `startSquares` is h before the first update. With `rateDecay` the learning rate of update t is divided by
    1 + (t - 1) rateDecay. As PyTorch's Adagrad.

    Source    Duchi, Hazan, Singer 2011, Journal of Machine Learning Research 12, section 1.1
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), AdaGrad(0.1), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    scalars = {"fading": "1 + (step - 1) * rateDecay"}
    rule = {
        "squares": "squares + grad ** 2",
        "param": "param - rate / fading * grad / (sqrt(squares) + epsilon)",
    }

    def __init__(
        self,
        learnRate: float = 1e-3,
        epsilon: float = 1e-8,
        rateDecay: float = 0.0,
        startSquares: float = 0.0,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        self.epsilon, self.rateDecay = self.option("epsilon", epsilon), self.option("rateDecay", rateDecay)
        self.startSquares = self.within("startSquares", startSquares)

    def start(self, param: Array) -> dict[str, Array]:
        return {"squares": np.full_like(param, self.startSquares)}


class AdaDelta(Optimizer):
    """s = rho s + (1 - rho) g^2,   d = sqrt(u + epsilon) / sqrt(s + epsilon) g
    u = rho u + (1 - rho) d^2,   w = w - rate d

    The root mean square of recent steps replaces the learning rate. As PyTorch's Adadelta.

    Source    Zeiler 2012, arXiv:1212.5701, algorithm 1
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), AdaDelta(), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "squares": "rho * squares + (1 - rho) * grad ** 2",
        "param": "param - rate * sqrt(steps + epsilon) / sqrt(squares + epsilon) * grad",
        "steps": "rho * steps + (1 - rho) * (sqrt(steps + epsilon) / sqrt(squares + epsilon) * grad) ** 2",
    }

    def __init__(self, learnRate: float = 1.0, rho: float = 0.95, epsilon: float = 1e-6, **options: Any):
        super().__init__(learnRate, **options)
        self.rho, self.epsilon = self.option("rho", rho, 1), self.option("epsilon", epsilon)
