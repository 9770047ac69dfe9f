"""Abs: the mean absolute difference."""

from puregraph.modules.costs.pointwisecost import PointwiseCost


class Abs(PointwiseCost):
    """cost = mean of |x - target|, the L1 cost; its gradient is 0 where both are equal.

    Shapes    x and target of one shape -> a scalar
    Source    Boscovich 1757, De Litteraria Expeditione: least absolute deviations
    Raises    ShapeError for a target of another shape
    """

    formula = "abs(x - target)"
