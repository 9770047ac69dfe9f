"""NLL: the negative log-likelihood of labels under logarithms of probabilities."""

import numpy as np

from puregraph.core.arguments import Whole
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.modules.costs.classrows import ofLabels
from puregraph.modules.costs.classweights import norm, weightState
from puregraph.modules.costs.cost import REDUCTION, Cost, alongSamples, needWeights
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.reference import takeClass


class NLL(Cost):
    """cost = -sum_i w[t_i] x[i, t_i] / sum_i w[t_i], with x the logarithms of probabilities, classes on axis 1

    A network that ends with scores takes `CrossEntropy` instead. `weights` are those of the classes, a list or a dict;
    positions labelled `ignoreIndex` do not count. Where none does, cost and gradient are 0.

    Shapes    x (n, c, *spatial), labels (n, *spatial) of integers, perhaps sampleWeight (n,) -> a scalar, or as labels
              with "none"
    Source    Bishop 2006, Pattern Recognition and Machine Learning, eq. 4.108
    Raises    ShapeError if labels do not fit x, or weights the classes; ArgumentError for weights that cannot be meant;
              DataError naming a label that is no class, and its position
    """

    indices = ("labels",)
    needsFloats = True
    axis = 1

    def __init__(self, weights=None, ignoreIndex: Whole | None = None, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.ignoreIndex, self.weights = ignoreIndex, weightState(weights, self)

    def dataShapeFrom(self, x, labels, sampleWeight=None):
        need(len(x) >= 2, "(n, classes, ...)", x)
        need(labels == x[:1] + x[2:], f"labels of shape {show(x[:1] + x[2:])}", labels, "the classes are on axis 1")
        need(x[1] != 0, "at least one class", x)
        if self.weights is not None:
            need(x[1] == self.weights.size, f"{self.weights.size} classes, as many as weights", x)
        needWeights(sampleWeight, x)
        return labels if self.reduction == "none" else ()

    def updateData(self, x, labels, sampleWeight=None, weights=None):
        index = classIndex(labels, x.shape[1], self.ignoreIndex)
        z = widen(x)
        share = (index >= 0).astype(z.dtype) if weights is None else ofLabels(weights.astype(z.dtype), index)
        terms = share * self.losses(z, index)
        if sampleWeight is not None:
            terms = terms * alongSamples(sampleWeight, terms)
        if self.reduction == "none":
            return terms.astype(x.dtype)
        return (terms.sum() / (norm(share) if self.reduction == "mean" else 1)).astype(x.dtype)

    def losses(self, x, index):
        """Return the cost of each position; 0 for index -1, no class."""
        return -takeClass(x, index)

    @property
    def isPlainMean(self):
        """True if all positions have equal weight, whatever their labels."""
        return self.weights is None and self.ignoreIndex is None

    def counted(self, labels):
        """Return the divisor of the mean for these labels, the weight of a batch among several; None: its samples."""
        if self.isPlainMean:
            return None
        isCounted = labels != self.ignoreIndex if self.ignoreIndex is not None else labels == labels
        if self.weights is None:
            return isCounted.sum()
        return (self.weights.materialize()[labels * isCounted] * isCounted).sum()

    def sample(self, rng, x, labels, *more):
        chosen = rng.integers(0, x[self.axis], labels)
        if self.ignoreIndex is not None:
            chosen = np.where(rng.random(labels) < 0.2, self.ignoreIndex, chosen)
        return [rng.standard_normal(x), chosen, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(weights=(0.5, 2.0, 1.0), ignoreIndex=-100), [(5, 3, 2), (5, 2), (5,)]
        yield cls(reduction="none"), [(4, 3), (4,)]
        yield cls(weights={0: 0.5, 1: 2.0}, reduction="sum"), [(5, 2), (5,)]
