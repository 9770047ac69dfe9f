"""SmoothL1: quadratic near the target, linear further away."""

from puregraph.core.arguments import NotNegative
from puregraph.modules.costs.abs import Abs
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.pointwisecost import PointwiseCost


class SmoothL1(PointwiseCost):
    """cost = mean of d^2 / (2 beta) where |d| < beta, else of |d| - beta / 2, with d = x - target

    `beta` is where the two meet; with 0 it is `Abs`. `Huber` is beta times as much.

    Shapes    x and target of one shape -> a scalar
    Source    Girshick 2015, arXiv:1504.08083, eq. 3 (beta 1)
    Raises    ArgumentError for a negative beta; ShapeError for a target of another shape
    """

    formula = "d = x - target; where(abs(d) < beta, 0.5 * d * d / beta, abs(d) - 0.5 * beta)"

    def __init__(self, beta: NotNegative = 1.0, name=None, reduction: REDUCTION = "mean"):
        if beta:
            super().__init__(name, reduction=reduction, beta=beta)
        else:
            super().__init__(name, Abs.formula, reduction)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(beta=0.3), [(2, 3, 2), (2, 3, 2)]
        yield cls(beta=0), [(5,), (5,), (5,)]
