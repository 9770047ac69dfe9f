"""ResizeAxes: an array with other lengths along chosen axes, its elements interpolated."""

from fractions import Fraction
from math import floor

import numpy as np

from puregraph.arguments import Flag, Items, Scalar, Wholes, choice, optional
from puregraph.base.widen import widened
from puregraph.core.dim import Dim
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.errors import need
from puregraph.module import Module
from puregraph.onnx.modules.sampling.resizetaps import COORDINATES, HALF, ROUNDINGS, ResizeTaps, simplest

POLICIES = ("stretch", "not_larger", "not_smaller")
CROP = "tf_crop_and_resize"
DENOMINATOR = 4096  # scales whose fraction has a larger one give symbolic sizes nothing that is known


class ResizeAxes(Module):
    """y[i] = sum over j of k(j - c(i)) x[j] along each of `axes`, c being where i is in x

    Positions are exact fractions. k is the kernel of `mode`: the nearest element as `rounding` says, linear, or cubic
    with the parameter `cubicA`. With `antialias` it is widened where x shrinks. What is read beyond the ends is the
    element at the end, or with `excludeOutside` nothing. `factors` are scales, or lengths with by="sizes", of each
    axis; without them they are an input. `policy` keeps the aspect ratio of lengths. `bounds` (all starts, then all
    ends, from 0 to 1) are what coordinates "tf_crop_and_resize" read, an input too, with `outside` for what is beyond
    x. No gradient reaches scales and region.

    Shapes    x (any), sizes or scales (count of axes), region (2 count of axes) -> y (..., floor(scale n), ...)
    Source    ONNX operator Resize
    Raises    ShapeError if x has no such axis, none of the elements that are read, or there is not a factor for each;
              ArgumentError for other modes
    """

    reads = ("sizes", "scales", "region")
    indices = shapeInputs = ("sizes",)

    def __init__(
        self,
        axes: Wholes,
        by: choice("scales", "sizes") = "scales",
        factors: optional(Items) = None,
        mode: choice("nearest", "linear", "cubic") = "nearest",
        coordinates: choice(*COORDINATES) = "half_pixel",
        rounding: choice(*ROUNDINGS) = "round_prefer_floor",
        cubicA: Scalar = -0.75,
        antialias: Flag = False,
        excludeOutside: Flag = False,
        policy: choice(*POLICIES) = "stretch",
        bounds: optional(Items) = None,
        outside: Scalar = 0.0,
        name=None,
    ):
        super().__init__(name)
        self.axes, self.by, self.policy = tuple(axes), by, policy
        self.mode, self.coordinates, self.rounding, self.cubicA = mode, coordinates, rounding, cubicA
        self.antialias, self.excludeOutside, self.outside = antialias and mode != "nearest", excludeOutside, outside
        self.factors = None if factors is None else tuple(factors)
        self.bounds = None if bounds is None else tuple(bounds)
        self.needsFloats, self.keepsDtype = mode != "nearest", mode == "nearest"

    def planned(self, x, factors):
        """(axis, length, scale) of each axis; a length is None where only data gives it."""
        need(len(factors) == len(self.axes), f"{len(self.axes)} factors", list(factors))
        axes = [normalAxis(axis, len(x)) for axis in self.axes]
        if self.by == "scales":
            need(all(0 < f < np.inf for f in factors), "scales above 0", list(factors))
            return [(a, scaled(x[a], f), simplest(f)) for a, f in zip(axes, factors)]
        pairs = [(x[a], f) for a, f in zip(axes, factors)]
        isOpen = any(isinstance(n, Dim) for pair in pairs for n in pair)
        ratios = [Fraction(1) if isOpen else Fraction(int(f), max(n, 1)) for n, f in pairs]
        if self.policy == "stretch":
            return list(zip(axes, factors, ratios))
        need(not isOpen, "numbers for sizes of which the aspect ratio is kept", x)
        ratio = (min if self.policy == "not_larger" else max)(ratios)
        return [(a, floor(ratio * x[a] + HALF), ratio) for a in axes]

    def dataShapeFrom(self, x, sizes=None, scales=None, region=None):
        count = len(self.axes)
        given = sizes if self.by == "sizes" else scales
        need(self.factors is not None or given == (count,), f"{self.by} of shape ({count},)", given)
        need(region is None or region == (2 * count,), f"a region of shape ({2 * count},)", region)
        known = self.factors
        if known is None:
            value = valueOf(given)
            known = None if value is None else sizesOf(value)
        shape = list(x)
        axes = [normalAxis(axis, len(x)) for axis in self.axes]
        for axis, length, _ in [(a, None, None) for a in axes] if known is None else self.planned(x, known):
            need(length is None or length == 0 or x[axis] != 0, "at least one element to read", x)
            shape[axis] = length
        return tuple(shape)

    def taps(self, x, sizes, scales, region):
        """(axis, taps) of each axis that changes."""
        given = sizes if self.by == "sizes" else scales
        factors = self.factors if given is None else np.asarray(given).tolist()
        count, found = len(self.axes), []
        ends = (0.0,) * count + (1.0,) * count
        ends = self.bounds or ends if region is None else np.asarray(region).tolist()
        for i, (axis, length, scale) in enumerate(self.planned(x, factors)):
            part = ends[i], ends[count + i]
            if length != x[axis] or scale != 1 or self.coordinates == CROP and part != (0, 1):
                found.append((axis, ResizeTaps.of(x[axis], length, scale, part, self)))
        return found

    def updateData(self, x, sizes=None, scales=None, region=None):
        found = self.taps(x.shape, sizes, scales, region)
        y = chosen(x, found) if self.mode == "nearest" else interpolated(x, found)
        for axis, taps in found:
            if taps.outside.any():
                y = np.where(along(taps.outside, axis, y.ndim), np.asarray(self.outside, y.dtype), y)
        return y

    def updateGrad(self, grad, x, sizes, scales, region, y):
        return spread(grad, x.shape, self.taps(x.shape, sizes, scales, region)), None, None, None

    def sample(self, rng, x, *rest):
        return [rng.standard_normal(x), *[np.full(s, 2) for s in rest]]

    @classmethod
    def examples(cls):
        yield cls((0, 1), factors=(2.0, 1.5)), [(2, 3)]
        yield cls((1,), "sizes", (5,), "linear"), [(2, 3)]
        yield cls((0, -1), "sizes", (3, 5), "cubic", "align_corners", excludeOutside=True), [(4, 2, 3)]
        yield cls((1,), factors=(0.5,), mode="cubic", antialias=True), [(2, 7)]
        yield cls((0, 1), "sizes", (6, 9), "linear", "asymmetric", policy="not_larger"), [(2, 4)]
        yield cls((0,), "sizes", (4,), "linear", CROP, bounds=(0.3, 1.4), outside=7.0), [(5,)]
        yield cls((1,), "sizes", mode="linear"), [(2, 3), (1,)]


def scaled(size, scale):
    """floor(scale * size); None for a symbol of which that is no fraction."""
    exact = simplest(scale)
    if not isinstance(size, Dim):
        return floor(size * exact)
    return size * exact.numerator // exact.denominator if exact.denominator <= DENOMINATOR else None


def along(values, axis, rank):
    """A vector along one axis of many."""
    return values.reshape((-1,) + (1,) * (rank - 1 - axis))


def chosen(x, found):
    """The nearest elements along each axis."""
    for axis, taps in found:
        x = x.take(taps.index[:, 0], axis=axis)
    return x


@widened
def interpolated(x, found):
    """The weighted sum of the taps of each axis."""
    for axis, (index, weight, _) in found:
        weight = weight.astype(x.dtype)
        y = 0
        for t in range(index.shape[1]):
            y = y + x.take(index[:, t], axis=axis) * along(weight[:, t], axis, x.ndim)
        x = y
    return x


@widened
def spread(grad, shape, found):
    """The adjoint: each axis by its matrix, transposed."""
    for axis, taps in reversed(found):
        matrix = taps.matrix(shape[axis], grad.dtype)
        grad = np.matmul(np.moveaxis(grad, axis, -1), matrix)
        grad = np.moveaxis(grad, -1, axis)
    return grad
