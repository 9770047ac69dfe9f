"""GridSample: an array read at positions that another array gives."""

from itertools import product

import numpy as np

from puregraph.arguments import Flag, choice
from puregraph.base.widen import widen, widened
from puregraph.errors import need
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
        n = len(grid)
        flat = np.moveaxis(widen(grid), -1, 0)[::-1].reshape(len(sizes), n, -1)
        return [GridTaps.of(g, size, self.mode, self.padding, self.alignCorners) for g, size in zip(flat, sizes)]

    def updateData(self, x, grid):
        y = sampled(x, grid, self.taps(x.shape[2:], grid))
        return y.astype(x.dtype, copy=False)

    def updateGrad(self, grad, x, grid, y, needs):
        taps = self.taps(x.shape[2:], grid)
        dx = scattered(grad, x, taps).astype(x.dtype, copy=False) if needs[0] else None
        return dx, gridGrad(grad, x, grid, taps).astype(grid.dtype, copy=False) if needs[1] else None

    def sample(self, rng, x, grid):
        return [rng.standard_normal(x), rng.uniform(-1.4, 1.4, grid)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4, 5), (2, 3, 2, 2)]
        yield cls("cubic", "border"), [(1, 2, 5, 4), (1, 3, 3, 2)]
        yield cls("linear", "reflection", True), [(2, 1, 3, 4, 2), (2, 2, 1, 3, 3)]
        yield cls("nearest", "border"), [(2, 2, 6), (2, 5, 1)]


def combined(taps, sizes):
    """Each choice of a tap along every axis: their numbers, and the position in an array whose axes are one."""
    for chosen in product(*[range(len(each.index)) for each in taps]):
        index = 0
        for each, size, t in zip(taps, sizes, chosen, strict=True):
            index = index * size + each.index[t]
        yield chosen, index


def weighed(taps, chosen, slope=None):
    """The product of the weights of some taps; along the axis `slope`, its derivative."""
    found = 1
    for axis, (each, t) in enumerate(zip(taps, chosen, strict=True)):
        found = found * (each.slope if axis == slope else each.weight)[t]
    return found


@widened
def sampled(x, grid, taps):
    """The weighted sum of the elements that the taps read."""
    flat, y = x.reshape(*x.shape[:2], -1), 0
    for chosen, index in combined(taps, x.shape[2:]):
        y = y + np.take_along_axis(flat, index[:, None], 2) * weighed(taps, chosen)[:, None].astype(x.dtype)
    return y.reshape(*x.shape[:2], *grid.shape[1:-1])


@widened
def scattered(grad, x, taps):
    """dx: each gradient to the elements that it was read from."""
    n, c = x.shape[:2]
    found, flat = np.zeros((n, c, x[0, 0].size if n * c else 0), x.dtype), grad.reshape(n, c, -1)
    rows, maps = np.arange(n)[:, None, None], np.arange(c)[None, :, None]
    for chosen, index in combined(taps, x.shape[2:]):
        np.add.at(found, (rows, maps, index[:, None]), flat * weighed(taps, chosen)[:, None].astype(x.dtype))
    return found.reshape(x.shape)


@widened
def gridGrad(grad, x, grid, taps):
    """dgrid: how much the elements that are read change along each axis."""
    flat, grads = x.reshape(*x.shape[:2], -1), grad.reshape(*grad.shape[:2], -1)
    found = np.zeros((len(taps), *grads.shape[::2]), x.dtype)
    for chosen, index in combined(taps, x.shape[2:]):
        along = (grads * np.take_along_axis(flat, index[:, None], 2)).sum(1)
        for axis in range(len(taps)):
            found[axis] += along * weighed(taps, chosen, axis).astype(x.dtype)
    return np.moveaxis(found[::-1], 0, -1).reshape(grid.shape)
