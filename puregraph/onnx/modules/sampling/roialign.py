"""RoiAlign: regions of a picture, each sampled to the same size."""

import numpy as np

from puregraph.arguments import Counts, Flag, Natural, Scalar, choice
from puregraph.base.widen import widened
from puregraph.errors import DataError, need
from puregraph.module import Module


class RoiAlign(Module):
    """y[r, c, i, j] = the mean over samples in part (i, j) of region r of x[sample of r, c], between its elements

    A region (x, y, x, y) times `scale` is divided into `size` parts, each sampled at `samples` x `samples` points, or
    without that as often as it has elements. What is further than one element outside is 0. With mode "max" it is the
    largest of the weighted elements that points read. Unless `isCentred` positions are not moved by half an element,
    and a region has at least length one. No gradient reaches the regions.

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
        samples: Natural = 0,
        mode: choice("avg", "max") = "avg",
        isCentred: Flag = True,
        name=None,
    ):
        super().__init__(name)
        self.size, self.scale, self.samples, self.mode, self.isCentred = tuple(size), scale, samples, mode, isCentred

    def dataShapeFrom(self, x, regions, which):
        need(len(x) == 4, "x (n, c, h, w)", x)
        need(len(regions) == 2 and regions[1] == 4, "regions (r, 4)", regions)
        need(which == (regions[0],), f"which of shape ({regions[0]},)", which)
        return (regions[0], x[1], *self.size)

    def dataTypeFrom(self, x, regions, which):
        return x

    def taps(self, region, sizes):
        """For a region: (indices, weights) of the elements that its points read, (h, w, points, 4)."""
        offset = 0.5 if self.isCentred else 0.0
        found = []
        for axis, (count, n) in enumerate(zip(self.size, sizes)):
            low, high = (float(region[i]) * self.scale - offset for i in (1 - axis, 3 - axis))
            length = high - low if self.isCentred else max(high - low, 1.0)
            samples = self.samples or int(np.ceil(length / count))
            points = (np.arange(count * samples) + 0.5) / max(samples, 1)
            found.append(axisTaps(low + length / count * points, n, count))
        (iy, wy), (ix, wx) = found
        index = iy[:, None, :, None, :, None] * sizes[1] + ix[None, :, None, :, None, :]
        weight = wy[:, None, :, None, :, None] * wx[None, :, None, :, None, :]
        shape = (*self.size, iy.shape[1] * ix.shape[1], 4)
        return index.reshape(shape), weight.reshape(shape)

    def updateData(self, x, regions, which):
        wrong = [n for n in np.asarray(which).tolist() if not 0 <= n < len(x)]
        if wrong:
            raise DataError(f"which: wanted samples from 0 to {len(x) - 1}, got {wrong[0]}")
        return self.sampled(x, regions, which)

    @widened
    def sampled(self, x, regions, which):
        """y."""
        y = np.zeros_like(x, shape=(len(regions), x.shape[1], *self.size))
        for r, (region, n) in enumerate(zip(regions, which)):
            index, weight = self.taps(region, x.shape[2:])
            read = x[n].reshape(x.shape[1], -1)[:, index] * weight
            if self.mode == "avg":
                y[r] = read.sum((-2, -1)) / max(index.shape[2], 1)
            elif read.size:
                y[r] = read.max((-2, -1))
        return y.astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, regions, which, y):
        return self.scattered(grad, x, regions, which), None, None

    @widened
    def scattered(self, grad, x, regions, which):
        """dx: each gradient to the elements that its points have read."""
        dx = np.zeros_like(x, shape=(x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))
        channels = np.arange(x.shape[1])[:, None]
        for g, region, n in zip(grad, regions, which):
            index, weight = self.taps(region, x.shape[2:])
            if self.mode == "avg":
                part = g[..., None, None] * weight / max(index.shape[2], 1)
                at = np.broadcast_to(index, part.shape)
            else:
                flat = (*self.size, -1)
                read = (x[n].reshape(x.shape[1], -1)[:, index] * weight).reshape(len(g), *flat)
                if not read.size:
                    continue
                best = read.argmax(-1)[..., None]
                at = np.take_along_axis(np.broadcast_to(index.reshape(flat), read.shape), best, -1)
                part = g[..., None] * np.take_along_axis(np.broadcast_to(weight.reshape(flat), read.shape), best, -1)
            np.add.at(dx[n], (channels, at.reshape(len(g), -1)), part.reshape(len(g), -1))
        return dx.reshape(x.shape).astype(grad.dtype, copy=False)

    def sample(self, rng, x, regions, which):
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
