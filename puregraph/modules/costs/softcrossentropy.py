"""SoftCrossEntropy: cross-entropy with probabilities as targets."""

from puregraph.core.arguments import Fraction
from puregraph.core.base.widen import widen
from puregraph.core.errors import need
from puregraph.modules.costs.classweights import weightState
from puregraph.modules.costs.cost import REDUCTION, Cost, asFloats
from puregraph.modules.costs.crossentropy import AXES
from puregraph.ops.reduction.reference import logSoftmax


class SoftCrossEntropy(Cost):
    """cost = mean over positions of -sum_k w_k ((1 - s) t_k + s / c) ln p_k, with p = softmax(x) over the c classes

    The targets t are probabilities: what another network predicts, mixed or one-hot labels. For labels themselves there
    is `CrossEntropy`. w are the class `weights`, 1 by default, which do not divide the mean; s is the `smoothing`. The
    classes are on axis 1, or on the last one with `axis` -1.

    Shapes    x and target (n, c, *spatial), or (n, *spatial, c) with axis -1, perhaps sampleWeight (n,) -> a scalar, or
              (n, *spatial) with "none"
    Source    Hinton, Vinyals, Dean 2015, arXiv:1503.02531, section 2
    Raises    ShapeError for a target of another shape, or weights that do not fit the classes
    """

    takes = "scores"

    def __init__(
        self, weights=None, smoothing: Fraction = 0.0, axis: AXES = 1, name=None, reduction: REDUCTION = "mean"
    ):
        super().__init__(name, reduction)
        self.smoothing, self.axis, self.weights = smoothing, axis, weightState(weights, self)

    def termShape(self, x, target):
        need(len(x) >= 2, "(n, classes, ...)", x)
        hint = "it has a probability for each class; CrossEntropy takes labels"
        need(x == target, x, target, hint)
        classes = x[self.axis]
        need(classes != 0, "at least one class", x)
        if self.weights is not None:
            need(classes == self.weights.size, f"{self.weights.size} classes, as many as weights", x)
        return x[:1] + x[2:] if self.axis == 1 else x[:-1]

    def updateData(self, x, target, sampleWeight=None, weights=None):
        z = widen(x)
        logs, t = logSoftmax(z, self.axis), asFloats(target, z)
        if self.smoothing:
            t = (1 - self.smoothing) * t + self.smoothing / x.shape[self.axis]
        if weights is not None:
            t = t * weights.astype(z.dtype).reshape(-1, *(1,) * (x.ndim - 2 if self.axis == 1 else 0))
        return self.reduced(-(t * logs).sum(axis=self.axis), sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.random(target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(weights=(0.5, 2.0, 1.0), smoothing=0.1), [(5, 3, 2), (5, 3, 2), (5,)]
        yield cls(weights=(0.5, 2.0), axis=-1, reduction="none"), [(4, 3, 2), (4, 3, 2), (4,)]
        yield cls(reduction="sum"), [(4, 3), (4, 3)]
