"""LinearCrossEntropy: a linear layer and its cross-entropy, without the scores of all positions at once."""

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, Flag, Fraction, Whole
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.core.param import Param
from puregraph.modules.costs.classrows import checkedIndex
from puregraph.modules.costs.classweights import norm
from puregraph.modules.costs.cost import REDUCTION, needWeights
from puregraph.modules.costs.crossentropy import CrossEntropy
from puregraph.ops.reduction.reference import total


class LinearCrossEntropy(CrossEntropy):
    """cost = CrossEntropy(x W + b, labels), computed for 1 / `blocks` of the positions at a time

    The scores, cost and gradient of a block of positions are computed and used before the next block, so that memory
    holds the scores of only one. In trainMode the gradients are computed with the cost, in three products as by Linear
    and CrossEntropy; in evalMode, or with `reduction` "none", a backward pass computes the scores again.

    W and b are parameters of the cost: it is trained with the network, as a node of its graph. Scores for a prediction
    come from a `Linear` that has the same `W`; `transpose` takes W as the table of an Embedder. The other settings are
    those of CrossEntropy.

    Shapes    x (n, ..., insize), labels (n, ...) of integers, W (insize, classes), or (classes, insize) with
              `transpose`, b (classes,), perhaps sampleWeight (n,) -> a scalar, or as labels with "none"
    Source    Hsu et al. 2024, Liger Kernel, arXiv:2410.10989, section 3.2
    Raises    ShapeError for x of another size, or labels that do not fit it; ArgumentError for weights that cannot be
              meant; DataError naming a label that is no class, and its position

    >>> cost = LinearCrossEntropy(8, 1000, blocks=4)
    >>> cost.dataShapeFrom(("N", 8), ("N",))
    ()
    """

    reads = ("x", "labels", "sampleWeight", "weights", "W", "b", "costs", "dx", "dW", "db")
    hidden = ("costs", "dx", "dW", "db")

    def __init__(
        self,
        insize: Count,
        classes: Count,
        useBias: Flag = True,
        initscheme=None,
        transpose: Flag = False,
        blocks: Count = 16,
        weights=None,
        ignoreIndex: Whole | None = None,
        smoothing: Fraction = 0.0,
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(weights, ignoreIndex, smoothing, -1, name, reduction)
        self.insize, self.classes, self.transpose, self.blocks = insize, classes, transpose, blocks
        start = initial.weights(initscheme, insize, classes, 1.0)
        self.W = Param((classes, insize) if transpose else (insize, classes), start)
        self.b = Param((classes,)) if useBias else None

    def dataShapeFrom(self, x, labels, sampleWeight=None):
        need(len(x) >= 2 and x[-1] == self.insize, f"(n, ..., {self.insize})", x)
        need(labels == x[:-1], f"labels of shape {show(x[:-1])}", labels, "a label for each position")
        if self.weights is not None:
            need(self.weights.size == self.classes, f"{self.classes} weights, one for each class", self.weights.shape)
        needWeights(sampleWeight, x)
        return labels if self.reduction == "none" else ()

    def hiddenShapeFrom(self, x, labels, sampleWeight=None):
        return [labels, x, self.W.shape, (self.classes,)]

    def hiddenTypeFrom(self, x, *others):
        return [None if x is None else widen(np.zeros((), x)).dtype] * 4

    def updateData(self, x, labels, sampleWeight=None, weights=None, W=None, b=None):
        rows, index, share, smooth = self.flat(x, labels, weights)
        scale = 1 / norm(share) if self.reduction == "mean" else np.ones_like(rows, shape=(1,))[0]
        factor = self.factors(sampleWeight, labels, share)
        isTrained = self.isTraining and self.reduction != "none"
        costs, grads = self.inBlocks(rows, index, share, smooth, factor * scale if isTrained else None, W, b)
        if not isTrained:
            zero = np.zeros_like(rows, shape=(1,))
            grads = [np.broadcast_to(zero, shape) for shape in (rows.shape, W.shape, (self.classes,))]
        cost = (costs * factor).reshape(labels.shape) if self.reduction == "none" else (costs * factor).sum() * scale
        return cost.astype(x.dtype), costs.reshape(labels.shape), grads[0].reshape(x.shape), *grads[1:]

    def updateGrad(self, grad, x, labels, *others, needs):
        costs, *grads = others[-4:]
        sampleWeight, weights, W, b = [None, *others[:-5]][-4:]
        rows, index, share, smooth = self.flat(x, labels, weights)
        seed = widen(grad)
        if self.reduction == "mean":
            seed = seed / norm(share)
        factor = self.factors(sampleWeight, labels, share)
        if not self.isTraining or self.reduction == "none":
            _, grads = self.inBlocks(rows, index, share, smooth, factor * seed.reshape(-1), W, b)
        else:
            grads = [g * widen(grad) for g in grads]
        dx, dW, db = grads
        ofWeight = None
        if sampleWeight is not None:
            ofWeight = (costs * seed).sum(axis=tuple(range(1, labels.ndim))).astype(sampleWeight.dtype)
        slopes = (dx.reshape(x.shape).astype(x.dtype), None, ofWeight)[: len(needs) - 3]
        return *slopes, None, dW.astype(W.dtype), None if b is None else db.astype(b.dtype)

    def flat(self, x, labels, weights):
        """Return x with a row for each position, the classes of labels, and the `shares` of positions and classes."""
        rows = widen(x).reshape(-1, self.insize)
        index = checkedIndex(labels.reshape(-1), self.classes, self.ignoreIndex)
        like = np.broadcast_to(rows[:, :1], (rows.shape[0], self.classes))
        return rows, index, *self.shares(index, weights, like)

    def factors(self, sampleWeight, labels, share):
        """Return the weight of each position, that of its sample."""
        if sampleWeight is None:
            return np.ones_like(share)
        of = widen(sampleWeight).reshape(-1, *(1,) * (labels.ndim - 1))
        return np.broadcast_to(of, labels.shape).reshape(-1).astype(share.dtype)

    def inBlocks(self, x, index, share, smooth, seed, W, b):
        """Return the cost of each position, and the gradients of x, W and b by a `seed` for each position, or None."""
        matrix = self.oriented(widen(W).astype(x.dtype))
        size = max(-(-x.shape[0] // self.blocks), 1)
        costs, slopes, dW, db = [], [], None, None
        for start in range(0, max(x.shape[0], 1), size):
            part = slice(start, start + size)
            z = x[part] @ matrix
            z = z if b is None else z + b.astype(x.dtype)
            of = share[part], smooth[part]
            cost, p = self.costsOf(z, index[part], *of)
            costs.append(cost)
            if seed is None:
                continue
            s = seed[part]
            slope = self.slopeOf(p, index[part], of[0] * s, of[1] * s[:, None], np.ones_like(s, shape=(1,))[0])
            slopes.append(slope @ matrix.T)
            left, right = (slope, x[part]) if self.transpose else (x[part], slope)
            dW = left.T @ right if dW is None else dW + left.T @ right
            db = total(slope, 0) if db is None else db + total(slope, 0)
        return np.concatenate(costs), [np.concatenate(slopes), dW, db] if slopes else None

    def oriented(self, W):
        """W as (insize, classes)."""
        return W.T if self.transpose else W

    def sample(self, rng, x, labels, *more):
        chosen = rng.integers(0, self.classes, labels)
        if self.ignoreIndex is not None:
            chosen = np.where(rng.random(labels) < 0.2, self.ignoreIndex, chosen)
        return [rng.standard_normal(x), chosen, *map(rng.random, more)]

    def flopsFrom(self, x, *others):
        return (6 if self.isTraining else 2) * x[0] * self.insize * self.classes

    @classmethod
    def examples(cls):
        yield cls(3, 4, blocks=2), [(5, 3), (5,)]
        yield cls(3, 4, transpose=True, blocks=3), [(2, 4, 3), (2, 4)]
        yield cls(2, 3, useBias=False, ignoreIndex=-1, smoothing=0.1, reduction="sum"), [(5, 2), (5,), (5,)]
        yield cls(2, 3, weights=[0.5, 1.0, 2.0], blocks=2, reduction="none"), [(3, 2, 2), (3, 2), (3,)]
