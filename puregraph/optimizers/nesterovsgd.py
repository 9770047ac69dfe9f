"""NesterovSGD: momentum that looks one step ahead."""

from __future__ import annotations

from typing import Any

from puregraph.core.arguments import takes
from puregraph.optimizers.optimizer import Optimizer, Share


class NesterovSGD(Optimizer):
    """v = momRate v + g,   w = w - rate (g + momRate v)

    As PyTorch's SGD with nesterov=True: the gradient is taken where the parameters are, and the look ahead is in w.
    PuzzleLib keeps rate v instead, which is the same while the rate does not change.

    Source    Nesterov 1983, Soviet Mathematics Doklady 27; in this form Sutskever et al. 2013, ICML, section 2, and
              Bengio et al. 2013, arXiv:1212.0901, eq. 7
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> net = Sequential(Linear(3, 1))
    >>> trainer = Trainer(net, MSE(), NesterovSGD(0.01, momRate=0.9), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        "velocity": "momRate * velocity + grad",
        "param": "param - rate * (grad + momRate * velocity)",
    }

    @takes(momRate=Share)
    def __init__(self, learnRate: float = 1e-3, momRate: float = 0.9, **options: Any):
        super().__init__(learnRate, **options)
        self.momRate = self.option("momRate", momRate)
