"""AdamW: Adam whose weight decay does not pass through the moments."""

from __future__ import annotations

from typing import Any

from puregraph.optimizers.adam import Adam


class AdamW(Adam):
    """m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
    w = w - rate (decay w + (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon))

    As PyTorch's AdamW.

    Source    Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> net = Sequential(Linear(3, 1))
    >>> trainer = Trainer(net, MSE(), AdamW(1e-3, decay=0.1), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        **Adam.rule,
        "param": "param - rate * decay * param - rate / bias1 * m / (sqrt(v / bias2) + epsilon)",
    }

    def __init__(
        self,
        learnRate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay: float = 0.01,
        **options: Any,
    ):
        super().__init__(learnRate, beta1, beta2, epsilon, decay=decay, **options)
