"""Huber: half the squared difference near the target, linear further away."""

from puregraph.core.arguments import Positive
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.pointwisecost import PointwiseCost


class Huber(PointwiseCost):
    """cost = mean of d^2 / 2 where |d| < delta, else of delta (|d| - delta / 2), with d = x - target

    `delta` is where the two meet. It is delta times `SmoothL1(beta=delta)`.

    Shapes    x and target of one shape -> a scalar
    Source    Huber 1964, Annals of Mathematical Statistics 35
    Raises    ArgumentError for a delta that is not above 0; ShapeError for a target of another shape
    """

    formula = "d = x - target; where(abs(d) < delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta))"

    def __init__(self, delta: Positive = 1.0, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction=reduction, delta=delta)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(delta=0.3), [(2, 3, 2), (2, 3, 2)]
        yield cls(delta=2.0), [(5,), (5,), (5,)]
