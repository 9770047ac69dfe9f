"""Adam: momentum over RMSProp, both corrected for their start at zero."""

from __future__ import annotations

from typing import Any

from puregraph.core.arguments import NotNegative, optional, takes
from puregraph.optimizers.optimizer import Optimizer


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
    w = w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    The learning rate may be given as `alpha`, its name in the paper. t counts the updates of each parameter on its own,
    so that one thawed late starts as gently as the others did. As PyTorch's Adam; PuzzleLib adds epsilon before
    correcting v.

    Source    Kingma, Ba 2015, arXiv:1412.6980, algorithm 1
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`
    """

    scalars = {
        "bias1": "1 - beta1 ** step",
        "bias2": "1 - beta2 ** step",
    }
    rule = {
        "m": "beta1 * m + (1 - beta1) * grad",
        "v": "beta2 * v + (1 - beta2) * grad ** 2",
        "param": "param - rate / bias1 * m / (sqrt(v / bias2) + epsilon)",
    }

    @takes(alpha=optional(NotNegative))
    def __init__(
        self,
        learnRate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        alpha: float | None = None,
        **options: Any,
    ):
        super().__init__(learnRate if alpha is None else alpha, **options)
        self.beta1, self.beta2 = self.within("beta1", beta1, 1), self.within("beta2", beta2, 1)
        self.epsilon = self.within("epsilon", epsilon)
