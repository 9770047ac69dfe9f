"""GridSample: an array read at positions that another array gives."""

from itertools import product
from math import prod

import numpy as np

from puregraph.arguments import Flag, choice
from puregraph.base.widen import widen, widened
from puregraph.errors import need
from puregraph.kernels.scatter import gather
from puregraph.module import Module
from puregraph.onnx.modules.sampling.gridtaps import GridTaps


class GridSample(Module):
    """y[n, c, o] = sum over i of k(i1 - p1) ... k(ir - pr) x[n, c, i1, ..., ir], p being grid[n, o] in elements

    A coordinate of -1 is the first element and 1 the last: their centres with `alignCorners`, else their outer edges.
    The last coordinate of `grid` is along the first axis behind the channels. k is the kernel of `mode`: the nearest
    element, linear, or cubic. What is beyond the ends is 0, with `padding` "border" the element at the end, with
    "reflection" the array mirrored. At ties and kinks the gradients are those of PyTorch: 0 where a position is moved
    to the border.

    Shapes    x (n, c, d1, ..., dr), grid (n, o1, ..., or, r) -> y (n, c, o1, ..., or)
    Source    ONNX operator GridSample; Jaderberg et al. 2015, Spatial Transformer Networks, arXiv:1506.02025
    Raises    ShapeError for other shapes, or where x has no element to read; ArgumentError for other modes
    """

    def __init__(
        self,
        mode: choice("nearest", "linear", "cubic") = "linear",
        padding: choice("zeros", "border", "reflection") = "zeros",
        alignCorners: Flag = False,
        name=None,
    ):
        super().__init__(name)
        self.mode, self.padding, self.alignCorners = mode, padding, alignCorners

    def dataShapeFrom(self, x, grid):
        need(len(x) >= 3, "(n, c, ...) with an axis to read along", x)
        need(len(grid) == len(x) and grid[0] == x[0], f"a grid of {len(x)} axes, the first of {x[0]}", grid)
        need(grid[-1] == len(x) - 2, f"a grid of {len(x) - 2} coordinates", grid)
        need(0 not in x[2:], "at least one element to read", x)
        return (x[0], x[1], *grid[1:-1])

    def dataTypeFrom(self, x, grid):
        return x

    def taps(self, sizes, grid):
        """The taps along each axis, whose coordinates come in the order of the last axis first."""
        rows = np.moveaxis(widen(grid), -1, 0)[::-1].reshape(len(sizes), len(grid), prod(grid.shape[1:-1]))
        return [GridTaps.of(p, size, self.mode, self.padding, self.alignCorners) for p, size in zip(rows, sizes)]

    def updateData(self, x, grid):
        y = sampled(tableOf(x), self.taps(x.shape[2:], grid), x.shape)
        return channelsFirst(y, grid.shape[1:-1]).astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, grid, y, needs):
        taps, table = self.taps(x.shape[2:], grid), tableOf(x)
        rows = tableOf(grad).reshape(len(x), prod(grad.shape[2:]), x.shape[1])
        dx = channelsFirst(scattered(rows, table, taps, x.shape), x.shape[2:]) if needs[0] else None
        dgrid = gridGrad(rows, table, taps, x.shape).reshape(grid.shape) if needs[1] else None
        return dx, dgrid

    def sample(self, rng, x, grid):
        return [rng.standard_normal(x), rng.uniform(-1.4, 1.4, grid)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5), (2, 3, 2, 2)]
        yield cls("cubic", "border"), [(1, 2, 5, 4), (1, 3, 3, 2)]
        yield cls("linear", "reflection", True), [(2, 1, 3, 4, 2), (2, 2, 1, 3, 3)]
        yield cls("nearest", "border"), [(2, 2, 6), (2, 5, 1)]


def tableOf(x):
    """(n, c, ...) as (n positions, c)."""
    return np.moveaxis(x, 1, -1).reshape(x.shape[0] * prod(x.shape[2:]), x.shape[1])


def channelsFirst(x, sizes):
    """(n, positions, c) as (n, c, ...)."""
    return np.moveaxis(x, 2, 1).reshape(x.shape[0], x.shape[2], *sizes)


def combined(taps, shape):
    """Each choice of a tap along every axis, and the rows of a table (n positions, c) that it reads; -1 is outside."""
    for chosen in product(*[range(len(each.index)) for each in taps]):
        index, inside = np.arange(shape[0])[:, None], True
        for each, size, t in zip(taps, shape[2:], chosen, strict=True):
            index, inside = index * size + each.index[t], inside & (each.index[t] >= 0)
        yield chosen, np.where(inside, index, -1)


def weighed(taps, chosen, dtype, slope=None):
    """The product of the weights of some taps, for each channel; along the axis `slope`, its derivative."""
    found = 1
    for axis, (each, t) in enumerate(zip(taps, chosen, strict=True)):
        found = found * (each.slope if axis == slope else each.weight)[t]
    return found.astype(dtype)[..., None]


@widened
def sampled(table, taps, shape):
    """y (n, positions, c): the weighted sum of the elements that the taps read."""
    y = 0
    for chosen, index in combined(taps, shape):
        y = y + gather(table, index) * weighed(taps, chosen, table.dtype)
    return y


@np.errstate(invalid="ignore")  # of an endless gradient outside, which adds nothing
@widened
def scattered(grad, table, taps, shape):
    """dx (n, positions, c): each gradient to the elements that its position has read."""
    adjoint, found = gather.declarations["adjoint"], 0
    for chosen, index in combined(taps, shape):
        found = found + adjoint(grad * weighed(taps, chosen, grad.dtype), None, table, index)
    return found.reshape(shape[0], prod(shape[2:]), shape[1])


@widened
def gridGrad(grad, table, taps, shape):
    """dgrid (n, positions, r): how much the elements that are read change along each axis, the last axis first."""
    found = [0] * len(taps)
    for chosen, index in combined(taps, shape):
        along = grad * gather(table, index)
        for axis in range(len(taps)):
            found[axis] = found[axis] + (along * weighed(taps, chosen, grad.dtype, axis)).sum(-1)
    return np.stack(found[::-1], axis=-1)
