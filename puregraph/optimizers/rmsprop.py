"""RMSProp and its relatives: each element's step divided by the recent size of its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Flag, takes
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.ruleoption import RuleOption

if TYPE_CHECKING:
    from puregraph.core.device import Array


class RMSProp(Optimizer):
    """s = factor s + (1 - factor) g^2,   w = w - rate g / (sqrt(s) + epsilon)

    With `centered`, s is less the square of the mean gradient, the estimated variance. With `momRate` the quotient
    goes through a momentum: v = momRate v + g / (sqrt(s) + epsilon), w = w - rate v. As PyTorch's RMSprop with
    alpha = factor: epsilon is added outside the root.

    Source    Tieleman, Hinton 2012, Neural Networks for Machine Learning, lecture 6e, slide 29; Graves 2013,
              arXiv:1308.0850, eq. 38 to 40 (centered)
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> net = Sequential(Linear(3, 1))
    >>> trainer = Trainer(net, MSE(), RMSProp(1e-3, clipNorm=1.0), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "meanSquare": "factor * meanSquare + (1 - factor) * grad ** 2",
        "param": "param - rate * grad / (sqrt(meanSquare) + epsilon)",
    }

    centered: Any = RuleOption()
    momRate: Any = RuleOption()

    @takes(centered=Flag)
    def __init__(
        self,
        learnRate: float = 1e-3,
        factor: float = 0.9,
        epsilon: float = 1e-5,
        centered: bool = False,
        momRate: float = 0.0,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        self.factor, self.epsilon = self.option("factor", factor, 1), self.option("epsilon", epsilon)
        self.centered, self.momRate = centered, self.option("momRate", momRate)
        if type(self).rule is RMSProp.rule and (centered or momRate):
            self.rule = dict(RMSProp.rule)
            root = "sqrt(meanSquare - mean ** 2)" if centered else "sqrt(meanSquare)"
            step = f"grad / ({root} + epsilon)"
            del self.rule["param"]
            if centered:
                self.rule["mean"] = "factor * mean + (1 - factor) * grad"
            if momRate:
                self.rule["velocity"] = f"momRate * velocity + {step}"
            self.rule["param"] = f"param - rate * {'velocity' if momRate else step}"


class RMSPropGraves(Optimizer):
    """s = alpha s + (1 - alpha) g^2,   m = alpha m + (1 - alpha) g
    v = momRate v - rate g / sqrt(s - m^2 + epsilon),   w = w + v

    Source    Graves 2013, arXiv:1308.0850, eq. 38 to 41
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), RMSPropGraves(), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "meanSquare": "alpha * meanSquare + (1 - alpha) * grad ** 2",
        "mean": "alpha * mean + (1 - alpha) * grad",
        "velocity": "momRate * velocity - rate * grad / sqrt(meanSquare - mean ** 2 + epsilon)",
        "param": "param + velocity",
    }

    def __init__(
        self,
        learnRate: float = 1e-4,
        alpha: float = 0.95,
        momRate: float = 0.9,
        epsilon: float = 1e-4,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        self.alpha, self.momRate = self.option("alpha", alpha, 1), self.option("momRate", momRate)
        self.epsilon = self.option("epsilon", epsilon)


class SMORMS3(Optimizer):
    """r = 1 / (h + 1),   m = (1 - r) m + r g,   s = (1 - r) s + r g^2,   x = m^2 / (s + epsilon)
    h = 1 + h (1 - x),   w = w - min(rate, x) g / (sqrt(s) + epsilon)

    h, the memory of each element, begins at 1 and grows while its gradients disagree. Squared mean over root mean
    square cubed gave the name.

    Source    Funk 2015, RMSprop loses to SMORMS3, sifter.org/~simon/journal/20150420.html
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), SMORMS3(), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "mean": "mean + (grad - mean) / (memory + 1)",
        "meanSquare": "meanSquare + (grad ** 2 - meanSquare) / (memory + 1)",
        "memory": "1 + memory * (1 - mean ** 2 / (meanSquare + epsilon))",
        "param": "param - minimum(rate, mean ** 2 / (meanSquare + epsilon)) * grad / (sqrt(meanSquare) + epsilon)",
    }

    def __init__(self, learnRate: float = 1e-3, epsilon: float = 1e-16, **options: Any):
        super().__init__(learnRate, **options)
        self.epsilon = self.option("epsilon", epsilon)

    def start(self, param: Array) -> dict[str, Array]:
        return {**super().start(param), "memory": np.ones_like(param)}
