"""Distances between predictions and targets that are neither squares nor absolute values: log-cosh, quantiles."""

from typing import Annotated

from puregraph.core.arguments import Argument, isNumber
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.pointwisecost import PointwiseCost

Share = Annotated[float, Argument("a number between 0 and 1", lambda value: isNumber(value) and 0 < value < 1)]


class LogCosh(PointwiseCost):
    """cost = mean of ln cosh d, with d = x - target: about d^2 / 2 near the target, |d| - ln 2 far away, and smooth

    It is computed as |d| + softplus(-2 |d|) - ln 2, which overflows nowhere.

    Shapes    x and target of one shape -> a scalar
    Source    Green 1990, Bayesian reconstructions from emission tomography data, IEEE Transactions on Medical Imaging 9
    Raises    ShapeError for a target of another shape
    """

    formula = "d = abs(x - target); d + softplus(-2 * d) - log(2)"


class Quantile(PointwiseCost):
    """cost = mean of q d where d > 0, else of (q - 1) d, with d = target - x: smallest at the q-quantile of targets

    q = 0.5 is half of `Abs`; q = 0.9 predicts a value that one target in ten exceeds.

    Shapes    x and target of one shape -> a scalar
    Source    Koenker, Bassett 1978, Regression Quantiles, Econometrica 46
    Raises    ArgumentError for a q that is not between 0 and 1; ShapeError for a target of another shape
    """

    formula = "d = target - x; where(d > 0, q * d, (q - 1) * d)"

    def __init__(self, q: Share = 0.5, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction=reduction, q=q)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(q=0.9), [(2, 3, 2), (2, 3, 2)]
        yield cls(q=0.1, reduction="none"), [(5,), (5,), (5,)]
