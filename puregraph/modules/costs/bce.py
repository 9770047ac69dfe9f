"""BCE: binary cross-entropy of logits."""

from puregraph.core.arguments import NotNegative
from puregraph.modules.costs.cost import REDUCTION
from puregraph.modules.costs.pointwisecost import PointwiseCost
from puregraph.ops.gather.labels import checkFractions


class BCE(PointwiseCost):
    """cost = mean of -(posWeight t ln p + (1 - t) ln(1 - p)), with p = sigmoid(x) of the logits x and t the target

    Both logarithms are computed as softplus, so that nothing overflows or is lost for large logits. Targets are values
    from 0 to 1 of any dtype; `posWeight` above 1 favours recall, below 1 precision.

    Shapes    x and target of one shape -> a scalar
    Source    Bishop 2006, Pattern Recognition and Machine Learning, eq. 4.90
    Raises    ArgumentError for a negative posWeight; ShapeError for a target of another shape; DataError for a target
              that is not from 0 to 1, with its position
    """

    fractions = ("target",)
    takes = "logits"

    formula = "posWeight * target * softplus(-x) + (1 - target) * softplus(x)"

    def __init__(self, posWeight: NotNegative = 1.0, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction=reduction, posWeight=posWeight)

    def updateData(self, x, target, sampleWeight=None):
        checkFractions(target)
        return super().updateData(x, target, sampleWeight)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.random(target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(posWeight=2.5), [(6, 1), (6, 1), (6,)]
        yield cls(reduction="sum"), [(4, 3), (4, 3)]
        yield cls(reduction="none"), [(4, 3), (4, 3), (4,)]
