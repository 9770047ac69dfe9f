"""Costs of regions: how far predicted regions overlap with those that are wanted."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import NotNegative, choice
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.modules.costs.classrows import atLabels
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.ops.formula import Formula
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.reduction.reference import softmax

SIGMOID = Formula("sigmoid(x)").numpy(("x",))
POSITIVE = Formula("relu(x)").numpy(("x",))


class Tversky(Cost):
    """cost = mean of 1 - (h + s) / (h + alpha f + beta m + s) over hits h, false alarms f and misses m

    With p the prediction and t the target, h = sum p t, f = sum p (1 - t) and m = sum (1 - p) t over all positions of a
    class: over the axes from 2 on, or over axis 1 if it is the last. `of` is how p is computed from x: its "sigmoid",
    its "softmax" over axis 1, or x itself, "probabilities". s is `smooth`, so that an empty region that is predicted to
    be empty costs nothing. Targets are numbers from 0 to 1. A beta above alpha favours recall.

    Shapes    x and target (n, c, *spatial) or (n, size), perhaps sampleWeight (n,) -> a scalar, or (n, c) or (n,) with
              "none"
    Source    Salehi, Erdogmus, Gholipour 2017, arXiv:1706.05721, eq. 3
    Raises    ShapeError for a target of another shape; ArgumentError for another kind of prediction
    """

    def __init__(
        self,
        alpha: NotNegative = 0.3,
        beta: NotNegative = 0.7,
        smooth: NotNegative = 1.0,
        of: Annotated[str, choice("sigmoid", "softmax", "probabilities")] = "sigmoid",
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(name, reduction)
        self.alpha, self.beta, self.smooth, self.predicts = alpha, beta, smooth, of

    @property
    def takes(self):
        """The kind of scores that x is, for warnings about the network's last activation."""
        return {"sigmoid": "logits", "softmax": "scores"}.get(self.predicts, "")

    axis = 1

    def termShape(self, x, target):
        need(len(x) >= 2 and x[1] != 0, "(n, classes, ...) or (n, size), of at least one class", x)
        super().termShape(x, target)
        return x[:2] if len(x) > 2 else x[:1]

    def terms(self, x, target):
        p = SIGMOID(x) if self.predicts == "sigmoid" else softmax(x, 1) if self.predicts == "softmax" else x
        axes = tuple(range(2, x.ndim)) or 1
        hits, predicted, wanted = ((y).sum(axis=axes) for y in (p * target, p, target))
        size = hits + self.alpha * (predicted - hits) + self.beta * (wanted - hits) + self.smooth
        return 1 - (hits + self.smooth) / size

    def sample(self, rng, x, target, *more):
        p = rng.random(x) * 0.8 + 0.1 if self.predicts == "probabilities" else rng.standard_normal(x)
        return [p, rng.integers(0, 2, target).astype(float), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 2, 2), (4, 3, 2, 2)]
        yield cls(of="softmax", smooth=0.1), [(4, 3, 5), (4, 3, 5), (4,)]
        yield cls(of="probabilities", reduction="none"), [(4, 3), (4, 3)]


class Dice(Tversky):
    """cost = mean of 1 - (2 sum p t + s) / (sum p + sum t + s) over samples and classes

    The sums are over the positions of a class: over the axes from 2 on, or over axis 1 if it is the last. `of` is how
    the prediction p is computed from x: its "sigmoid", its "softmax" over axis 1, or x itself, "probabilities"; s is
    `smooth`.

    Shapes    x and target (n, c, *spatial) or (n, size), perhaps sampleWeight (n,) -> a scalar, or (n, c) or (n,) with
              "none"
    Source    Milletari, Navab, Ahmadi 2016, arXiv:1606.04797; Dice 1945, Ecology 26
    Raises    ShapeError for a target of another shape; ArgumentError for another kind of prediction
    """

    def __init__(
        self,
        smooth: NotNegative = 1.0,
        of: Annotated[str, choice("sigmoid", "softmax", "probabilities")] = "sigmoid",
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(0.5, 0.5, 0.5 * smooth, of, name, reduction)


class LovaszHinge(Cost):
    """cost = mean over samples of the Lovasz extension of 1 - intersection / union, at the margins 1 - (2 t - 1) x

    A convex bound of the Jaccard loss of one region: x are the logits of all positions of a sample, t is 1 inside.

    Shapes    x and target (n, ...) of one shape, the target integers 0 and 1, perhaps sampleWeight (n,) -> a scalar, or
              (n,) with "none"
    Source    Berman, Rannen Triki, Blaschko 2018, arXiv:1705.08790, eq. 5 and 9
    Raises    ShapeError for a target of another shape
    """

    indices = ("target",)
    needsFloats = True
    takes = "logits"

    def termShape(self, x, target):
        need(len(x) >= 2, "(n, ...) with several positions", x)
        super().termShape(x, target)
        return x[:1]

    def updateData(self, x, target, sampleWeight=None):
        z = widen(x)
        z = z.reshape(z.shape[0], z.size // max(z.shape[0], 1))
        isInside = target.reshape(z.shape).astype(z.dtype)
        return self.reduced(extension(POSITIVE(1 - (2 * isInside - 1) * z), isInside), sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.integers(0, 2, target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 5), (4, 5)]
        yield cls(reduction="none"), [(3, 2, 3), (3, 2, 3), (3,)]


class Lovasz(LovaszHinge):
    """cost = mean over samples of the mean over their classes of the Lovasz extension of 1 - intersection / union

    For each class that a sample has the errors are 1 - p at its positions, and p at all others, with p = softmax(x)
    over the classes, on axis 1.

    Shapes    x (n, c, *spatial), labels (n, *spatial) of integers, perhaps sampleWeight (n,) -> a scalar, or (n,) with
              "none"
    Source    Berman, Rannen Triki, Blaschko 2018, arXiv:1705.08790, eq. 11, of each image
    Raises    ShapeError if labels do not fit x; DataError naming a label that is no class, and its position
    """

    takes = "scores"
    axis = 1

    def termShape(self, x, target):
        need(len(x) >= 3, "(n, classes, ...) with several positions", x)
        need(x[1] != 0, "at least one class", x)
        need(target == x[:1] + x[2:], f"labels of shape {show(x[:1] + x[2:])}", target, "a label for each position")
        return x[:1]

    def updateData(self, x, target, sampleWeight=None):
        z, index = widen(x), classIndex(target, x.shape[1])
        n, classes = x.shape[:2]
        p = softmax(z, 1).reshape(n, classes, z.size // max(n * classes, 1))
        isInside = atLabels(np.ones_like(z, shape=index.shape), index, classes).reshape(p.shape)
        losses = extension(np.abs(isInside - p), isInside)
        isThere = (isInside.sum(axis=-1) > 0).astype(z.dtype)
        terms = (losses * isThere).sum(axis=1) / np.maximum(isThere.sum(axis=1), 1)
        return self.reduced(terms, sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.integers(0, x[1], target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5), (4, 5)]
        yield cls(reduction="none"), [(3, 2, 2, 2), (3, 2, 2), (3,)]


def extension(errors, isInside):
    """Return the Lovasz extension of the Jaccard loss at errors along the last axis; `isInside` are the targets."""
    order = np.argsort(-errors, axis=-1)
    isInside = np.take_along_axis(isInside, order, axis=-1)
    wanted = isInside.sum(axis=-1, keepdims=True)
    kept = wanted - np.cumsum(isInside, axis=-1)
    union = wanted + np.cumsum(1 - isInside, axis=-1)
    jaccard = 1 - kept / np.maximum(union, 1)
    steps = np.concatenate([jaccard[..., :1], jaccard[..., 1:] - jaccard[..., :-1]], axis=-1)
    return (np.take_along_axis(errors, order, axis=-1) * steps).sum(axis=-1)
