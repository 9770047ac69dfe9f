"""ASGD: gradient descent with an average of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class ASGD(Optimizer):
    """r = rate / (1 + shrinking rate (t - 1))^alpha,   w = w - shrinking r w - r g
    average = average + (w - average) / max(1, t - 1 - begin)

    Steps become smaller, and the average of all steps after `begin` of them is the result: a Trainer validates with
    it, `optimizer.keepAverage()` gives it to the network. As PyTorch's ASGD with lambd = shrinking, t0 = begin.

    Source    Polyak, Juditsky 1992, SIAM Journal on Control and Optimization 30(4), with the rates of Bottou 2012,
              Stochastic gradient descent tricks, section 5.2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), ASGD(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    scalars = {
        "now": "rate / (1 + shrinking * rate * (step - 1)) ** alpha",
        "averageShare": "1 / maximum(1, step - 1 - begin)",
    }
    rule = {
        "param": "param * (1 - shrinking * now) - now * grad",
        "average": "average + averageShare * (param - average)",
    }

    def __init__(
        self,
        learnRate: float = 1e-2,
        shrinking: float = 1e-4,
        alpha: float = 0.75,
        begin: float = 1e6,
        **options: Any,
    ):
        super().__init__(learnRate, **options)
        self.shrinking, self.alpha = self.option("shrinking", shrinking), self.option("alpha", alpha)
        self.begin = self.option("begin", begin)

    def start(self, param: Array) -> dict[str, Array]:
        return {"average": param.copy()}
