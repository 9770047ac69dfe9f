"""AdaptiveSoftmax: a linear classifier of many classes, with small layers for rare ones."""

import math
from functools import partial

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Counts, Flag
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError, need
from puregraph.core.param import Param
from puregraph.modules.costs.classrows import checkedIndex, ofClass
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.ops.reduction.reference import logSoftmax


class AdaptiveSoftmax(Cost):
    """cost = mean of -ln p(label); p(k) = h(k) for frequent classes, and h(cluster) q(k) for those of a cluster

    Classes are ordered by frequency, the most frequent one first; `cutoffs` are the first classes of the clusters. h is
    the softmax of x W + b, over the classes below the first cutoff and then the clusters. q is that of a cluster i from
    1 on: of x D_i U_i, with D_i of insize / factor^i columns. D is all D_i side by side, U all U_i, one behind the
    other. All samples go through all clusters, which are small by their factor.

    The layers are parameters of the cost: it is trained with the network, as a node of its graph. `logProbabilities(x)`
    predicts.

    Shapes    x (n, insize), labels (n,) of integers, W (insize, frequent classes + clusters), b likewise or None,
              D (insize, sum of columns), U (its elements,), perhaps sampleWeight (n,) -> a scalar, (n,) with "none"
    Source    Grave, Joulin, Cisse, Grangier, Jegou 2017, arXiv:1609.04309, section 4; PyTorch's
              AdaptiveLogSoftmaxWithLoss
    Raises    ArgumentError for cutoffs that do not rise, or are not below the number of classes; ShapeError for x of
              another size; DataError naming a label that is no class, and its position

    >>> cost = AdaptiveSoftmax(64, 10000, cutoffs=(100, 1000))
    >>> cost.W.shape, cost.D.shape, sum(p.size for p in cost.params.values())
    ((64, 102), (64, 20), 58208)
    """

    indices = ("labels",)
    needsFloats = True

    def __init__(
        self,
        insize: Count,
        classes: Count,
        cutoffs: Counts,
        factor: Count = 4,
        useBias: Flag = False,
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(name, reduction)
        ends = [*cutoffs, classes]
        if len(ends) < 2 or any(a >= b for a, b in zip(ends, ends[1:])):
            raise ArgumentError(
                f"{type(self).__name__}: wanted cutoffs that rise, below {classes}, got {tuple(cutoffs)}"
            )
        self.cutoffs, self.classes = tuple(cutoffs), classes
        self.sizes = [(insize // factor ** (i + 1), ends[i + 1] - ends[i]) for i in range(len(cutoffs))]
        if not self.sizes[-1][0]:
            raise ArgumentError(
                f"{type(self).__name__}: wanted at least {factor}^{len(cutoffs)} features for {len(cutoffs)} cutoffs, "
                f"got {insize}; give fewer cutoffs, or a smaller factor"
            )
        head, columns = ends[0] + len(cutoffs), sum(size for size, _ in self.sizes)
        self.W = Param((insize, head), initial.weights(None, insize, head, 1.0))
        self.b = Param((head,)) if useBias else None
        self.D = Param((insize, columns), initial.weights(None, insize, columns, 1.0))
        self.U = Param((sum(a * b for a, b in self.sizes),), partial(clusterWeights, self.sizes))

    def dataShapeFrom(self, x, labels, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, x, labels)

    def termShape(self, x, labels):
        need(len(x) == 2 and x[1] == self.W.shape[0], ("n", self.W.shape[0]), x)
        need(labels == x[:1], "a label for each sample", labels)
        return labels

    def updateData(self, x, labels, sampleWeight=None, W=None, b=None, D=None, U=None):
        index = checkedIndex(labels, self.classes)
        head, *tails = self.logs(x, W, b, D, U)
        cluster = np.zeros_like(index)
        for cutoff in self.cutoffs:
            cluster = cluster + (index >= cutoff)
        total = ofClass(head, np.where(cluster > 0, self.cutoffs[0] - 1 + cluster, index))
        for i, (logs, cutoff) in enumerate(zip(tails, self.cutoffs)):
            total = total + ofClass(logs, np.where(np.equal(cluster, i + 1), index - cutoff, -1))
        return self.reduced(-total, sampleWeight).astype(x.dtype)

    def logs(self, x, W, b, D, U):
        """The logarithms of h, and of q of each cluster."""
        z = widen(x)
        head, columns = z @ widen(W).astype(z.dtype), z @ widen(D).astype(z.dtype)
        results, first, start = [logSoftmax(head if b is None else head + widen(b).astype(z.dtype), 1)], 0, 0
        for size, count in self.sizes:
            up = widen(U)[start : start + size * count].reshape(size, count).astype(z.dtype)
            results.append(logSoftmax(columns[:, first : first + size] @ up, 1))
            first, start = first + size, start + size * count
        return results

    def logProbabilities(self, x):
        """Return ln p of every class, (n, classes), for an array x (n, insize)."""
        params = [None if p is None else p.data for p in (self.W, self.b, self.D, self.U)]
        head, *tails = self.logs(x, *params)
        first = self.cutoffs[0]
        parts = [logs + head[:, first + i : first + i + 1] for i, logs in enumerate(tails)]
        return np.concatenate([head[:, :first], *parts], axis=1).astype(x.dtype)

    def sample(self, rng, x, labels, *more):
        return [rng.standard_normal(x), rng.integers(0, self.classes, labels), *map(rng.random, more)]

    def flopsFrom(self, x, *others):
        return 2 * x[0] * (self.W.size + self.D.size + self.U.size)

    @classmethod
    def examples(cls):
        yield cls(4, 6, (2,), factor=2), [(5, 4), (5,)]
        yield cls(8, 9, (2, 5), factor=2, useBias=True, reduction="sum"), [(4, 8), (4,), (4,)]
        yield cls(4, 5, [1, 2], factor=2, reduction="none"), [(6, 4), (6,)]


def clusterWeights(sizes, rng, shape):
    """Initial values of U: each U_i uniform within 1 / sqrt(its rows)."""
    parts = [rng.uniform(-1, 1, a * b) / math.sqrt(a) for a, b in sizes]
    return np.concatenate(parts).reshape(shape)
