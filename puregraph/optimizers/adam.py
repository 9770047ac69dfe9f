"""Adam and its relatives: momentum over the recent size of gradients, corrected for their start at zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from puregraph.core.arguments import Flag, NotNegative, takes
from puregraph.core.errors import ArgumentError
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.ruleoption import RuleOption

ORDERS = np.arange(1.0, 56.0)  # of a power series in 1/2, to the last digit of float64


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
    w = w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    The learning rate may be given as `alpha`, its name in the paper. t counts the updates of each parameter
    separately, so that one unfrozen later has the same small first steps. With `amsgrad` the root is taken of
    the largest v so far. As PyTorch's Adam; PuzzleLib adds epsilon before correcting v.

    Source    Kingma, Ba 2015, arXiv:1412.6980, algorithm 1; Reddi, Kale, Kumar 2018, arXiv:1904.09237 (amsgrad)
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`
    """

    scalars: Mapping[str, str | Callable[..., float]] = {
        "bias1": "1 - beta1 ** step",
        "bias2": "1 - beta2 ** step",
    }
    rule = {
        "m": "beta1 * m + (1 - beta1) * grad",
        "v": "beta2 * v + (1 - beta2) * grad ** 2",
        "param": "param - rate / bias1 * m / (sqrt(v / bias2) + epsilon)",
    }

    amsgrad: Any = RuleOption()

    @takes(alpha=NotNegative | None, amsgrad=Flag)
    def __init__(
        self,
        learnRate: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        alpha: float | None = None,
        amsgrad: bool = False,
        **options: Any,
    ):
        super().__init__(learnRate if alpha is None else alpha, **options)
        self.beta1, self.beta2 = self.option("beta1", beta1, 1), self.option("beta2", beta2, 1)
        self.epsilon, self.amsgrad = self.option("epsilon", epsilon), amsgrad
        if amsgrad and (callable(self.rule) or "sqrt(v" not in self.rule["param"]):
            raise ArgumentError(f"{type(self).__name__}: amsgrad needs a rule with a root of v, as Adam and AdamW have")
        if amsgrad:
            states = {name: text for name, text in self.rule.items() if name != "param"}
            param = self.rule["param"].replace("sqrt(v", "sqrt(largest")
            self.rule = {**states, "largest": "maximum(largest, v)", "param": param}


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


class Adamax(Adam):
    """m = beta1 m + (1 - beta1) g,   u = max(beta2 u, |g| + epsilon),   w = w - rate / (1 - beta1^t) m / u

    Adam with the largest recent gradient in place of the root mean square. As PyTorch's Adamax.

    Source    Kingma, Ba 2015, arXiv:1412.6980, algorithm 2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), Adamax(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    scalars = {"bias1": "1 - beta1 ** step"}
    rule = {
        "m": "beta1 * m + (1 - beta1) * grad",
        "u": "maximum(beta2 * u, abs(grad) + epsilon)",
        "param": "param - rate / bias1 * m / u",
    }

    def __init__(
        self, learnRate: float = 2e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **options: Any
    ):
        super().__init__(learnRate, beta1, beta2, epsilon, **options)


class NAdam(Adam):
    """mu_t = beta1 (1 - 0.96^(t psi) / 2),   p_t = mu_1 mu_2 ... mu_t,   m and v as in Adam
    w = w - rate ((1 - mu_t) / (1 - p_t) g + mu_(t+1) / (1 - p_(t+1)) m) / (sqrt(v / (1 - beta2^t)) + epsilon)

    Adam that looks ahead as Nesterov's momentum does. As PyTorch's NAdam with momentum_decay = psi. Where beta1 or psi
    is a schedule, p_t is that of its value now, as the bias corrections of Adam are.

    Source    Dozat 2016, Incorporating Nesterov momentum into Adam, ICLR workshop, algorithm 2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), NAdam(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        **Adam.rule,
        "param": "param - rate * (gradShare * grad + meanShare * m) / (sqrt(v / bias2) + epsilon)",
    }

    def __init__(
        self,
        learnRate: float = 2e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        psi: float = 4e-3,
        **options: Any,
    ):
        super().__init__(learnRate, beta1, beta2, epsilon, **options)
        self.psi = self.option("psi", psi)
        self.scalars = {"bias2": Adam.scalars["bias2"], "gradShare": gradShare, "meanShare": meanShare}


def gradShare(step: float, beta1: float, psi: float) -> float:
    """(1 - mu_t) / (1 - p_t) of NAdam"""
    return (1 - momentumAt(step, beta1, psi)) / (1 - momentumProduct(step, beta1, psi))


def meanShare(step: float, beta1: float, psi: float) -> float:
    """mu_(t+1) / (1 - p_(t+1)) of NAdam"""
    return momentumAt(step + 1, beta1, psi) / (1 - momentumProduct(step + 1, beta1, psi))


class RAdam(Adam):
    """rho = rho_inf - 2 t beta2^t / (1 - beta2^t),   rho_inf = 2 / (1 - beta2) - 1,   m and v as in Adam
    w = w - rate r sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon)  where rho > 5,
    w = w - rate / (1 - beta1^t) m  before,
    r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))

    Adam whose first steps, of which v is still a poor estimate, are those of a momentum. As PyTorch's RAdam.

    Source    Liu et al. 2020, arXiv:1908.03265, algorithm 2
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), RAdam(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    rule = {
        **Adam.rule,
        "param": "param - rate / bias1 * m * where(rectified > 0, rectified / (sqrt(v) + epsilon), 1)",
    }

    def __init__(
        self, learnRate: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, **options: Any
    ):
        super().__init__(learnRate, beta1, beta2, epsilon, **options)
        self.scalars = {"bias1": Adam.scalars["bias1"], "rectified": rectified}


def rectified(step: float, beta2: float) -> float:
    """r sqrt(1 - beta2^t) of RAdam where the variance can be estimated; 0 before."""
    limit = 2 / (1 - beta2) - 1
    bias = 1 - beta2**step
    rho = limit - 2 * step * beta2**step / bias
    if rho <= 5:
        return 0.0
    return math.sqrt(bias * (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho))


def momentumAt(step: float, beta1: float, psi: float) -> float:
    """mu_t = beta1 (1 - 0.96^(t psi) / 2)"""
    return beta1 * (1 - 0.5 * 0.96 ** (step * psi))


def momentumProduct(step: float, beta1: float, psi: float) -> float:
    """mu_1 mu_2 ... mu_t, by the power series of log(1 - q^i / 2), with q = 0.96^psi, summed over i in closed form."""
    log = psi * math.log(0.96)
    if not log:
        return (beta1 / 2) ** step
    decays = ORDERS * log
    total = float(np.sum(0.5**ORDERS / ORDERS * np.exp(decays) * np.expm1(step * decays) / np.expm1(decays)))
    return beta1**step * math.exp(-total)
