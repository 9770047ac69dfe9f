"""LAMB and LARS: the step of each layer in proportion to its weights, for large batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.optimizers.adam import Adam
from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class LAMB(Adam):
    """m and v as in Adam, corrected,   r = m / (sqrt(v) + epsilon) + decay w,   w = w - rate ||w|| / ||r|| r

    Norms are those of the parameter; where one of them is 0 their quotient is 1.

    Source    You et al. 2020, arXiv:1904.00962, algorithm 2, with phi(z) = z
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), LAMB(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    def __init__(
        self, learnRate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6, **options: Any
    ):
        super().__init__(learnRate, beta1, beta2, epsilon, **options)

    @staticmethod
    def rule(  # type: ignore[override]
        param: Array,
        grad: Array,
        m: Array,
        v: Array,
        rate: float,
        decay: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        bias1: float,
        bias2: float,
    ) -> Mapping[str, Array]:
        m = beta1 * m + (1 - beta1) * grad
        v = beta2 * v + (1 - beta2) * grad**2
        step = m / bias1 / (np.sqrt(v / bias2) + epsilon) + decay * param
        return {"param": param - rate * ratio(param, step) * step, "m": m, "v": v}

    def start(self, param: Array) -> dict[str, Array]:
        return {"m": np.zeros_like(param), "v": np.zeros_like(param)}


class LARS(Optimizer):
    """r = trust ||w|| / ||g + decay w||,   v = momRate v + rate r (g + decay w),   w = w - v

    Norms are those of the parameter; where one of them is 0 their quotient is 1, without `trust`. Without weight decay
    as in the paper; its sum of two norms under the fraction is the norm of the sum here.

    Source    You, Gitman, Ginsburg 2017, arXiv:1708.03888, algorithm 1
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), LARS(1e-1), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    def __init__(self, learnRate: float = 0.1, momRate: float = 0.9, trust: float = 1e-3, **options: Any):
        super().__init__(learnRate, **options)
        self.momRate, self.trust = self.option("momRate", momRate), self.option("trust", trust)

    @staticmethod
    def rule(
        param: Array, grad: Array, velocity: Array, rate: float, decay: float, momRate: float, trust: float
    ) -> Mapping[str, Array]:
        grad = grad + decay * param
        velocity = momRate * velocity + rate * ratio(param, grad, trust) * grad
        return {"param": param - velocity, "velocity": velocity}

    def start(self, param: Array) -> dict[str, Array]:
        return {"velocity": np.zeros_like(param)}


def ratio(param: Array, step: Array, factor: float = 1.0) -> Array:
    """factor ||param|| / ||step||, and 1 where a norm is 0."""
    over, under = np.sqrt(np.sum(param**2)), np.sqrt(np.sum(step**2))
    isPositive = np.logical_and(over > 0, under > 0)
    return np.where(isPositive, factor * over / np.where(under > 0, under, 1), 1)
