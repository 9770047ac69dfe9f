"""ScheduleFree: AdamW that needs no schedule, since an average of its steps replaces one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Size, takes
from puregraph.core.errors import ArgumentError
from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class ScheduleFree(Optimizer):
    """v = beta2 v + (1 - beta2) g^2,   d = g / (sqrt(v / (1 - beta2^t)) + epsilon) + decay y
    z = z - r d,   x = (1 - c) x + c z,   y = (1 - beta1) z + beta1 x

    Gradients are taken at y, the parameters while training; x is the result, which a Trainer validates with and
    `optimizer.keepAverage()` gives to the network. r = rate min(1, t / warmUp), and c = r^2 / (sum of all r^2 so far).
    Batch normalization collects its statistics at y: after `keepAverage()`, pass data through the network in trainMode,
    and its statistics are those of x.

    Source    Defazio et al. 2024, arXiv:2405.15682, eq. 3 to 5 and algorithm 1
    Raises    ArgumentError for a setting or option out of range, and for a schedule; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), ScheduleFree(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "v": "beta2 * v + (1 - beta2) * grad ** 2",
        "z": "z - warmRate * (grad / (sqrt(v / bias2) + epsilon) + decay * param)",
        "average": "average + averageShare * (z - average)",
        "param": "z + beta1 * (average - z)",
    }

    @takes(warmUp=Size)
    def __init__(
        self,
        learnRate: float = 2.5e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        warmUp: int = 0,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        if self.schedule is not None:
            raise ArgumentError("ScheduleFree: wanted no schedule, which its average replaces; set warmUp=100")
        self.beta1, self.beta2 = self.option("beta1", beta1, 1), self.option("beta2", beta2, 1)
        self.epsilon, self.warmUp = self.option("epsilon", epsilon), warmUp
        self.scalars = {
            "bias2": "1 - beta2 ** step",
            "warmRate": f"rate * minimum(1, step / {max(1, warmUp)})",
            "averageShare": self.averageShare,
        }

    def averageShare(self, step: float) -> float:
        """c = r_t^2 / (r_1^2 + ... + r_t^2): the sum of squares up to the warm-up in closed form, then ones."""
        last = max(1, self.warmUp)
        n = min(step, last)
        total = n * (n + 1) * (2 * n + 1) / (6 * last**2) + max(0.0, step - last)
        return min(1.0, step / last) ** 2 / total

    def start(self, param: Array) -> dict[str, Array]:
        return {"v": np.zeros_like(param), "z": param.copy(), "average": param.copy()}
