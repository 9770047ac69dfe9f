"""RMSProp: each element's step divided by the recent size of its gradient."""

from __future__ import annotations

from typing import Any

from puregraph.optimizers.optimizer import Optimizer


class RMSProp(Optimizer):
    """s = factor s + (1 - factor) g^2,   w = w - rate g / (sqrt(s) + epsilon)

    As PyTorch's RMSprop with alpha = factor: epsilon is added outside the root, nothing is centered, without momentum.

    Source    Tieleman, Hinton 2012, Neural Networks for Machine Learning, lecture 6e, slide 29
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

    def __init__(self, learnRate: float = 1e-3, factor: float = 0.9, epsilon: float = 1e-5, **options: Any):
        super().__init__(learnRate, **options)
        self.factor, self.epsilon = self.within("factor", factor, 1), self.within("epsilon", epsilon)
