"""Upsample2D: images enlarged by an integer factor."""

import numpy as np

from puregraph.arguments import choice
from puregraph.base.widen import widened
from puregraph.core.shape import givenSizes, product, sizesOf
from puregraph.errors import need
from puregraph.module import Module
from puregraph.modules.windows import needRank, perAxis


class Upsample2D(Module):
    """y[i] = x[i // s], or, with mode="linear", y[i] = (1 - f) x[j] + f x[j + 1], j + f = (i + 1/2) / s - 1/2

    along height and width, `scale` being s or a pair of them. Beyond the border the border's value counts: positions
    are those of the centres of pixels. With `scale=None`, `scales` are a second input, two integers.

    Shapes    x (n, c, h, w), scales (2) -> y (n, c, s_h h, s_w w)
    Source    ONNX operator Resize with coordinates half_pixel; PuzzleLib's Upsample2D
    Raises    ShapeError if x has another rank or no pixels, or the scale is no integer;
              ArgumentError for another mode
    """

    reads = ()
    indices = shapeInputs = ("scales",)

    def __init__(self, scale=2, mode: choice("nearest", "linear") = "nearest", name=None):
        super().__init__(name)
        self.scale, self.mode = None, mode
        if scale is not None:
            self.scale, self.scales = perAxis(scale, 2, "scale"), None
        self.needsFloats, self.keepsDtype = mode == "linear", mode == "nearest"

    def dataShapeFrom(self, x, scales=None):
        h, w = needRank(x, 2)
        need(h >= 1 and w >= 1, "at least one pixel", x)
        if self.scale is None:
            need(scales == (2,), "scales of shape (2,)", scales)
        scale = givenSizes(scales, "scales") if self.scale is None else self.scale
        return (*x[:2], None, None) if scale is None else (*x[:2], h * scale[0], w * scale[1])

    def scaleFrom(self, scales):
        """The factors along height and width."""
        return self.scale if scales is None else perAxis(tuple(sizesOf(scales)), 2, "scale")

    def updateData(self, x, scales=None):
        resize = repeated if self.mode == "nearest" else between
        high, wide = self.scaleFrom(scales)
        return resize(resize(x, high, 2), wide, 3)

    def updateGrad(self, grad, x, scales, y):
        gather = summed if self.mode == "nearest" else spread
        high, wide = (m // n for n, m in zip(x.shape[2:], grad.shape[2:]))
        return gather(gather(grad, wide, 3), high, 2), None

    def sample(self, rng, x, *scales):
        return [rng.standard_normal(x), *[np.array([2, 3]) for _ in scales]]

    def flopsFrom(self, x, scales=None):
        found = self.dataShapeFrom(x, scales)
        return 0 if self.mode == "nearest" or None in found else 3 * product(found)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 2, 3)]
        yield cls((3, 1)), [(1, 2, 3, 2)]
        yield cls(mode="linear"), [(2, 2, 3, 4)]
        yield cls((1, 3), mode="linear"), [(2, 1, 2, 3)]
        yield cls((4, 5), mode="linear"), [(1, 2, 1, 2)]
        yield cls(None), [(1, 2, 2, 1), (2,)]


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
    found = []
    for f in fractions(scale):
        near = neighbours(x, axis, -1 if f < 0 else 1)
        found.append((1 - abs(f)) * x + abs(f) * near)
    return np.stack(found, axis=axis + 1).reshape(*x.shape[:axis], scale * size, *x.shape[axis + 1 :])


@widened
def spread(grad, scale, axis):
    """The adjoint of `between`."""
    parts, total = phases(grad, scale, axis), 0.0
    for i, f in enumerate(fractions(scale)):
        g = parts[(slice(None),) * (axis + 1) + (i,)]
        total = total + (1 - abs(f)) * g + abs(f) * given(g, axis, -1 if f < 0 else 1)
    return total


def phases(grad, scale, axis):
    """The gradients of the `scale` copies of an element, on an axis of their own."""
    return grad.reshape(*grad.shape[:axis], grad.shape[axis] // scale, scale, *grad.shape[axis + 1 :])


def fractions(scale):
    """The distance of each of the `scale` values from the element that it starts from."""
    return [(r + 0.5) / scale - 0.5 for r in range(scale)]


def cut(x, axis, *ends):
    """A slice of an axis."""
    return x[(slice(None),) * axis + (slice(*ends),)]


def neighbours(x, axis, side):
    """The element before (-1) or after (1) each one; at the border that one itself."""
    ends = ((None, 1), (None, -1)) if side < 0 else ((1, None), (-1, None))
    return np.concatenate([cut(x, axis, *each) for each in ends], axis=axis)


def given(grad, axis, side):
    """The adjoint of `neighbours`: the gradients for the element after (-1) or before (1), or itself at the border."""
    inner = cut(grad, axis, 1, None) if side < 0 else cut(grad, axis, None, -1)
    border = cut(grad, axis, None, 1) if side < 0 else cut(grad, axis, -1, None)
    gap, rest = np.zeros_like(border), np.zeros_like(inner)
    moved = np.concatenate([inner, gap] if side < 0 else [gap, inner], axis=axis)
    return moved + np.concatenate([border, rest] if side < 0 else [rest, border], axis=axis)
