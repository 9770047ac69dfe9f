"""Shuffles: channels into positions, positions into channels, channels among groups."""

from collections.abc import Callable
from math import prod
from typing import Any

from puregraph.core.arguments import Count
from puregraph.core.errors import need
from puregraph.graph.module import Module
from puregraph.modules.windows import channelHint


class _Shuffle(Module):
    """Base class: a subclass moves the elements of x by `moved`, and back by `back`."""

    moved: Callable[..., Any]
    back: Callable[..., Any]
    reads = ()
    keepsDtype = True
    followsValues = True
    flopsPerElement = 0

    def __init__(self, factor: Count, name=None):
        super().__init__(name)
        self.factor = factor

    def updateData(self, x):
        return self.moved(x, self.factor)

    def updateGrad(self, grad, x, y):
        return self.back(grad, self.factor)

    @classmethod
    def examples(cls):
        yield cls(2), [(2, 8, 4, 2)]
        yield cls(3), [(1, 3, 6)]
        yield cls(1), [(2, 3, 1)]


def toPositions(x, r):
    """Channels (c, r, ...) of each element as the positions of a block."""
    n, c, *sizes = x.shape
    k = len(sizes)
    parts = x.reshape(n, c // r**k, *(r,) * k, *sizes)
    order = [0, 1, *(axis for i in range(k) for axis in (2 + k + i, 2 + i))]
    return parts.transpose(order).reshape(n, c // r**k, *(r * size for size in sizes))


def toChannels(x, r):
    """The positions of each block as channels (c, r, ...) of an element."""
    n, c, *sizes = x.shape
    k = len(sizes)
    parts = x.reshape(n, c, *(part for size in sizes for part in (size // r, r)))
    order = [0, 1, *range(3, 3 + 2 * k, 2), *range(2, 2 + 2 * k, 2)]
    return parts.transpose(order).reshape(n, c * r**k, *(size // r for size in sizes))


class PixelShuffle(_Shuffle):
    """y[n, c, a r + i] = x[n, (c, i), a], a position in the map, i in a block of r = `factor` elements along each axis

    Shapes    x (n, c r^k, *spatial), k spatial axes -> y (n, c, *(r spatial))
    Source    Shi et al. 2016, Real-Time Single Image and Video Super-Resolution, arXiv:1609.05158, eq. 4
    Raises    ShapeError if x has no spatial axis, or the channels are no multiple of r^k

    >>> PixelShuffle(2).dataShapeFrom(("N", 12, 5, 7))
    ('N', 3, 10, 14)
    """

    moved, back = staticmethod(toPositions), staticmethod(toChannels)

    def dataShapeFrom(self, x):
        block = self.factor ** max(len(x) - 2, 0)
        need(len(x) > 2 and x[1] % block == 0, f"(n, c, *spatial) with a multiple of {block} channels", x)
        return (*x[:1], x[1] // block, *(self.factor * size for size in x[2:]))


class PixelUnshuffle(_Shuffle):
    """y[n, (c, i), a] = x[n, c, a r + i]: the inverse of PixelShuffle, with r = `factor`

    Shapes    x (n, c, *(r spatial)), k spatial axes -> y (n, c r^k, *spatial)
    Source    Shi et al. 2016, Real-Time Single Image and Video Super-Resolution, arXiv:1609.05158, eq. 4
    Raises    ShapeError if x has no spatial axis, or its lengths are no multiples of r
    """

    moved, back = staticmethod(toChannels), staticmethod(toPositions)

    def dataShapeFrom(self, x):
        fits = len(x) > 2 and all(size % self.factor == 0 for size in x[2:])
        need(fits, f"(n, c, *spatial) with lengths that are multiples of {self.factor}", x)
        return (*x[:1], x[1] * self.factor ** (len(x) - 2), *(size // self.factor for size in x[2:]))


class ChannelShuffle(_Shuffle):
    """y[n, (i, g)] = x[n, (g, i)], g one of `factor` groups of channels: each group gets a channel of every other

    Shapes    x (n, c, *spatial) -> y as x
    Source    Zhang, Zhou, Lin, Sun 2018, ShuffleNet, arXiv:1707.01083, section 3.1
    Raises    ShapeError if the groups do not divide the channels
    """

    def dataShapeFrom(self, x):
        fits = len(x) >= 2 and x[1] % self.factor == 0
        need(fits, f"(n, c, *spatial) with a multiple of {self.factor} channels", x, channelHint(x, self.factor))
        return x

    def moved(self, x, groups):
        """x with the channels of `groups` groups interleaved."""
        rows = x.reshape(x.shape[0], groups, x.shape[1] // groups, prod(x.shape[2:]))
        return rows.swapaxes(1, 2).reshape(x.shape)

    def back(self, grad, groups):
        """The inverse of `moved`."""
        return self.moved(grad, max(grad.shape[1] // groups, 1))
