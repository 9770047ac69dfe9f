"""FractionalMaxPool: windows of one size that begin at random, increasing positions."""

from math import prod

import numpy as np

from puregraph.core.arguments import Positive, isWhole
from puregraph.core.errors import ArgumentError, need
from puregraph.core.param import State
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.modules.dropout import drawKey
from puregraph.modules.resize import scaled
from puregraph.modules.windows import perAxis
from puregraph.ops.gather.alongaxis import addAlong, readAlong
from puregraph.ops.random.reference import uniform


class FractionalMaxPool(Module):
    """y[n, c, i] = max over windows of `size` elements of x[n, c], which begin at a_i = floor((i + u) r) - floor(u r)

    with r = (length - size) / (outsize - 1) and the last one at the end, along each spatial axis; u in [0, 1) is that
    of the sample, map and axis: `samples`, or without them random, in evalMode too. The random numbers are a function
    of two States: `key` names the stream, and `count` grows with each pass. `outsize` is the number of windows, a
    number or one for each axis, or else it is floor(ratio length). Of equal values the first counts: the gradient goes
    there; its position in the map is the hidden output `indices`.

    Shapes    x (n, c, *spatial), samples (n, c, axes) -> y (n, c, *outsize)
    Source    Graham 2014, Fractional Max-Pooling, arXiv:1412.6071, section 2
    Raises    ShapeError if x has another rank, or is too short for the windows; ArgumentError unless one of outsize and
              ratio is there

    >>> x = np.array([[[1.0, 5.0, 2.0, 4.0, 3.0]]])
    >>> FractionalMaxPool(2, outsize=3)(x, np.array([[[0.5]]]))
    array([[[5., 4., 4.]]])
    """

    reads = ("samples", "indices")
    hidden = ("indices",)
    keepsDtype = True
    draws = "count"
    drawsAlways = True  # in evalMode too: it is part of the model

    def __init__(self, size=2, outsize=None, ratio: Positive | None = None, name=None):
        super().__init__(name)
        for label, value in (("size", size), ("outsize", outsize)):
            values = value if isinstance(value, (tuple, list)) else (value,)
            fits = values and all(isWhole(n, 1) for n in values) or label == "outsize" and value is None
            need(fits, f"{label} as a whole number of at least 1, or a tuple of it for each axis", value)
        if (outsize is None) == (ratio is None):
            raise ArgumentError(f"FractionalMaxPool: wanted either outsize or ratio, got {outsize} and {ratio}")
        self.size, self.outsize, self.ratio = size, outsize, ratio
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def lengths(self, x):
        """(size, outsize) of a window along each spatial axis."""
        rank = next((len(v) for v in (self.size, self.outsize) if isinstance(v, (tuple, list))), max(len(x) - 2, 1))
        need(len(x) == rank + 2, f"(n, c, *spatial), {rank} spatial axes", x)
        if self.outsize is None:
            counts = [scaled(n, self.ratio) for n in x[2:]]
        else:
            counts = perAxis(self.outsize, rank, "outsize")
        return perAxis(self.size, rank, "size"), counts

    def dataShapeFrom(self, x, samples=None):
        sizes, counts = self.lengths(x)
        for axis, (n, size, count) in enumerate(zip(x[2:], sizes, counts), 2):
            need(count is None or count >= 1, f"at least one window along axis {axis}", x)
            need(count is None or n >= size + count - 1, f"{count} windows of {size} along axis {axis}", x)
        need(samples in (None, (*x[:2], len(sizes))), f"samples of shape {(*x[:2], len(sizes))}", samples)
        return (*x[:2], *counts)

    def hiddenShapeFrom(self, x, samples=None):
        return [self.dataShapeFrom(x, samples)]

    def hiddenTypeFrom(self, *dtypes):
        return [np.dtype(np.int64)]

    def dataTypeFrom(self, x, samples=None):
        return x

    def updateData(self, x, samples=None, key=None, count=None):
        sizes, counts = self.lengths(x.shape)
        if samples is None:
            samples = uniform((*x.shape[:2], len(sizes)), key, count, np.float64)
            count += 1
        at = positions(samples, x.shape[2:], counts, sizes)
        windows = readAlong(x.reshape(*x.shape[:2], prod(x.shape[2:])), at.reshape(*x.shape[:2], prod(at.shape[2:])), 2)
        best = windows.reshape(at.shape).argmax(axis=3)
        indices = np.take_along_axis(at, best[..., None], 3)
        y = np.take_along_axis(windows.reshape(at.shape), best[..., None], 3)
        shape = (*x.shape[:2], *counts)
        return y.reshape(shape), indices.reshape(shape)

    def updateGrad(self, grad, x, samples, key, count, y, indices):
        rows = (*x.shape[:2], prod(y.shape[2:]))
        dx = addAlong(grad.reshape(rows), indices.reshape(rows), 2, prod(x.shape[2:]))
        return dx.reshape(x.shape), None if samples is None else np.zeros_like(samples), None, None

    def sample(self, rng, x, *samples):
        return [rng.permutation(prod(x)).reshape(x) * 0.5, *map(rng.random, samples)]

    @classmethod
    def examples(cls):
        yield cls(2, outsize=(3, 2)), [(2, 3, 7, 5)]
        yield cls((2, 3), ratio=0.5), [(1, 2, 8, 8), (1, 2, 2)]
        yield cls(2, outsize=3), [(2, 1, 6), (2, 1, 1)]
        yield cls(1, outsize=(1, 2, 2)), [(1, 2, 2, 3, 2)]


def positions(samples, lengths, counts, sizes):
    """The flat positions of the elements of each window (n, c, windows, elements)."""
    flat = np.zeros_like(samples, shape=(*samples.shape[:2], 1, 1), dtype=np.int64)
    for axis, (length, count, size) in enumerate(zip(lengths, counts, sizes)):
        u, i = samples[:, :, axis, None], arrayLike(samples, np.arange(count))
        step = (length - size) / max(count - 1, 1)
        first = np.where(i == count - 1, length - size, np.floor((i + u) * step) - np.floor(u * step)).astype(np.int64)
        at = first[..., None] + arrayLike(samples, np.arange(size))
        flat = flat[:, :, :, None, :, None] * length + at[:, :, None, :, None, :]
        flat = flat.reshape(*samples.shape[:2], flat.shape[2] * count, flat.shape[4] * size)
    return flat
