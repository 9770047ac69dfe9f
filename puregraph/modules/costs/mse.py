"""MSE: the mean squared difference."""

from puregraph.modules.costs.pointwisecost import PointwiseCost


class MSE(PointwiseCost):
    """cost = mean of (x - target)^2

    PuzzleLib's MSE is half of this: a learning rate found there is to be halved here.

    Shapes    x and target of one shape -> a scalar
    Source    Gauss 1809, Theoria Motus, section 179: the method of least squares
    Raises    ShapeError for a target of another shape
    """

    formula = "(x - target) ** 2"
