"""Regions of images: RoiAlign, RoiPool, NonMaxSuppression."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Counts, Flag, Scalar, Size, choice
from puregraph.core.base.dtype import needFloats
from puregraph.core.base.widen import widened
from puregraph.core.errors import DataError, need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import product
from puregraph.graph.module import Module

MAX_SAMPLES = 1024  # the most points along an axis of each part


class RoiAlign(Module):
    """y[r, c, i, j] = the mean of x[which[r], c], interpolated at points in part (i, j) of region r

    A region (x, y, x, y) times `scale` is divided into `size` parts, each read at `samples` x `samples` points, or with
    0 at one point for each element. Points more than one element outside of x read 0. Mode "max" takes the largest of
    the weighted elements that points read. With `isCentred` positions are moved by half an element; otherwise a region
    has at least length one. No gradient reaches the regions.

    Shapes    x (n, c, h, w), regions (r, 4), which (r) integers -> y (r, c, *size)
    Source    ONNX operator RoiAlign; He, Gkioxari, Dollar, Girshick 2017, Mask R-CNN, arXiv:1703.06870
    Raises    ShapeError for other shapes, DataError for a sample that x does not have
    """

    reads = ("x", "regions", "which")
    indices = ("which",)

    def __init__(
        self,
        size: Counts,
        scale: Scalar = 1.0,
        samples: Size = 0,
        mode: Annotated[str, choice("avg", "max")] = "avg",
        isCentred: Flag = True,
        name=None,
    ):
        super().__init__(name)
        need(len(size) == 2, "size (height, width)", size)
        need(samples <= MAX_SAMPLES, f"samples of at most {MAX_SAMPLES}", samples)
        self.size, self.scale, self.samples, self.mode, self.isCentred = tuple(size), scale, samples, mode, isCentred

    def dataShapeFrom(self, x, regions, which):
        need(len(x) == 4 and 0 not in x[2:], "x (n, c, h, w) with an element to sample", x)
        need(len(regions) == 2 and regions[1] == 4, "regions (r, 4)", regions)
        need(which == (regions[0],), f"which of shape ({regions[0]},)", which)
        return (regions[0], x[1], *self.size)

    def dataTypeFrom(self, x, regions, which):
        return x

    def taps(self, region, sizes):
        """(indices, weights) of the elements that the points of a region read, each (h, w, points, 4)."""
        offset = 0.5 if self.isCentred else 0.0
        axes = []
        for axis, (count, n) in enumerate(zip(self.size, sizes)):
            low, high = (float(region[i]) * self.scale - offset for i in (1 - axis, 3 - axis))
            length = high - low if self.isCentred else max(high - low, 1.0)
            samples = self.samples or int(np.ceil(length / count))
            points = (np.arange(count * samples) + 0.5) / max(samples, 1)
            axes.append(axisTaps(low + length / count * points, n, count))
        (iy, wy), (ix, wx) = axes
        index = iy[:, None, :, None, :, None] * sizes[1] + ix[None, :, None, :, None, :]
        weight = wy[:, None, :, None, :, None] * wx[None, :, None, :, None, :]
        shape = (*self.size, iy.shape[1] * ix.shape[1], 4)
        return index.reshape(shape), weight.reshape(shape)

    @onHost
    def updateData(self, x, regions, which):
        wrong = [n for n in np.asarray(which).tolist() if not 0 <= n < len(x)]
        if wrong:
            raise DataError(f"which: wanted samples from 0 to {len(x) - 1}, got {wrong[0]}")
        return self.sampled(x, regions, which)

    @widened
    def sampled(self, x, regions, which):
        """Return y."""
        y = np.zeros_like(x, shape=(len(regions), x.shape[1], *self.size))
        for r, (region, n) in enumerate(zip(regions, which)):
            index, weight = self.taps(region, x.shape[2:])
            read = x[n].reshape(x.shape[1], x.shape[2] * x.shape[3])[:, index] * weight
            if self.mode == "avg":
                y[r] = read.sum((-2, -1)) / max(index.shape[2], 1)
            elif read.size:
                y[r] = read.max((-2, -1))
        return y.astype(x.dtype, copy=False)

    @onHost
    def updateGrad(self, grad, x, regions, which, y):
        return self.scattered(grad, x, regions, which), None, None

    @widened
    def scattered(self, grad, x, regions, which):
        """Return dx: each gradient added to the elements that its points have read."""
        dx = np.zeros_like(x, shape=(x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))
        if not grad.size:
            return dx.reshape(x.shape)
        channels = np.arange(x.shape[1])[:, None]
        for g, region, n in zip(grad, regions, which):
            index, weight = self.taps(region, x.shape[2:])
            if self.mode == "avg":
                part = g[..., None, None] * weight / max(index.shape[2], 1)
                at = np.broadcast_to(index, part.shape)
            else:
                flat = (*self.size, -1)
                read = (x[n].reshape(x.shape[1], x.shape[2] * x.shape[3])[:, index] * weight).reshape(len(g), *flat)
                if not read.size:
                    continue
                best = read.argmax(-1)[..., None]
                at = np.take_along_axis(np.broadcast_to(index.reshape(flat), read.shape), best, -1)
                part = g[..., None] * np.take_along_axis(np.broadcast_to(weight.reshape(flat), read.shape), best, -1)
            np.add.at(dx[n], (channels, at.reshape(len(g), -1)), part.reshape(len(g), -1))
        return dx.reshape(x.shape).astype(grad.dtype, copy=False)

    def sample(self, rng, x, regions, which):
        need(x[0], "a sample to read", x)
        low = rng.integers(0, 2, (regions[0], 2))
        corners = np.concatenate([low, low + rng.integers(1, 4, low.shape)], 1)
        return [rng.standard_normal(x), corners, rng.integers(0, x[0], which)]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(2, 2, 4, 5), (3, 4), (3,)]
        yield cls((2, 2), 0.5, 2, isCentred=False), [(1, 2, 4, 4), (2, 4), (2,)]
        yield cls((1, 2), samples=2, mode="max"), [(1, 2, 4, 4), (2, 4), (2,)]


def axisTaps(positions, n, count):
    """(index, weight), each (count, samples, 2), of the elements around positions along an axis of length n."""
    isOut = (positions < -1) | (positions > n)
    p = np.clip(positions, 0, n - 1)
    first = np.minimum(p.astype(np.int64), n - 1)
    second = np.minimum(first + 1, n - 1)
    t = np.where(first >= n - 1, 0.0, p - first)
    index = np.stack([first, second], -1).reshape(count, -1, 2)
    weight = np.where(isOut, 0.0, np.stack([1 - t, t])).T
    return index, weight.reshape(count, -1, 2)


class RoiPool(Module):
    """y[r, c, i, j] = the largest element of x[sample of r, c] in part (i, j) of region r, 0 where a part has none

    A region is (sample, x, y, x, y); its corners times `scale` are rounded, and both inside. It is divided into `size`
    parts, which share the elements on their borders. The gradient of a part goes to its first maximum, none to regions.

    Shapes    x (n, c, h, w), regions (r, 5) -> y (r, c, *size)
    Source    ONNX operator MaxRoiPool; Girshick 2015, Fast R-CNN, section 2.1
    Raises    ShapeError for other shapes, DataError for a sample that x does not have
    """

    reads = ("x", "regions")

    def __init__(self, size: Counts, scale: Scalar = 1.0, name=None):
        super().__init__(name)
        need(len(size) == 2, "size (height, width)", size)
        self.size, self.scale = tuple(size), scale

    def dataShapeFrom(self, x, regions):
        need(len(x) == 4, "x (n, c, h, w)", x)
        need(len(regions) == 2 and regions[1] == 5, "regions (r, 5)", regions)
        return (regions[0], x[1], *self.size)

    def dataTypeFrom(self, x, regions):
        return x

    def parts(self, region, sizes):
        """The slices of each part of a region, along each axis."""
        slices = []
        for low, high, count, n in zip(region[[2, 1]], region[[4, 3]], self.size, sizes):
            first, last = (rounded(np.float32(end) * np.float32(self.scale)) for end in (low, high))
            length = np.float32(max(last - first + 1, 1)) / np.float32(count)
            ends = np.arange(count + 1, dtype=np.float32) * length
            starts, stops = np.floor(ends[:-1]).astype(int) + first, np.ceil(ends[1:]).astype(int) + first
            slices.append([slice(a, max(a, b)) for a, b in np.clip(np.stack([starts, stops], 1), 0, n).tolist()])
        return slices

    def maxima(self, x, regions):
        """Return the maximum of each part, and its index in the flattened channel; 0 and -1 for an empty part."""
        y = np.zeros_like(x, shape=self.dataShapeFrom(x.shape, regions.shape))
        at = np.full(y.shape, -1)
        for r, region in enumerate(np.asarray(regions)):
            n = int(region[0])
            if not 0 <= n < len(x):
                raise DataError(f"regions: wanted samples from 0 to {len(x) - 1}, got {n}")
            rows, columns = self.parts(region, x.shape[2:])
            for i, down in enumerate(rows):
                for j, along in enumerate(columns):
                    part = x[n, :, down, along]
                    if part.size:
                        flat = part.reshape(len(part), -1)
                        best = flat.argmax(-1)
                        y[r, :, i, j] = np.take_along_axis(flat, best[:, None], 1)[:, 0]
                        below, beside = np.unravel_index(best, part.shape[1:])
                        at[r, :, i, j] = (below + down.start) * x.shape[3] + beside + along.start
        return y, at

    @onHost
    def updateData(self, x, regions):
        return self.maxima(x, regions)[0]

    @onHost
    def updateGrad(self, grad, x, regions, y):
        return self.scattered(grad, x, regions), None

    @widened
    def scattered(self, grad, x, regions):
        """Return dx: each gradient added to the maximum of its part."""
        at = self.maxima(x, regions)[1]
        dx = np.zeros_like(grad, shape=(len(x), x.shape[1], x.shape[2] * x.shape[3]))
        r, c, i, j = np.nonzero(at >= 0)
        np.add.at(dx, (np.asarray(regions)[r, 0].astype(int), c, at[r, c, i, j]), grad[r, c, i, j])
        return dx.reshape(x.shape)

    def sample(self, rng, x, regions):
        need(x[0], "a sample to read", x)
        low = rng.integers(0, 2, (regions[0], 2))
        corners = np.concatenate([low, low + rng.integers(0, 4, low.shape)], 1)
        which = rng.integers(0, x[0], (regions[0], 1))
        return [rng.standard_normal(x), np.concatenate([which, corners], 1)]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(2, 2, 4, 5), (3, 5)]
        yield cls((1, 2), 0.5), [(1, 2, 4, 4), (2, 5)]


def rounded(number):
    """Return the nearest integer; halves are rounded away from 0."""
    return int(np.copysign(np.floor(np.abs(number) + 0.5), number))


class NonMaxSuppression(Module):
    """y = rows (sample, class, box) of boxes kept: by decreasing score in a class, none overlapping an earlier one

    Boxes a and b overlap where area(a and b) > threshold area(a or b). Boxes are two opposite corners (y, x, y, x), or
    with `fromCenter` (x, y, width, height). At most `most` boxes of a class are kept, with scores above `least`; how
    many depends on the data.

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
        for limit in (most, threshold, least):
            need(limit is None or product(limit) == 1, "limits of one element", limit)
        return (None, 3)

    def dataTypeFrom(self, boxes, scores, most=None, threshold=None, least=None):
        needFloats([("boxes", boxes), ("scores", scores)])
        return np.dtype(np.int64)

    @onHost
    def updateData(self, boxes, scores, most=None, threshold=None, least=None):
        most = 0 if most is None else int(most.reshape(()))
        threshold = 0.0 if threshold is None else float(threshold.reshape(()))
        least = -np.inf if least is None else float(least.reshape(()))
        low, high = self.corners(boxes)
        kept = [
            (sample, kind, box)
            for sample in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in chosen(low[sample], high[sample], scores[sample, kind], most, threshold, least)
        ]
        return np.array(kept, np.int64).reshape(-1, 3)

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
    """Return the indices of the boxes of one class that are kept, by decreasing score."""
    areas = (high - low).prod(-1)
    left = [box for box in np.argsort(-scores, kind="stable").tolist() if scores[box] > least]
    kept: list[int] = []
    while left and len(kept) < most:
        box, *left = left
        kept.append(box)
        shared = np.maximum(np.minimum(high[left], high[box]) - np.maximum(low[left], low[box]), 0).prod(-1)
        covered = areas[left] + areas[box] - shared
        isNear = shared > threshold * covered
        left = [other for other, near in zip(left, isNear) if not near]
    return kept
