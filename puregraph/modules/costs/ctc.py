"""CTC: labels without positions, for a network that gives scores at every time step."""

import numpy as np

from puregraph.core.arguments import Flag, Size
from puregraph.core.base.dtype import inferredType
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.modules.costs.cost import REDUCTION, Cost, needWeights
from puregraph.ops.alignment.reference import alignments
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.reduction.reference import logSoftmax


class CTC(Cost):
    """cost = mean over samples of -ln P / max(1, labels), P the sum over all alignments of the product of p[t, k_t]

    An alignment names a class k_t for each time step: the labels in order, each once or several times in a row, with
    any number of `blank`s around them, and at least one between equal neighbours. p is the softmax of the scores x.
    `reduction` "sum" and "none" take -ln P itself. Labels are padded by -1; `labelLengths` says how many count where
    they are padded by anything else, and `lengths` how many time steps a sample has. Where a sample has too few of them
    for its labels, its cost is inf, or 0 with `zeroInfinity`, and its gradient 0.

    Shapes    x (n, t, c), labels (n, s) of integers, perhaps lengths (n,), labelLengths (n,), sampleWeight (n,) -> a
              scalar, or (n,) with "none"
    Source    Graves, Fernandez, Gomez, Schmidhuber 2006, Connectionist Temporal Classification
    Raises    ShapeError for shapes that do not fit; DataError naming a label that is no class, and its position;
              IndexError for lengths beyond the time steps or labels
    """

    indices = ("labels", "lengths", "labelLengths")
    hidden = ("p", "costs", "chances")
    reads = ("labels", "lengths", "labelLengths", "sampleWeight", "p", "costs", "chances")
    needsFloats = True
    takes = "scores"
    axis = -1
    aligned = staticmethod(alignments)

    def __init__(self, blank: Size = 0, zeroInfinity: Flag = False, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.blank, self.zeroInfinity = blank, zeroInfinity

    def dataShapeFrom(self, x, labels, lengths=None, labelLengths=None, sampleWeight=None):
        need(len(x) == 3, "(n, time steps, classes)", x)
        need(len(labels) == 2 and labels[:1] == x[:1], f"labels of shape ({x[0]}, labels)", labels)
        self.checkRest(x, lengths, labelLengths)
        needWeights(sampleWeight, x)
        return x[:1] if self.reduction == "none" else ()

    def checkRest(self, x, lengths, labelLengths):
        """Refuse scores without a class for the blank, and lengths that are not one for each sample."""
        need(not isinstance(x[-1], int) or x[-1] > self.blank, f"more than {self.blank} classes, as blank is one", x)
        for what, shape in (("lengths", lengths), ("labelLengths", labelLengths)):
            need(shape is None or shape == x[:1], f"{what} of shape {show(x[:1])}", shape)

    def dataTypeFrom(self, x, *others):
        inferredType(self, (x, *others))
        return x

    def hiddenShapeFrom(self, x, *others):
        return [x, x[:1], x]

    def hiddenTypeFrom(self, x, *others):
        return [None if x is None else widen(np.zeros((), x)).dtype] * 3

    def updateData(self, x, labels, lengths=None, labelLengths=None, sampleWeight=None):
        logs, index = logSoftmax(widen(x), -1), classIndex(labels, x.shape[-1], -1)
        counts = self.countsOf(index, labelLengths)
        if lengths is None:
            lengths = np.zeros_like(counts) + x.shape[1]
        costs, chances = self.aligned(logs, index, lengths.astype(np.int64), counts, self.blank)
        if self.zeroInfinity:
            costs = np.where(np.equal(costs, np.inf), 0, costs)  # nan is a number that went wrong
        cost = self.reduced(costs / self.divisors(counts, costs), sampleWeight)
        return cost.astype(x.dtype), np.exp(logs), costs, chances

    def updateGrad(self, grad, x, labels, *others, needs):
        lengths, labelLengths, weight = [*others[:-4], None, None, None][:3]
        p, costs, chances = others[-3:]
        seed = widen(grad) / (max(x.shape[0], 1) if self.reduction == "mean" else 1)
        seed = seed / self.divisors(self.countsOf(classIndex(labels, x.shape[-1], -1), labelLengths), costs)
        ofWeight = None if weight is None else (seed * costs).astype(weight.dtype)
        if weight is not None:
            seed = seed * widen(weight)
        slope = p * chances.sum(axis=-1, keepdims=True) - chances
        slope = (slope * seed.reshape(-1, *(1,) * (x.ndim - 1))).astype(x.dtype)
        return (slope, None, None, None, ofWeight)[: len(needs)]

    def countsOf(self, index, labelLengths):
        """The number of labels of each sample."""
        if labelLengths is None:
            return (index >= 0).astype(np.int64).sum(axis=1)
        return labelLengths.astype(np.int64)

    def divisors(self, counts, like):
        """Return the divisor of each sample's cost: its number of labels for a mean, at least 1; otherwise 1."""
        return np.maximum(counts, 1).astype(like.dtype) if self.reduction == "mean" else np.ones_like(like)

    def labelsFor(self, rng, classes, shape):
        """Return random labels above the blank; -1, no label, if there is no such class."""
        return rng.integers(self.blank + 1, classes, shape) if classes > self.blank + 1 else np.full(shape, -1)

    def sample(self, rng, x, labels, lengths=None, labelLengths=None, *more):
        drawn = [rng.standard_normal(x), self.labelsFor(rng, x[-1], labels)]
        drawn += [] if lengths is None else [rng.integers(max(min(1, x[1]), x[1] - 2), x[1] + 1, lengths)]
        drawn += [] if labelLengths is None else [rng.integers(0, labels[1] + 1, labelLengths)]
        return [*drawn, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(zeroInfinity=True), [(3, 6, 4), (3, 2)]
        yield cls(zeroInfinity=True, reduction="sum"), [(3, 7, 4), (3, 2), (3,), (3,), (3,)]
        yield cls(reduction="none"), [(2, 7, 3), (2, 3)]
