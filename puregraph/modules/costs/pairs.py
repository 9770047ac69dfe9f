"""Costs of vectors that belong together or apart: pairs, triplets and rankings."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Flag, Number, choice
from puregraph.core.errors import need, show
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.ops.formula import Formula

POSITIVE = Formula("relu(x)").numpy(("x",))
SQUARE_EPSILON = 1e-12  # added to squared lengths, so that 0 has a gradient
EPSILON = 1e-6  # added to each difference, as in PyTorch, so that a distance of 0 has a gradient


class MarginRanking(Cost):
    """cost = mean of max(0, margin - t (a - b)): a is to be larger than b where t is 1, smaller where it is -1

    Shapes    a, b and target of one shape, perhaps sampleWeight (n,) -> a scalar, or as a with "none"
    Source    Herbrich, Graepel, Obermayer 1999, Support Vector Learning for Ordinal Regression
    Raises    ShapeError for other shapes
    """

    def __init__(self, margin: Number = 0.0, name=None, reduction: REDUCTION = "mean"):
        super().__init__(name, reduction)
        self.margin = margin

    def dataShapeFrom(self, a, b, target, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, a, b, target)

    def updateData(self, a, b, target, sampleWeight=None):
        return self.cost(sampleWeight, a, b, target)

    def terms(self, a, b, target):
        return POSITIVE(self.margin - target * (a - b))

    def sample(self, rng, a, b, target, *more):
        signs = 2.0 * rng.integers(0, 2, target) - 1
        return [rng.standard_normal(a), rng.standard_normal(b), signs, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3), (4, 3)]
        yield cls(margin=0.5), [(5,), (5,), (5,), (5,)]
        yield cls(reduction="none"), [(4, 3), (4, 3), (4, 3)]


class CosineEmbedding(MarginRanking):
    """cost = mean of 1 - cos(a, b) where the target is 1, of max(0, cos(a, b) - margin) where it is -1

    Shapes    a and b (n, size), target (n,) of -1 and 1, perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    Bromley, Guyon, LeCun, Sackinger, Shah 1993, Signature Verification using a Siamese Network
    Raises    ShapeError for other shapes
    """

    def termShape(self, a, b, target):
        need(len(a) == 2, "(n, size)", a)
        need(b == a, f"a second input of shape {show(a)}", b)
        need(target == a[:1], f"a target of shape {show(a[:1])}", target, "one for each pair")
        return target

    def terms(self, a, b, target):
        lengths = ((a * a).sum(axis=1) + SQUARE_EPSILON) * ((b * b).sum(axis=1) + SQUARE_EPSILON)
        cosine = (a * b).sum(axis=1) / np.sqrt(lengths)
        return np.where(
            np.equal(target, 1), 1 - cosine, np.where(np.equal(target, -1), POSITIVE(cosine - self.margin), 0 * cosine)
        )

    def sample(self, rng, a, b, target, *more):
        signs = 2 * rng.integers(0, 2, target) - 1
        return [rng.standard_normal(a), rng.standard_normal(b), signs, *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3), (4, 3), (4,)]
        yield cls(margin=-0.5), [(5, 2), (5, 2), (5,), (5,)]
        yield cls(reduction="none"), [(4, 3), (4, 3), (4,)]


class Contrastive(CosineEmbedding):
    """cost = mean of d^2 / 2 where the target is 1, of max(0, margin - d)^2 / 2 where it is 0, with d = |a - b|

    Shapes    a and b (n, size), target (n,) of 0 and 1, perhaps sampleWeight (n,) -> a scalar, or (n,) with "none"
    Source    Hadsell, Chopra, LeCun 2006, Learning an Invariant Mapping, eq. 4, whose Y is 1 - target
    Raises    ShapeError for other shapes
    """

    def __init__(self, margin: Number = 1.0, name=None, reduction: REDUCTION = "mean"):
        super().__init__(margin, name, reduction)

    def terms(self, a, b, target):
        squares = ((a - b) ** 2).sum(axis=1)
        lacking = POSITIVE(self.margin - np.sqrt(squares + SQUARE_EPSILON))
        return 0.5 * (target * squares + (1 - target) * lacking * lacking)

    def sample(self, rng, a, b, target, *more):
        drawn = rng.integers(0, 2, target).astype(float)
        return [rng.standard_normal(a), rng.standard_normal(b), drawn, *map(rng.random, more)]


class Triplet(Cost):
    """cost = mean of max(0, d(a, p) - d(a, q) + margin), with a an anchor, p what is like it and q what is not

    `distance` d is "euclidean", "manhattan", "squared" (of the Euclidean) or "cosine" (1 - cos). With `swap` a pair
    that is too near, of p and q, counts in place of a and q.

    Shapes    anchor, positive and negative (n, ..., size), perhaps sampleWeight (n,) -> a scalar, or (n, ...) with
              "none"
    Source    Schroff, Kalenichenko, Philbin 2015, arXiv:1503.03832, eq. 3; Balntas, Riba, Ponsa, Mikolajczyk 2016,
              Learning Local Feature Descriptors with Triplets (swap)
    Raises    ShapeError for other shapes; ArgumentError for another distance
    """

    def __init__(
        self,
        margin: Number = 1.0,
        distance: Annotated[str, choice("euclidean", "manhattan", "squared", "cosine")] = "euclidean",
        swap: Flag = False,
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(name, reduction)
        self.margin, self.distance, self.swap = margin, distance, swap

    def dataShapeFrom(self, anchor, positive, negative, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, anchor, positive, negative)

    def termShape(self, anchor, positive, negative):
        need(len(anchor) >= 2, "(n, ..., size)", anchor)
        need(positive == anchor, f"vectors of shape {show(anchor)} like it", positive)
        need(negative == anchor, f"vectors of shape {show(anchor)} unlike it", negative)
        return anchor[:-1]

    def updateData(self, anchor, positive, negative, sampleWeight=None):
        return self.cost(sampleWeight, anchor, positive, negative)

    def terms(self, anchor, positive, negative):
        far = self.between(anchor, negative)
        if self.swap:
            far = np.minimum(far, self.between(positive, negative))
        return POSITIVE(self.between(anchor, positive) - far + self.margin)

    def between(self, a, b):
        """Return the distance of vectors along the last axis."""
        if self.distance == "cosine":
            lengths = ((a * a).sum(axis=-1) + SQUARE_EPSILON) * ((b * b).sum(axis=-1) + SQUARE_EPSILON)
            return 1 - (a * b).sum(axis=-1) / np.sqrt(lengths)
        d = a - b + EPSILON
        if self.distance == "manhattan":
            return np.abs(d).sum(axis=-1)
        squares = (d * d).sum(axis=-1)
        return squares if self.distance == "squared" else np.sqrt(squares)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3)] * 3
        yield cls(0.5, "cosine", swap=True), [(4, 2, 3)] * 3 + [(4,)]
        yield cls(distance="manhattan", reduction="sum"), [(4, 3)] * 3
        yield cls(distance="squared", reduction="none"), [(4, 3)] * 3
