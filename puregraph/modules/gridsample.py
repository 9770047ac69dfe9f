"""GridSample: an image sampled at the points of a grid; AffineGrid makes such a grid."""

from itertools import product
from math import prod
from typing import Annotated, Any, NamedTuple

import numpy as np

from puregraph.core.arguments import Flag, choice
from puregraph.core.base.widen import widen, widened
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.ops.gather.reference import gather

A = -0.75  # the parameter of Keys's kernel


class _GridTaps(NamedTuple):
    """Element, weight, and the weight's derivative by the coordinate, each (taps, ...); -1 is outside, of weight 0."""

    source: np.ndarray
    weight: np.ndarray
    slope: np.ndarray

    @classmethod
    @np.errstate(invalid="ignore")  # for nan and infinity
    def of(cls, grid: np.ndarray, size: int, mode: str, padding: str, alignCorners: bool) -> "_GridTaps":
        """Return the taps for coordinates from -1 to 1 along an axis."""
        scale = (size - 1) / 2 if alignCorners else size / 2
        position = grid * scale + (size - 1) / 2
        low, high = (0.0, size - 1.0) if alignCorners else (-0.5, size - 0.5)
        factor = np.full_like(position, scale)
        if mode != "cubic" and padding != "zeros":
            position, sign = padded(position, size, low, high, padding)
            factor *= sign
        first, weight, slope = KERNELS[mode](position)
        index = first + np.arange(len(weight)).reshape(-1, *[1] * grid.ndim)
        if mode == "cubic" and padding != "zeros":
            index, _ = padded(index, size, low, high, padding)
        outside = (index < 0) | (index > size - 1)
        index = np.where(outside, -1, np.where(np.isnan(index), 0, index)).astype(np.int64)
        return cls(index, np.where(outside, 0, weight), np.where(outside, 0, slope * factor))


def padded(position: np.ndarray, size: int, low: float, high: float, padding: str) -> tuple[np.ndarray, np.ndarray]:
    """Return positions moved inside of the axis by the padding, and their derivatives by the positions before."""
    sign = np.ones_like(position)
    if padding == "reflection":
        position, sign = reflected(position, low, high)
    sign = np.where((position <= 0) | (position >= size - 1), 0, sign)
    return np.clip(position, 0, size - 1), sign


def reflected(position: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Return positions mirrored at both ends until they are between them, and their derivatives."""
    span = high - low
    if span == 0:
        return np.zeros_like(position), np.zeros_like(position)
    away, sign = np.abs(position - low), np.where(position < low, -1, 1).astype(position.dtype)
    flips, offset = np.floor(away / span), np.fmod(away, span)
    isOdd = flips % 2 == 1
    return np.where(isOdd, span - offset, offset) + low, np.where(isOdd, -sign, sign)


def nearest(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return index, weights and slopes for the nearest element; halves are rounded to even."""
    weight = np.where(np.isnan(p), p, 1)[None]
    return np.rint(p), weight, np.zeros_like(weight)


def linear(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first index, weights and slopes for the elements below and above, weighted by distance."""
    first = np.floor(p)
    t = p - first
    one = np.ones_like(t)
    return first, np.stack([1 - t, t]), np.stack([-one, one])


def cubic(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two elements on each side by Keys's kernel: (a+2)|t|^3 - (a+3)|t|^2 + 1 within 1, a(|t|^3 - 5|t|^2 + 8|t| - 4)
    within 2.

    Source    Keys 1981, Cubic convolution interpolation for digital image processing, eq. (15)
    """
    first = np.floor(p)
    t = p - first
    weight = np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])
    slope = np.stack([farSlope(t + 1), nearSlope(t), -nearSlope(1 - t), -farSlope(2 - t)])
    return first - 1, weight, slope


def near(s: np.ndarray) -> np.ndarray:
    """Keys's kernel at a distance of at most 1."""
    return ((A + 2) * s - (A + 3)) * s * s + 1


def nearSlope(s: np.ndarray) -> np.ndarray:
    """The derivative of `near`."""
    return (3 * (A + 2) * s - 2 * (A + 3)) * s


def far(s: np.ndarray) -> np.ndarray:
    """Keys's kernel at a distance from 1 to 2."""
    return ((A * s - 5 * A) * s + 8 * A) * s - 4 * A


def farSlope(s: np.ndarray) -> np.ndarray:
    """The derivative of `far`."""
    return (3 * A * s - 10 * A) * s + 8 * A


KERNELS = {"nearest": nearest, "linear": linear, "cubic": cubic}


class GridSample(Module):
    """y[n, c, o] = sum over i of k(i1 - p1) ... k(ir - pr) x[n, c, i1, ..., ir], where p is grid[n, o] in elements

    A coordinate of -1 is the first element and 1 the last: their centres with `alignCorners`, else their outer edges.
    The last coordinate of `grid` is along the first axis after the channels. k is the kernel of `mode`: the nearest
    element, linear, or cubic. Values beyond the ends are 0; with `padding` "border" the last element, with
    "reflection" the mirrored array. At ties and kinks the gradients are those of PyTorch: 0 where a position is moved
    to the border.

    Shapes    x (n, c, d1, ..., dr), grid (n, o1, ..., or, r) -> y (n, c, o1, ..., or)
    Source    ONNX operator GridSample; Jaderberg et al. 2015, Spatial Transformer Networks, arXiv:1506.02025
    Raises    ShapeError for other shapes, or where x has no element to read; ArgumentError for other modes
    """

    def __init__(
        self,
        mode: Annotated[str, choice("nearest", "linear", "cubic")] = "linear",
        padding: Annotated[str, choice("zeros", "border", "reflection")] = "zeros",
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
        """Return the taps along each axis; `grid` has the coordinate of the last axis first."""
        coordinates: Any = widen(grid)
        rows = np.moveaxis(coordinates, -1, 0)[::-1].reshape(len(sizes), len(grid), prod(grid.shape[1:-1]))
        return [_GridTaps.of(p, size, self.mode, self.padding, self.alignCorners) for p, size in zip(rows, sizes)]

    @onHost
    def updateData(self, x, grid):
        y = sampled(tableOf(x), self.taps(x.shape[2:], grid), x.shape)
        return channelsFirst(y, grid.shape[1:-1]).astype(x.dtype, copy=False)

    @onHost
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
    """Yield each choice of one tap per axis, and the rows of a table (n positions, c) that it reads; -1 is outside."""
    for chosen in product(*[range(len(tap.source)) for tap in taps]):
        index, inside = np.arange(shape[0])[:, None], True
        for tap, size, t in zip(taps, shape[2:], chosen, strict=True):
            index, inside = index * size + tap.source[t], inside & (tap.source[t] >= 0)
        yield chosen, np.where(inside, index, -1)


def weighed(taps, chosen, dtype, slope=None):
    """Return the product of the weights of one tap per axis; along the axis `slope`, of its derivative instead."""
    product: Any = 1
    for axis, (tap, t) in enumerate(zip(taps, chosen, strict=True)):
        product = product * (tap.slope if axis == slope else tap.weight)[t]
    return product.astype(dtype)[..., None]


def weighedRows(table, index, weight):
    """The rows of a table at some indices times their weights; 0 where the index is -1."""
    return gather(table, index) * weight


@widened
def sampled(table, taps, shape):
    """y (n, positions, c): the weighted sum of the elements that the taps read."""
    y = 0
    for chosen, index in combined(taps, shape):
        y = y + weighedRows(table, index, weighed(taps, chosen, table.dtype))
    return y


@np.errstate(invalid="ignore")  # an infinite gradient times a weight of 0
@widened
def scattered(grad, table, taps, shape):
    """dx (n, positions, c): each gradient added to the elements that its position has read."""
    adjoint = gather.declarations["adjoint"]
    dx: Any = 0
    for chosen, index in combined(taps, shape):
        dx = dx + adjoint(grad * weighed(taps, chosen, grad.dtype), None, table, index)
    return dx.reshape(shape[0], prod(shape[2:]), shape[1])


@widened
def gridGrad(grad, table, taps, shape):
    """dgrid (n, positions, r): the gradient of each coordinate, that of the last axis first."""
    dgrid = [0] * len(taps)
    for chosen, index in combined(taps, shape):
        along = grad * gather(table, index)
        for axis in range(len(taps)):
            dgrid[axis] = dgrid[axis] + (along * weighed(taps, chosen, grad.dtype, axis)).sum(-1)
    return np.stack(dgrid[::-1], axis=-1)


class AffineGrid(Module):
    """y[n, o] = theta[n] (p(o), 1), p(o) the position of o from -1 to 1, with the coordinate of the last axis first

    -1 and 1 are the centres of the first and last element with `alignCorners`, else their outer edges; a single
    element is at 0. `size` is the shape (n, c, d1, ..., dr) of GridSample's output.

    Shapes    theta (n, r, r + 1), size (r + 2) -> y (n, d1, ..., dr, r)
    Source    ONNX operator AffineGrid; Jaderberg et al. 2015, Spatial Transformer Networks, arXiv:1506.02025, eq. (1)
    Raises    ShapeError for other shapes, or another n
    """

    reads = ("size",)
    indices = shapeInputs = ("size",)

    def __init__(self, alignCorners: Flag = False, name=None):
        super().__init__(name)
        self.alignCorners = alignCorners

    def dataShapeFrom(self, theta, size):
        need(len(theta) == 3 and theta[2] == theta[1] + 1, "maps (n, r, r + 1)", theta)
        need(size == (theta[1] + 2,), f"a size of {theta[1] + 2} numbers", size)
        value = valueOf(size)
        known = (theta[0], None) + (None,) * theta[1] if value is None else sizesOf(value)
        need(known[0] == theta[0], f"a size that begins with {theta[0]}", tuple(known))
        return (theta[0], *known[2:], theta[1])

    def dataTypeFrom(self, theta, size):
        return theta

    def points(self, theta, size):
        """The positions, each with a trailing 1."""
        lengths = np.asarray(size).tolist()[2:]
        ends = [min(k - 1, 1) if self.alignCorners else 1 - 1 / max(k, 1) for k in lengths]
        axes = [np.linspace(-end, end, k) for end, k in zip(ends, lengths, strict=True)]
        rows = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(lengths)], axis=-1)
        return rows.reshape(-1, len(lengths) + 1).astype(theta.dtype)

    @onHost
    def updateData(self, theta, size):
        n, _, *lengths = np.asarray(size).tolist()
        need(
            n == len(theta) and min(lengths) >= 0,
            f"a size of {len(theta)} samples and lengths from 0 on",
            (n, *lengths),
        )
        return self.moved(theta, size).reshape(n, *lengths, theta.shape[1])

    @widened
    def moved(self, theta, size):
        """Return the positions after the affine map, in rows."""
        return self.points(theta, size) @ theta.swapaxes(1, 2)

    @onHost
    def updateGrad(self, grad, theta, size, y):
        return self.summed(grad.reshape(len(grad), prod(grad.shape[1:-1]), grad.shape[-1]), size), None

    @widened
    def summed(self, grad, size):
        """dtheta: the sum of each gradient times its position."""
        return grad.swapaxes(1, 2) @ self.points(grad, size)

    def sample(self, rng, theta, size):
        return [rng.standard_normal(theta), np.array([theta[0], 1, *range(2, theta[1] + 2)])]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 2, 3), (4,)]
        yield cls(alignCorners=True), [(1, 3, 4), (5,)]
