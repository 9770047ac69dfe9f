"""RoiPool: regions of a picture, of each the largest elements of the same number of parts."""

import numpy as np

from puregraph.arguments import Counts, Scalar
from puregraph.base.widen import widened
from puregraph.errors import DataError, need
from puregraph.module import Module


class RoiPool(Module):
    """y[r, c, i, j] = the largest element of x[sample of r, c] in part (i, j) of region r, 0 where a part has none

    A region (sample, x, y, x, y), its corners times `scale` rounded and both within it, is divided into `size` parts,
    which share the elements on their borders. The gradient of a part goes to its first maximum, none to the regions.

    Shapes    x (n, c, h, w), regions (r, 5) -> y (r, c, *size)
    Source    ONNX operator MaxRoiPool; Girshick 2015, Fast R-CNN, section 2.1
    Raises    ShapeError for other shapes, DataError for a sample that x does not have
    """

    reads = ("x", "regions")

    def __init__(self, size: Counts, scale: Scalar = 1.0, name=None):
        super().__init__(name)
        self.size, self.scale = tuple(size), scale

    def dataShapeFrom(self, x, regions):
        need(len(x) == 4, "x (n, c, h, w)", x)
        need(len(regions) == 2 and regions[1] == 5, "regions (r, 5)", regions)
        return (regions[0], x[1], *self.size)

    def dataTypeFrom(self, x, regions):
        return x

    def parts(self, region, sizes):
        """For a region the elements along each axis that belong to each part, as slices."""
        found = []
        for low, high, count, n in zip(region[[2, 1]], region[[4, 3]], self.size, sizes):
            first, last = (rounded(np.float32(end) * np.float32(self.scale)) for end in (low, high))
            length = np.float32(max(last - first + 1, 1)) / np.float32(count)
            ends = np.arange(count + 1, dtype=np.float32) * length
            starts, stops = np.floor(ends[:-1]).astype(int) + first, np.ceil(ends[1:]).astype(int) + first
            found.append([slice(a, max(a, b)) for a, b in np.clip(np.stack([starts, stops], 1), 0, n).tolist()])
        return found

    def maxima(self, x, regions):
        """For each part its maximum, and where that is in a channel as one row; 0 and -1 where it has no element."""
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

    def updateData(self, x, regions):
        return self.maxima(x, regions)[0]

    def updateGrad(self, grad, x, regions, y):
        return self.scattered(grad, x, regions), None

    @widened
    def scattered(self, grad, x, regions):
        """dx: each gradient to the maximum of its part."""
        at = self.maxima(x, regions)[1]
        dx = np.zeros_like(grad, shape=(len(x), x.shape[1], x.shape[2] * x.shape[3]))
        r, c, i, j = np.nonzero(at >= 0)
        np.add.at(dx, (np.asarray(regions)[r, 0].astype(int), c, at[r, c, i, j]), grad[r, c, i, j])
        return dx.reshape(x.shape)

    def sample(self, rng, x, regions):
        low = rng.integers(0, 2, (regions[0], 2))
        corners = np.concatenate([low, low + rng.integers(0, 4, low.shape)], 1)
        which = rng.integers(0, x[0], (regions[0], 1))
        return [rng.standard_normal(x), np.concatenate([which, corners], 1)]

    @classmethod
    def examples(cls):
        yield cls((2, 3)), [(2, 2, 4, 5), (3, 5)]
        yield cls((1, 2), 0.5), [(1, 2, 4, 4), (2, 5)]


def rounded(number):
    """The nearest integer, of two the one further from 0."""
    return int(np.copysign(np.floor(np.abs(number) + 0.5), number))
