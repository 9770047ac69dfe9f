"""Upsample1D to Upsample3D, and Resize, an interpolation along any axes."""

from fractions import Fraction
from math import floor
from typing import Annotated, Any

import numpy as np

from puregraph.core.arguments import Flag, Items, Scalar, Wholes, choice
from puregraph.core.base.widen import widened
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import givenSizes, normalAxis, product, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.modules.resizetaps import COORDINATES, HALF, ROUNDINGS, _ResizeTaps, simplest
from puregraph.modules.windows import needRank, perAxis


class _Upsample(Module):
    """Base class: a subclass has the number of spatial axes, `rank`."""

    reads = ()
    indices = shapeInputs = ("scales",)
    rank = 2

    def __init__(self, scale=2, mode: Annotated[str, choice("nearest", "linear")] = "nearest", name=None):
        super().__init__(name)
        self.scale, self.mode = None, mode
        if scale is not None:
            self.scale, self.scales = perAxis(scale, self.rank, "scale"), None
        self.needsFloats, self.keepsDtype = mode == "linear", mode == "nearest"

    def dataShapeFrom(self, x, scales=None):
        sizes = needRank(x, self.rank)
        need(all(n >= 1 for n in sizes), "at least one pixel", x)
        if self.scale is None:
            need(scales == (self.rank,), f"scales of shape ({self.rank},)", scales)
        scale = givenSizes(scales, "scales") if self.scale is None else self.scale
        return (*x[:2], *[None] * self.rank) if scale is None else (*x[:2], *(n * s for n, s in zip(sizes, scale)))

    def scaleFrom(self, scales):
        """The factor along each spatial axis."""
        return self.scale if scales is None else perAxis(tuple(sizesOf(scales)), self.rank, "scale")

    def updateData(self, x, scales=None):
        resize = repeated if self.mode == "nearest" else between
        for axis, scale in enumerate(self.scaleFrom(scales), 2):
            x = resize(x, scale, axis)
        return x

    def updateGrad(self, grad, x, scales, y):
        gather = summed if self.mode == "nearest" else spread
        for axis in range(self.rank + 1, 1, -1):
            grad = gather(grad, grad.shape[axis] // x.shape[axis], axis)
        return grad, None

    def sample(self, rng, x, *scales):
        return [rng.standard_normal(x), *[np.array([2, 3, 1][: self.rank]) for _ in scales]]

    def flopsFrom(self, x, scales=None):
        shape = self.dataShapeFrom(x, scales)
        return 0 if self.mode == "nearest" or None in shape else 3 * product(shape)


class Upsample1D(_Upsample):
    """y[i] = x[i // s], or, with mode="linear", y[i] = (1 - f) x[j] + f x[j + 1], j + f = (i + 1/2) / s - 1/2

    Positions are centers of elements; beyond the border, the value at the border is used. With `scale=None`, `scales`
    are a second input, one integer.

    Shapes    x (n, c, length), scales (1) -> y (n, c, s length)
    Source    ONNX operator Resize with coordinates half_pixel
    Raises    ShapeError if x has another rank or no elements, or the scale is no integer;
              ArgumentError for another mode

    >>> Upsample1D(2, mode="linear")(np.array([[[0.0, 4.0]]]))
    array([[[0., 1., 3., 4.]]])
    """

    rank = 1

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 4)]
        yield cls(3, mode="linear"), [(1, 2, 5)]


class Upsample2D(_Upsample):
    """y[i] = x[i // s], or, with mode="linear", y[i] = (1 - f) x[j] + f x[j + 1], j + f = (i + 1/2) / s - 1/2

    along height and width, where `scale` is s or a pair. Positions are centers of pixels; beyond the border, the value
    at the border is used. With `scale=None`, `scales` are a second input, two integers.

    Shapes    x (n, c, h, w), scales (2) -> y (n, c, s_h h, s_w w)
    Source    ONNX operator Resize with coordinates half_pixel; PuzzleLib's Upsample2D
    Raises    ShapeError if x has another rank or no pixels, or the scale is no integer;
              ArgumentError for another mode
    """

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 2, 3)]
        yield cls((3, 1)), [(1, 2, 3, 2)]
        yield cls(mode="linear"), [(2, 2, 3, 4)]
        yield cls((1, 3), mode="linear"), [(2, 1, 2, 3)]
        yield cls((4, 5), mode="linear"), [(1, 2, 1, 2)]
        yield cls(None), [(1, 2, 2, 1), (2,)]


class Upsample3D(_Upsample):
    """y[i] = x[i // s], or, with mode="linear", y[i] = (1 - f) x[j] + f x[j + 1], j + f = (i + 1/2) / s - 1/2

    along depth, height and width, where `scale` is s or three of them. Positions are centers of voxels; beyond the
    border, the value at the border is used. With `scale=None`, `scales` are a second input, three integers.

    Shapes    x (n, c, d, h, w), scales (3) -> y (n, c, s_d d, s_h h, s_w w)
    Source    ONNX operator Resize with coordinates half_pixel; PuzzleLib's Upsample3D
    Raises    ShapeError if x has another rank or no voxels, or the scale is no integer;
              ArgumentError for another mode
    """

    rank = 3

    @classmethod
    def examples(cls):
        yield cls(), [(1, 2, 2, 3, 1)]
        yield cls((1, 2, 3), mode="linear"), [(2, 1, 2, 2, 3)]


def repeated(x, scale, axis):
    """Each value `scale` times."""
    return x.repeat(scale, axis=axis)


@widened
def summed(grad, scale, axis):
    """The adjoint of `repeated`."""
    return phases(grad, scale, axis).sum(axis=axis + 1)


@widened
def between(x, scale, axis):
    """Linear interpolation between neighbours."""
    size = x.shape[axis]
    phases = []
    for f in fractions(scale):
        near = neighbours(x, axis, -1 if f < 0 else 1)
        phases.append((1 - abs(f)) * x + abs(f) * near)
    return np.stack(phases, axis=axis + 1).reshape(*x.shape[:axis], scale * size, *x.shape[axis + 1 :])


@widened
def spread(grad, scale, axis):
    """The adjoint of `between`."""
    parts, total = phases(grad, scale, axis), 0.0
    for i, f in enumerate(fractions(scale)):
        g = parts[(slice(None),) * (axis + 1) + (i,)]
        total = total + (1 - abs(f)) * g + abs(f) * neighboursBack(g, axis, -1 if f < 0 else 1)
    return total


def phases(grad, scale, axis):
    """Return the gradient with the `scale` copies of each element on a new axis after `axis`."""
    return grad.reshape(*grad.shape[:axis], grad.shape[axis] // scale, scale, *grad.shape[axis + 1 :])


def fractions(scale):
    """Return the offsets of the `scale` values from their source element."""
    return [(r + 0.5) / scale - 0.5 for r in range(scale)]


def cut(x, axis, *ends):
    """A slice of an axis."""
    return x[(slice(None),) * axis + (slice(*ends),)]


def neighbours(x, axis, side):
    """The element before (-1) or after (1) every element; at the border, the element itself."""
    ends = ((None, 1), (None, -1)) if side < 0 else ((1, None), (-1, None))
    return np.concatenate([cut(x, axis, *part) for part in ends], axis=axis)


def neighboursBack(grad, axis, side):
    """The adjoint of `neighbours`: the gradients for the element after (-1) or before (1), or itself at the border."""
    inner = cut(grad, axis, 1, None) if side < 0 else cut(grad, axis, None, -1)
    border = cut(grad, axis, None, 1) if side < 0 else cut(grad, axis, -1, None)
    gap, zeros = np.zeros_like(border), np.zeros_like(inner)
    moved = np.concatenate([inner, gap] if side < 0 else [gap, inner], axis=axis)
    return moved + np.concatenate([border, zeros] if side < 0 else [zeros, border], axis=axis)


POLICIES = ("stretch", "not_larger", "not_smaller")
CROP = "tf_crop_and_resize"
DENOMINATOR = 4096  # with a larger one, a scaled symbolic size is unknown


class Resize(Module):
    """y[i] = sum over j of k(j - c(i)) x[j] along each of `axes`, where c is the position of i in x

    Positions are exact fractions. k is the kernel of `mode`: the nearest element, rounded by `rounding`, linear, or
    cubic with the parameter `cubicA`. With `antialias` the kernel is widened if x shrinks. Beyond the ends, the last
    element is read, or with `excludeOutside` nothing. `factors` are scales, or lengths with by="sizes", of each axis;
    without them they are an input. `policy` keeps the aspect ratio of lengths. `bounds` (all starts, then all ends,
    from 0 to 1) is the region to read for coordinates "tf_crop_and_resize", also an optional input; `outside` fills
    positions beyond x. Scales and region get no gradient.

    Shapes    x (any), sizes or scales (count of axes), region (2 count of axes) -> y (..., floor(scale n), ...)
    Source    ONNX operator Resize
    Raises    ShapeError if x has no such axis or no element to read, or if there is no factor for an axis;
              ArgumentError for other modes
    """

    reads = ("sizes", "scales", "region")
    indices = shapeInputs = ("sizes",)

    def __init__(
        self,
        axes: Wholes,
        by: Annotated[str, choice("scales", "sizes")] = "scales",
        factors: Items | None = None,
        mode: Annotated[str, choice("nearest", "linear", "cubic")] = "nearest",
        coordinates: Annotated[str, choice(*COORDINATES)] = "half_pixel",
        rounding: Annotated[str, choice(*ROUNDINGS)] = "round_prefer_floor",
        cubicA: Scalar = -0.75,
        antialias: Flag = False,
        excludeOutside: Flag = False,
        policy: Annotated[str, choice(*POLICIES)] = "stretch",
        bounds: Items | None = None,
        outside: Scalar = 0.0,
        name=None,
    ):
        super().__init__(name)
        need(len(bounds or ()) in (0, 2 * len(axes)), f"bounds: {len(axes)} starts, then {len(axes)} ends", bounds)
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
        need(not isOpen, "numbers for sizes whose aspect ratio is kept", x)
        ratio = (min if self.policy == "not_larger" else max)(ratios)
        return [(a, floor(ratio * x[a] + HALF), ratio) for a in axes]

    def dataShapeFrom(self, x, sizes=None, scales=None, region=None):
        count = len(self.axes)
        target = sizes if self.by == "sizes" else scales
        need(self.factors is not None or target == (count,), f"factors, or {self.by} of shape ({count},)", target)
        need(region is None or region == (2 * count,), f"a region of shape ({2 * count},)", region)
        known: Any = self.factors
        if known is None:
            value = valueOf(target)
            known = None if value is None else sizesOf(value)
        shape = list(x)
        axes = [normalAxis(axis, len(x)) for axis in self.axes]
        for axis, length, _ in [(a, None, None) for a in axes] if known is None else self.planned(x, known):
            need(length is None or length == 0 or x[axis] != 0, "at least one element to read", x)
            shape[axis] = length
        return tuple(shape)

    def taps(self, x, sizes, scales, region):
        """(axis, taps) of each axis that changes."""
        target = sizes if self.by == "sizes" else scales
        factors = self.factors if target is None else np.asarray(target).tolist()
        count, axisTaps = len(self.axes), []
        ends = (0.0,) * count + (1.0,) * count
        ends = self.bounds or ends if region is None else np.asarray(region).tolist()
        for i, (axis, length, scale) in enumerate(self.planned(x, factors)):
            part = ends[i], ends[count + i]
            if length != x[axis] or scale != 1 or self.coordinates == CROP and part != (0, 1):
                axisTaps.append((axis, _ResizeTaps.of(x[axis], length, scale, part, self)))
        return axisTaps

    @onHost
    def updateData(self, x, sizes=None, scales=None, region=None):
        axisTaps = self.taps(x.shape, sizes, scales, region)
        y = chosen(x, axisTaps) if self.mode == "nearest" else interpolated(x, axisTaps)
        for axis, taps in axisTaps:
            if taps.outside.any():
                y = np.where(along(taps.outside, axis, y.ndim), np.asarray(self.outside, y.dtype), y)
        return y

    @onHost
    def updateGrad(self, grad, x, sizes, scales, region, y):
        return resizeGradient(grad, x.shape, self.taps(x.shape, sizes, scales, region)), None, None, None

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
    """floor(scale * size); None for a symbol, if the fraction `scale` has a denominator above DENOMINATOR."""
    exact = simplest(scale)
    if not isinstance(size, Dim):
        return floor(size * exact)
    return size * exact.numerator // exact.denominator if exact.denominator <= DENOMINATOR else None


def along(values, axis, rank):
    """Return a vector in a shape that broadcasts along one axis of an array of this rank."""
    return values.reshape((-1,) + (1,) * (rank - 1 - axis))


def chosen(x, axisTaps):
    """Return the nearest elements along each axis."""
    for axis, taps in axisTaps:
        x = x.take(taps.index[:, 0], axis=axis)
    return x


@widened
def interpolated(x, axisTaps):
    """The weighted sum of the taps of each axis."""
    for axis, (index, weight, _) in axisTaps:
        weight = weight.astype(x.dtype)
        y = 0
        for t in range(index.shape[1]):
            y = y + x.take(index[:, t], axis=axis) * along(weight[:, t], axis, x.ndim)
        x = y
    return x


@widened
def resizeGradient(grad, shape, axisTaps):
    """Return the gradient of x: the gradient of y times the transposed matrix of each axis."""
    for axis, taps in reversed(axisTaps):
        matrix = taps.matrix(shape[axis], grad.dtype)
        grad = np.matmul(np.moveaxis(grad, axis, -1), matrix)
        grad = np.moveaxis(grad, -1, axis)
    return grad
