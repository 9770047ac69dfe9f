"""GaussianNLL: the negative log-likelihood of numbers whose mean and variance are predicted."""

import math

import numpy as np

from puregraph.core.arguments import Flag, Positive
from puregraph.core.errors import need, show
from puregraph.modules.costs.cost import REDUCTION, Cost


class GaussianNLL(Cost):
    """cost = mean of (ln v + (x - t)^2 / v) / 2, for numbers t of a normal distribution of mean x and variance v

    The network has two outputs, the mean and the variance, which is to be made positive, as by `SoftPlus`; v is at
    least `epsilon`, below which it has no gradient. `full` adds ln(2 pi) / 2.

    Shapes    x, variance and target of one shape, perhaps sampleWeight (n,) -> a scalar, or as x with "none"; the last
              axis of the variance may be 1
    Source    Nix, Weigend 1994, Estimating the mean and variance of the target probability distribution
    Raises    ShapeError for other shapes; ArgumentError for an epsilon that is not above 0
    """

    def __init__(self, full: Flag = False, epsilon: Positive = 1e-6, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.full, self.epsilon = full, epsilon

    def dataShapeFrom(self, x, variance, target, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, x, variance, target)

    def termShape(self, x, variance, target):
        need(target == x, f"a target of shape {show(x)}", target)
        need(variance in (x, (*x[:-1], 1)), f"a variance of shape {show(x)}", variance, "or of 1 along the last axis")
        return x

    def updateData(self, x, variance, target, sampleWeight=None):
        return self.cost(sampleWeight, x, variance, target)

    def terms(self, x, variance, target):
        v = np.maximum(variance, self.epsilon)
        d = x - target
        return 0.5 * (np.log(v) + d * d / v) + (0.5 * math.log(2 * math.pi) if self.full else 0)

    def sample(self, rng, x, variance, target, *more):
        return [rng.standard_normal(x), rng.random(variance) + 0.1, rng.standard_normal(target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3)] * 3
        yield cls(full=True), [(4, 3), (4, 1), (4, 3), (4,)]
        yield cls(reduction="none"), [(5,)] * 3
