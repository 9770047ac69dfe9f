"""Contrastive costs of a batch: each vector is to find its partner among those of all other samples."""

import numpy as np

from puregraph.core.arguments import Flag, Positive
from puregraph.core.errors import need, show
from puregraph.core.tracer import arrayLike
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.ops.reduction.reference import logSoftmax

SQUARE_EPSILON = 1e-12  # added to squared lengths, so that 0 has a gradient


def unit(x):
    """Return the vectors along the last axis divided by their length."""
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + SQUARE_EPSILON)


def eye(x):
    """The identity, in the dtype of computation, for the samples of x."""
    return arrayLike(x, np.eye(x.shape[0], dtype=x.dtype))


class InfoNCE(Cost):
    """cost = mean over i of -ln softmax_j(cos(a_i, b_j) / temperature) at j = i

    Sample i of b is the partner of sample i of a; all others are its negatives. With `both` it is the mean of that and
    of the same with a and b exchanged, as in CLIP. The negatives are those of the batch, so that the
    cost of a large batch is not the mean of the costs of small ones.

    Shapes    a and b (n, size), perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    van den Oord, Li, Vinyals 2018, arXiv:1807.03748, eq. 4; Radford et al. 2021, arXiv:2103.00020 (both)
    Raises    ShapeError for other shapes; ArgumentError for a temperature that is not above 0
    """

    def __init__(self, temperature: Positive = 0.1, both: Flag = False, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.temperature, self.both = temperature, both

    def dataShapeFrom(self, a, b, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, a, b)

    def termShape(self, a, b):
        need(len(a) == 2, "(n, size)", a)
        need(b == a, f"partners of shape {show(a)}", b)
        return a[:1]

    def updateData(self, a, b, sampleWeight=None):
        return self.cost(sampleWeight, a, b)

    def terms(self, a, b):
        if not a.shape[0]:
            return (a * b).sum(axis=1)
        scores = (unit(a) @ unit(b).T) / self.temperature
        terms = -(logSoftmax(scores, 1) * eye(a)).sum(axis=1)
        return 0.5 * (terms - (logSoftmax(scores, 0) * eye(a)).sum(axis=0)) if self.both else terms

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(0.5, both=True), [(5, 2), (5, 2), (5,)]
        yield cls(reduction="none"), [(4, 3), (4, 3)]


class NTXent(InfoNCE):
    """cost = mean over all 2 n vectors of -ln softmax(cos / temperature) at their partner, among all but themselves

    a and b are two views of the same n samples; a term of the cost is the mean of the two of a sample.

    Shapes    a and b (n, size), perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    Chen, Kornblith, Norouzi, Hinton 2020, arXiv:2002.05709, eq. 1
    Raises    ShapeError for other shapes; ArgumentError for a temperature that is not above 0
    """

    def __init__(self, temperature: Positive = 0.5, name=None, reduction: REDUCTION = "mean"):
        super().__init__(temperature, False, name, reduction)

    def terms(self, a, b):
        n = a.shape[0]
        if not n:
            return (a * b).sum(axis=1)
        z = unit(np.concatenate([a, b]))
        itself = eye(z)
        logs = logSoftmax((z @ z.T) / self.temperature - 1e30 * itself, 1)
        partners = np.concatenate([itself[n:], itself[:n]])
        terms = -(logs * partners).sum(axis=1)
        return 0.5 * (terms[:n] + terms[n:])

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(0.2), [(5, 2), (5, 2), (5,)]
        yield cls(reduction="none"), [(4, 3), (4, 3)]
