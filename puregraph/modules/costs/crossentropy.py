"""CrossEntropy: softmax and negative log-likelihood in one, stable for any logits."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Argument, Fraction, Whole
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.modules.costs.classrows import atLabels, ofLabels
from puregraph.modules.costs.classweights import norm
from puregraph.modules.costs.cost import REDUCTION, alongSamples, needWeights
from puregraph.modules.costs.nll import NLL
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.reference import takeClass
from puregraph.ops.reduction.entropy import entropyGrad
from puregraph.ops.reduction.reference import total as summed

AXES = Annotated[
    int,
    Argument(
        "1, or -1 where the classes are on the last axis",
        lambda v: isinstance(v, int) and v in (1, -1) and v is not True,
    ),
]
ONEHOT = "a label for each position, not one-hot"
PROBABILITIES = "SoftCrossEntropy takes probabilities"


class CrossEntropy(NLL):
    """cost = sum_i l_i / sum_i w[label_i],   l_i = -(1 - s) w[label_i] ln p[i, label_i] - s / c sum_k w_k ln p[i, k]

    p = softmax(x) over the c classes, on axis 1, or on the last one with `axis` -1; i runs over batch and spatial
    positions, except those with label `ignoreIndex` or a class of weight 0, so that the mean over a data set does not
    depend on how it is cut into batches; w are the class `weights`, 1 by default; s is the `smoothing`, the fraction of
    each label that is spread evenly over all classes. If no position counts, cost and gradient are 0. With a
    `sampleWeight` v each l_i is multiplied by v of its sample, and the divisor does not change. With `reduction` "sum"
    nothing is divided, with "none" the cost is every l_i, 0 where the position is left out.

    `weights` is a weight for each class, or a dict from every class to its weight. No label is left out unless
    `ignoreIndex` says which, such as -1 or, in data made for PyTorch, -100. float16 is computed in float32. The
    probabilities are kept, so that the gradient takes no second softmax; compiled for a GPU it takes one, which costs
    less there than reading them.

    Shapes    x (n, c, *spatial), or (n, *spatial, c) with axis -1, labels (n, *spatial) of integers, perhaps
              sampleWeight (n,) -> a scalar, or as labels with "none"
    Source    Bishop 2006, Pattern Recognition and Machine Learning, eq. 4.108; Szegedy et al. 2015, arXiv:1512.00567,
              section 7 (smoothing)
    Raises    ShapeError if labels do not fit x, or weights the classes; ArgumentError for weights that cannot be meant;
              DataError naming a label that is no class, and its position
    """

    reads: tuple[str, ...] = ("sampleWeight", "weights", "p", "index")
    hidden: tuple[str, ...] = ("p", "index")
    takes = "scores"
    flopsPerElement = 5

    def __init__(
        self,
        weights=None,
        ignoreIndex: Whole | None = None,
        smoothing: Fraction = 0.0,
        axis: AXES = 1,
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(weights, ignoreIndex, name, reduction)
        self.smoothing, self.axis = smoothing, axis

    def dataShapeFrom(self, x, labels, sampleWeight=None):
        need(len(x) >= 2, "(n, classes, ...)", x)
        second, last = x[:1] + x[2:], x[:-1]
        wanted, other = (second, last) if self.axis == 1 else (last, second)
        where = f"the classes are on axis {self.axis}"
        need(labels == wanted, f"labels of shape {show(wanted)}", labels, f"{where}; {self.hint(x, labels, other)}")
        classes = x[self.axis]
        need(classes != 0, "at least one class", x)
        if self.weights is not None:
            need(classes == self.weights.size, f"{self.weights.size} classes, as many as weights", x)
        needWeights(sampleWeight, x)
        return labels if self.reduction == "none" else ()

    def hint(self, x, labels, other):
        """A hint for labels that do not fit x; `other` is the label shape that would fit with the classes in the other
        axis."""
        if labels == x:
            return f"{ONEHOT}: give target.argmax(axis={self.axis}); {PROBABILITIES}"
        if labels[-1:] == (1,) and len(labels) == len(x):
            return "give target[..., 0]"
        if labels != other:
            return ONEHOT
        if self.axis == -1:
            return "axis=1 takes them from there"
        order = (0, len(x) - 1, *range(1, len(x) - 1))
        return f"Transpose({order}) behind the network brings them there from the last axis, axis=-1 takes them from it"

    def hiddenShapeFrom(self, x, labels, sampleWeight=None):
        return [x, labels]

    def hiddenTypeFrom(self, x, labels, sampleWeight=None):
        return [x, np.dtype(np.int64)]

    def updateData(self, x, labels, sampleWeight=None, weights=None):
        index = classIndex(labels, x.shape[self.axis], self.ignoreIndex)
        z = self.second(widen(x))
        share, smooth = self.shares(index, weights, z)
        count = norm(share) if self.reduction == "mean" else 1
        if sampleWeight is not None:
            share, smooth = share * alongSamples(sampleWeight, share), smooth * alongSamples(sampleWeight, smooth)
        cost, p = self.costsOf(z, index, share, smooth, self.reduction != "none")
        return (cost / count).astype(x.dtype), self.asGiven(p).astype(x.dtype), index

    def costsOf(self, z, index, share, smooth, isSum=False):
        """The cost of each position, or their sum, and the probabilities."""
        z = z - z.max(axis=1, keepdims=True)
        e = np.exp(z)
        total = summed(e, 1, keepdims=True)
        log = np.log(total)
        cost = share * (log[:, 0] - takeClass(z, index))
        cost = cost.sum() if isSum else cost
        if self.smoothing:
            spread = smooth * (log - z)
            cost = (1 - self.smoothing) * cost + (spread.sum() if isSum else spread.sum(axis=1))
        return cost, e / total

    def updateGrad(self, grad, x, labels, *others, needs):
        weight, weights = [None, *others[:-3]][-2:]  # sampleWeight may be missing
        p, index = self.second(widen(others[-2])), others[-1]
        share, smooth = self.shares(index, weights, p)
        scale = widen(grad) / norm(share) if self.reduction == "mean" else widen(grad)
        if self.reduction == "none":
            share, smooth, scale = (
                share * scale,
                smooth * scale[:, None],
                np.ones_like(scale, shape=(1,)).reshape(()),
            )  # CuPy takes shape=() for none
        ofWeight = None
        if weight is not None:
            if needs[2]:
                ofWeight = self.weightGrad(p, self.targets(share, smooth, index, p), scale).astype(weight.dtype)
            share, smooth = share * alongSamples(weight, share), smooth * alongSamples(weight, smooth)
        slope = self.slopeOf(p, index, share, smooth, scale)
        return (self.asGiven(slope).astype(x.dtype), None, ofWeight, None)[: len(needs)]

    def slopeOf(self, p, index, share, smooth, scale):
        """The gradient in the scores."""
        if not self.smoothing:
            return entropyGrad(p, share, index, scale)
        target = self.targets(share, smooth, index, p)
        return (p * target.sum(axis=1, keepdims=True) - target) * scale

    def second(self, x):
        """Return a view with the classes on axis 1."""
        return np.moveaxis(x, -1, 1) if self.axis == -1 and x.ndim > 2 else x

    def asGiven(self, x):
        """Return a view with the classes moved from axis 1 back to `axis`."""
        return np.moveaxis(x, 1, -1) if self.axis == -1 and x.ndim > 2 else x

    def targets(self, share, smooth, index, p):
        """Return the target of every class at every position, times its weight."""
        return (1 - self.smoothing) * atLabels(share, index, p.shape[1]) + smooth

    def weightGrad(self, p, target, scale):
        """Return the gradient of each sample's weight, the cost of the sample; p = 0 counts as the smallest float."""
        log = np.log(np.maximum(p, np.finfo(p.dtype).tiny))
        return -(target * log).sum(axis=tuple(range(1, p.ndim))) * scale

    def shares(self, index, weights, like):
        """w[label] of each position, and s / c w for each class; 0 where the position is ignored."""
        if weights is None:
            counts = (index >= 0).astype(like.dtype)
            return counts, self.smoothing / like.shape[1] * counts[:, None]
        weights = weights.astype(like.dtype)
        share = ofLabels(weights, index)
        smoothed = self.smoothing / like.shape[1] * (share > 0).astype(like.dtype)[:, None]
        return share, smoothed * weights.reshape(-1, *(1,) * (like.ndim - 2))

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(ignoreIndex=-1), [(2, 4, 3, 2), (2, 3, 2)]
        yield cls(weights={0: 0.5, 1: 2.0}), [(5, 2), (5,)]
        yield cls(weights=(0.5, 2.0, 1.0), ignoreIndex=-100), [(5, 3, 2), (5, 2)]
        yield cls(smoothing=0.1), [(4, 3), (4,)]
        yield cls(weights=[1.0, 0.25], ignoreIndex=1, smoothing=0.3), [(6, 2, 2), (6, 2)]
        yield cls(), [(4, 3), (4,), (4,)]
        yield cls(axis=-1), [(2, 3, 2, 4), (2, 3, 2)]
        yield cls(reduction="sum"), [(4, 3), (4,), (4,)]
        yield cls(weights=[1.0, 0.25], ignoreIndex=1, smoothing=0.3, reduction="none"), [(6, 2, 2), (6, 2), (6,)]
        yield cls(weights=[1.0, 0.25], ignoreIndex=1, smoothing=0.3, axis=-1), [(4, 3, 2), (4, 3), (4,)]
        yield cls(weights=[1.0, 0.25], ignoreIndex=1, smoothing=0.3), [(6, 2, 2), (6, 2), (6,)]
