"""Suppression: of boxes that overlap, those with the highest scores."""

import numpy as np

from puregraph.arguments import Flag
from puregraph.base.dtype import needFloats
from puregraph.core.shape import product
from puregraph.errors import need
from puregraph.module import Module


class NonMaxSuppression(Module):
    """Rows (sample, class, box): of each class the boxes by falling score, but for those that overlap with one before

    Two boxes overlap where the area that they share is more than `threshold` of what both cover. Boxes are two opposite
    corners (y, x, y, x), or with `fromCenter` (x, y, width, height). At most `most` boxes of a class are given, of
    scores above `least`; how many depends on the data.

    Shapes    boxes (n, b, 4), scores (n, c, b), most, threshold, least of one element -> (count, 3) integers
    Source    ONNX operator NonMaxSuppression
    Raises    ShapeError for other shapes
    """

    reads = ()
    isDiscrete = True
    indices = ("most",)

    def __init__(self, fromCenter: Flag = False, name=None):
        super().__init__(name)
        self.fromCenter = fromCenter

    def dataShapeFrom(self, boxes, scores, most=None, threshold=None, least=None):
        need(len(boxes) == 3 and boxes[2] == 4, "boxes (n, b, 4)", boxes)
        need(len(scores) == 3 and scores[0] == boxes[0] and scores[2] == boxes[1], f"scores for boxes {boxes}", scores)
        for given in (most, threshold, least):
            need(given is None or product(given) == 1, "limits of one element", given)
        return (None, 3)

    def dataTypeFrom(self, boxes, scores, most=None, threshold=None, least=None):
        needFloats([("boxes", boxes), ("scores", scores)])
        return np.dtype(np.int64)

    def updateData(self, boxes, scores, most=None, threshold=None, least=None):
        most = 0 if most is None else int(most.reshape(()))
        threshold = 0.0 if threshold is None else float(threshold.reshape(()))
        least = -np.inf if least is None else float(least.reshape(()))
        low, high = self.corners(boxes)
        found = [
            (sample, kind, box)
            for sample in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in chosen(low[sample], high[sample], scores[sample, kind], most, threshold, least)
        ]
        return np.array(found, np.int64).reshape(-1, 3)

    def corners(self, boxes):
        """The lower and the upper corner of each box."""
        a, b = boxes[..., :2], boxes[..., 2:]
        if self.fromCenter:
            return a - b / 2, a + b / 2
        return np.minimum(a, b), np.maximum(a, b)

    def sample(self, rng, boxes, scores, *rest):
        return [rng.random(boxes), rng.random(scores), *(np.full(s, x) for x, s in zip((2, 0.5, 0.1), rest))]

    @classmethod
    def examples(cls):
        yield cls(), [(1, 4, 4), (1, 2, 4), (), (), ()]
        yield cls(fromCenter=True), [(2, 3, 4), (2, 1, 3), (1,), (1,)]


def chosen(low, high, scores, most, threshold, least):
    """The boxes of one class that are kept, by falling score."""
    areas = (high - low).prod(-1)
    left = [box for box in np.argsort(-scores, kind="stable").tolist() if scores[box] > least]
    kept = []
    while left and len(kept) < most:
        box, *left = left
        kept.append(box)
        shared = np.maximum(np.minimum(high[left], high[box]) - np.maximum(low[left], low[box]), 0).prod(-1)
        covered = areas[left] + areas[box] - shared
        isNear = shared > threshold * covered
        left = [other for other, near in zip(left, isNear) if not near]
    return kept
