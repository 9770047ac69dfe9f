"""Margins of several scores: costs that ask for a distance between the right classes and all others."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Argument, Number, choice
from puregraph.core.base.widen import widen
from puregraph.core.errors import need, show
from puregraph.core.tracer import arrayLike
from puregraph.modules.costs.classrows import atLabels, ofLabels
from puregraph.modules.costs.classweights import weightState
from puregraph.modules.costs.cost import REDUCTION, Cost, asFloats
from puregraph.ops.formula import Formula
from puregraph.ops.gather.labels import classIndex
from puregraph.ops.gather.reference import takeClass

Exponent = Annotated[
    int, Argument("1 or 2", lambda value: isinstance(value, int) and value in (1, 2) and value is not True)
]
POSITIVE = Formula("relu(x)").numpy(("x",))
ENTROPY = Formula("t * softplus(-x) + (1 - t) * softplus(x)").numpy(("x", "t"))


class SVM(Cost):
    """cost = mean over samples and classes of max(0, 1 - s x)^p, with s = 1 for the label's class and -1 for all others

    One support-vector machine for each class against the rest: `mode` "l1" has p = 1, "l2" has p = 2.

    Shapes    x (n, c, *spatial), labels (n, *spatial) of integers, perhaps sampleWeight (n,) -> a scalar, or as x with
              "none"
    Source    PuzzleLib's SVM; Cortes, Vapnik 1995, Support-Vector Networks, Machine Learning 20
    Raises    ShapeError if labels do not fit x; DataError naming a label that is no class, and its position
    """

    indices = ("target",)
    needsFloats = True
    takes = "scores"
    axis = 1

    def __init__(self, mode: Annotated[str, choice("l1", "l2")] = "l1", name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.mode = mode

    def termShape(self, x, target):
        need(len(x) >= 2, "(n, classes, ...)", x)
        need(x[1] != 0, "at least one class", x)
        need(target == x[:1] + x[2:], f"labels of shape {show(x[:1] + x[2:])}", target, "a label for each position")
        return x

    def updateData(self, x, target, sampleWeight=None):
        z, index = widen(x), classIndex(target, x.shape[1])
        signs = atLabels(np.full_like(z, 2, shape=index.shape), index, x.shape[1]) - 1
        terms = POSITIVE(1 - signs * z)
        return self.reduced(terms * terms if self.mode == "l2" else terms, sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.integers(0, x[1], target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls("l2"), [(4, 3, 2), (4, 2), (4,)]
        yield cls(reduction="none"), [(4, 3), (4,)]


class MultiMargin(SVM):
    """cost = mean over samples of w[t] / c sum over k other than t of max(0, margin - x[t] + x[k])^p, t the label

    The score of the right class is to be larger than every other one by the margin. `weights` are those of the classes;
    they do not divide the mean.

    Shapes    x (n, c), labels (n,) of integers, perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    Crammer, Singer 2001, On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines
    Raises    ShapeError if labels do not fit x, or weights the classes; DataError naming a label that is no class
    """

    def __init__(self, p: Exponent = 1, margin: Number = 1.0, weights=None, name=None, reduction: REDUCTION = "mean"):
        super().__init__("l1", name, reduction)
        self.p, self.margin, self.weights = p, margin, weightState(weights, self)

    def termShape(self, x, target):
        need(len(x) == 2, "(n, classes)", x)
        super().termShape(x, target)
        if self.weights is not None:
            need(x[1] == self.weights.size, f"{self.weights.size} classes, as many as weights", x)
        return target

    def updateData(self, x, target, sampleWeight=None, weights=None):
        z, index = widen(x), classIndex(target, x.shape[1])
        excess = POSITIVE(self.margin - takeClass(z, index)[:, None] + z)
        powers = excess * excess if self.p == 2 else excess
        others = 1 - atLabels(np.ones_like(z, shape=index.shape), index, x.shape[1])
        terms = (powers * others).sum(axis=1) / x.shape[1]
        if weights is not None:
            terms = terms * ofLabels(weights.astype(z.dtype), index)
        return self.reduced(terms, sampleWeight).astype(x.dtype)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4,)]
        yield cls(2, 0.7, weights=(0.5, 2.0, 1.0)), [(4, 3), (4,), (4,)]
        yield cls(reduction="none"), [(4, 3), (4,)]


class MultiLabelMargin(Cost):
    """cost = mean over samples of 1 / c sum over right classes t and others k of max(0, 1 - x[t] + x[k])

    The labels of a sample are its right classes, in any order, up to the first -1.

    Shapes    x (n, c), labels (n, c) of integers, perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    Elisseeff, Weston 2001, A Kernel Method for Multi-Labelled Classification, eq. 5
    Raises    ShapeError for labels of another shape; DataError naming a label that is no class, and its position
    """

    indices = ("target",)
    needsFloats = True
    takes = "scores"
    axis = 1

    def termShape(self, x, target):
        need(len(x) == 2, "(n, classes)", x)
        super().termShape(x, target)
        return x[:1]

    def updateData(self, x, target, sampleWeight=None):
        z, index = widen(x), classIndex(target, x.shape[1], -1)
        counts = np.cumprod((index >= 0).astype(z.dtype), axis=1)  # 0 from the first -1 on
        isClass = np.equal(index[:, :, None], arrayLike(x, np.arange(x.shape[1])))
        right = (isClass * counts[:, :, None]).sum(axis=1)
        pairs = POSITIVE(1 - z[:, :, None] + z[:, None, :])
        terms = (pairs * right[:, :, None] * np.equal(right, 0)[:, None, :]).sum(axis=(1, 2)) / max(x.shape[1], 1)
        return self.reduced(terms, sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        drawn = np.argsort(rng.random(target), axis=1)
        drawn = np.where(np.arange(x[1]) < rng.integers(0, x[1] + 1, (x[0], 1)), drawn, -1)
        return [rng.standard_normal(x), drawn, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(reduction="none"), [(5, 4), (5, 4), (5,)]


class MultiLabelSoftMargin(Cost):
    """cost = mean over samples and classes of -w_k (t_k ln p_k + (1 - t_k) ln(1 - p_k)), with p = sigmoid(x)

    Each class is a yes or no of its own, as in `BCE`; `weights` are those of the classes, on the last axis.

    Shapes    x and target (n, ..., c), perhaps sampleWeight (n,) -> a scalar, or (n, ...) with "none"
    Source    Bishop 2006, Pattern Recognition and Machine Learning, eq. 4.90, for each class
    Raises    ShapeError for a target of another shape, or weights that do not fit the classes
    """

    takes = "logits"

    def __init__(self, weights=None, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.weights = weightState(weights, self)

    def termShape(self, x, target):
        need(len(x) >= 2, "(n, ..., classes)", x)
        super().termShape(x, target)
        need(x[-1] != 0, "at least one class", x)
        if self.weights is not None:
            need(x[-1] == self.weights.size, f"{self.weights.size} classes, as many as weights", x)
        return x[:-1]

    def updateData(self, x, target, sampleWeight=None, weights=None):
        z = widen(x)
        terms = ENTROPY(z, asFloats(target, z))
        if weights is not None:
            terms = terms * weights.astype(z.dtype)
        return self.reduced(terms.sum(axis=-1) / x.shape[-1], sampleWeight).astype(x.dtype)

    def sample(self, rng, x, target, *more):
        return [rng.standard_normal(x), rng.random(target), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3)]
        yield cls(weights=(0.5, 2.0)), [(4, 3, 2), (4, 3, 2), (4,)]
        yield cls(reduction="none"), [(4, 3), (4, 3)]
