"""ArcFace: a linear classifier of angles, with a margin between them."""

import math

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, NotNegative
from puregraph.core.base.widen import widen
from puregraph.core.errors import need
from puregraph.core.param import Param
from puregraph.modules.costs.classrows import atLabels, checkedIndex, ofClass
from puregraph.modules.costs.cost import REDUCTION, Cost
from puregraph.modules.costs.infonce import SQUARE_EPSILON
from puregraph.ops.reduction.reference import logSoftmax


class ArcFace(Cost):
    """cost = mean of the cross-entropy of scale cos(a_k), the angle a_t of the label's class enlarged by the margin

    a_k is the angle between x and column k of W. Where a_t + margin exceeds pi, scale (cos a_t - margin sin margin)
    replaces it, so that the score falls with the angle. The columns are parameters of the cost: it is to be trained
    with the network, as a node of its graph.

    Shapes    x (n, insize), labels (n,) of integers, W (insize, classes), perhaps sampleWeight (n,) -> a scalar, or as
              labels with "none"
    Source    Deng, Guo, Xue, Zafeiriou 2019, arXiv:1801.07698, eq. 3
    Raises    ShapeError for x of another size; DataError naming a label that is no class, and its position
    """

    indices = ("labels",)
    needsFloats = True

    def __init__(
        self,
        insize: Count,
        classes: Count,
        margin: NotNegative = 0.5,
        scale: NotNegative = 64.0,
        initscheme="xavier",
        name=None,
        reduction: REDUCTION = "mean",
    ):
        super().__init__(name, reduction)
        self.margin, self.scale = margin, scale
        self.W = Param((insize, classes), initial.weights(initscheme, insize, classes, 1.0))

    def dataShapeFrom(self, x, labels, sampleWeight=None):
        return self.shapeOfCost(sampleWeight, x, labels)

    def termShape(self, x, labels):
        need(len(x) == 2 and x[1] == self.W.shape[0], ("n", self.W.shape[0]), x)
        need(labels == x[:1], "a label for each sample", labels)
        return labels

    def updateData(self, x, labels, sampleWeight=None, W=None):
        z, index = widen(x), checkedIndex(labels, W.shape[1])
        weights = widen(W).astype(z.dtype)
        units = z / np.sqrt(np.maximum((z * z).sum(axis=1, keepdims=True), SQUARE_EPSILON**2))
        cosines = units @ (
            weights / np.sqrt(np.maximum((weights * weights).sum(axis=0, keepdims=True), SQUARE_EPSILON**2))
        )
        right = ofClass(cosines, index)
        sines = np.sqrt(np.maximum(1 - right * right, SQUARE_EPSILON))
        m = self.margin
        wider = right * math.cos(m) - sines * math.sin(m)
        wider = np.where(right > -math.cos(m), wider, right - m * math.sin(m))
        scores = self.scale * (cosines + atLabels(wider - right, index, W.shape[1]))
        return self.reduced(-ofClass(logSoftmax(scores, 1), index), sampleWeight).astype(x.dtype)

    def sample(self, rng, x, labels, *more):
        return [rng.standard_normal(x), rng.integers(0, self.W.shape[1], labels), *map(rng.random, more)]

    @classmethod
    def examples(cls):
        yield cls(3, 4, scale=4.0), [(5, 3), (5,)]
        yield cls(2, 3, margin=0.2, scale=4.0, reduction="none"), [(5, 2), (5,), (5,)]
