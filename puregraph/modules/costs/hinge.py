"""Margins of single scores: costs of targets -1 and 1 that ask for a distance between right and wrong."""

import numpy as np

from puregraph.core.arguments import Number
from puregraph.core.errors import need
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.modules.costs.pointwisecost import PointwiseCost


class _SignedCost(PointwiseCost):
    """cost = mean of a formula of scores x and targets -1 and 1.

    Shapes    x and target of one shape -> a scalar
    Source    the formula's
    Raises    ShapeError for a target of another shape
    """

    formula = "relu(1 - target * x)"
    takes = "logits"

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), 2.0 * rng.integers(0, 2, target) - 1, *map(rng.random, more)]


class Hinge(_SignedCost):
    """cost = mean of max(0, 1 - t x), for scores x and targets t of -1 and 1

    Targets 0 and 1 become these by 2 t - 1.

    Shapes    x and target of one shape -> a scalar
    Source    Cortes, Vapnik 1995, Support-Vector Networks, Machine Learning 20
    Raises    ShapeError for a target of another shape
    """

    formula = "relu(1 - target * x)"


class SquaredHinge(_SignedCost):
    """cost = mean of max(0, 1 - t x)^2, for scores x and targets t of -1 and 1

    Shapes    x and target of one shape -> a scalar
    Source    Cortes, Vapnik 1995, Support-Vector Networks, Machine Learning 20
    Raises    ShapeError for a target of another shape
    """

    formula = "square(relu(1 - target * x))"


class SoftMargin(_SignedCost):
    """cost = mean of ln(1 + exp(-t x)), for scores x and targets t of -1 and 1

    `BCE` is the same for targets 0 and 1.

    Shapes    x and target of one shape -> a scalar
    Source    Cox 1958, The Regression Analysis of Binary Sequences, Journal of the Royal Statistical Society B 20
    Raises    ShapeError for a target of another shape
    """

    formula = "softplus(-target * x)"


class HingeEmbedding(_SignedCost):
    """cost = mean of x where the target is 1, of max(0, margin - x) where it is -1; x is a distance

    Shapes    x and target of one shape -> a scalar
    Source    Hadsell, Chopra, LeCun 2006, Learning an Invariant Mapping, without squares
    Raises    ShapeError for a target of another shape
    """

    formula = "where(target != 1, relu(margin - x), 0) + where(target != -1, x, 0)"
    takes = ""

    def __init__(self, margin: Number = 1.0, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction=reduction, margin=margin)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), 2 * rng.integers(0, 2, target) - 1, *map(rng.random, more)]


class L1Hinge(Cost):
    """cost = mean of |a - b| where the pair has label 1, of max(0, 1 - |a - b|) where it has label 0

    Label 1 says that a and b belong together: each of their elements is drawn together, those of other pairs are driven
    apart, up to a distance of 1.

    Shapes    a and b (n, ...), labels (n,) of 0 and 1, perhaps sampleWeight (n,) -> a scalar, or as a with "none"
    Source    PuzzleLib's L1Hinge, with the sign of its gradient corrected
    Raises    ShapeError for other shapes
    """

    indices = ("labels",)

    def dataShapeFrom(self, a, b, labels, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, a, b, labels)

    def termShape(self, a, b, labels):
        need(len(a) > 0, "(n, ...), samples along the first axis", a)
        need(a == b, f"two inputs of shape {a}", b)
        need(labels == a[:1], f"labels of shape {a[:1]}", labels, "one for each pair")
        return a

    def updateData(self, a, b, labels, sampleWeight=None):
        return self.cost(sampleWeight, a, b, labels)

    def terms(self, a, b, labels):
        d = np.abs(a - b)
        isAlike = labels.reshape(-1, *(1,) * (d.ndim - 1)) > 0
        return np.where(isAlike, d, np.maximum(1 - d, 0))

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3), (4,)]
        yield cls(reduction="none"), [(5, 2, 3), (5, 2, 3), (5,), (5,)]
        yield cls(reduction="sum"), [(5,), (5,), (5,)]
