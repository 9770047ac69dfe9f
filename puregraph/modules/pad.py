"""Pad: more elements before and after, along the last axes."""

import numpy as np

from puregraph.core.arguments import Scalar, choice, isWhole
from puregraph.core.base.dtype import inferredType, needType
from puregraph.core.base.widen import widened
from puregraph.core.errors import need
from puregraph.core.shape import sizesOf, valueOf
from puregraph.graph.module import Module

MODES = ("constant", "reflect", "edge")


class Pad(Module):
    """y[before + i] = x[i] along each padded axis; around it `fillValue`, the mirror image, or the nearest element.

    `pad` counts the elements on both sides of every axis after the second, (n, c, ...); or (left, right) of the last
    axis, (up, down, left, right) of the last two, and so on; or one (before, after) per axis, for the last ones.
    "reflect" mirrors at the outermost element, which is not repeated; "edge" repeats it. Without `pad`, `pads` are a
    second input, integers: (before, after) for each of the last axes.

    Shapes    x (..., d), pads (count of axes, 2) -> y (..., before + d + after)
    Source    the NumPy reference, numpy.pad; PuzzleLib's Pad1D and Pad2D
    Raises    ShapeError if x has too few axes, or one is too short to be mirrored
    """

    reads = ("pads",)
    flopsPerElement = 0
    indices = shapeInputs = ("pads",)

    def __init__(self, pad=None, mode: choice(*MODES) = "constant", fillValue: Scalar = 0.0, name=None):
        super().__init__(name)
        self.pad = None
        if pad is not None:
            self.pad, self.pads = pairsOf(pad), None
        self.mode, self.fillValue = mode, fillValue

    def widths(self, rank, pads=None):
        """(before, after) of every axis."""
        pad = self.pad
        if pads is not None:
            flat = sizesOf(pads)
            need(not any(n < 0 for n in flat), "pads of at least 0", flat, "Slice cuts elements off")
            pad = tuple(zip(flat[::2], flat[1::2]))
        if isinstance(pad, int):
            return ((0, 0),) * 2 + ((pad, pad),) * (rank - 2)
        return ((0, 0),) * (rank - len(pad)) + pad

    def dataShapeFrom(self, x, pads=None):
        if self.pad is None:
            need(pads is not None and len(pads) == 2 and pads[1] == 2, "pads of shape (count of axes, 2)", pads)
            count = pads[0]
        least = count if self.pad is None else 3 if isinstance(self.pad, int) else len(self.pad)
        need(len(x) >= least, f"at least {least} axes", x, "one number pads all axes after the second")
        if self.pad is None and valueOf(pads) is None:
            return (*x[: len(x) - count], *[None] * count)
        return self.padded(x, self.widths(len(x), valueOf(pads)))

    def padded(self, x, widths):
        """The shape with its borders, for which there has to be something to copy."""
        for axis, (size, width) in enumerate(zip(x, widths)):
            least = 0 if self.mode == "constant" or max(width) == 0 else max(width) + 1 if self.mode == "reflect" else 1
            need(size >= least, f"at least {least} along axis {axis}, for {self.mode} padding of {width}", x)
        return tuple(before + size + after for size, (before, after) in zip(x, widths))

    def dataTypeFrom(self, x, pads=None):
        inferredType(self, (x, pads))
        fits = x is None or self.mode != "constant" or np.asarray(self.fillValue).astype(x) == self.fillValue
        needType(fits, f"a dtype that holds {self.fillValue}", x, "convert the data with .astype('float32')")
        return x

    def updateData(self, x, pads=None):
        widths = self.widths(x.ndim, pads)
        shape = self.padded(x.shape, widths)
        if self.mode != "constant":
            return np.pad(x, widths, mode=self.mode)
        y = np.full_like(x, self.fillValue, shape=shape)
        y[inside(widths, x.shape)] = x
        return y

    def updateGrad(self, grad, x, pads, y):
        widths = self.widths(x.ndim, pads)
        isConstant = self.mode == "constant"
        return grad[inside(widths, x.shape)] if isConstant else addBorders(grad, widths, self.mode), None

    def sample(self, rng, x, *pads):
        return [rng.standard_normal(x), *[np.ones(shape, int) for shape in pads]]

    @classmethod
    def examples(cls):
        yield cls(1), [(1, 2, 3)]
        yield cls((1, 2), fillValue=1.5), [(2, 3)]
        yield cls((0, 1, 2, 0)), [(1, 2, 3, 2)]
        yield cls(((1, 0), (0, 2), (1, 1)), fillValue=-1.0), [(2, 3, 1)]
        yield cls(2, mode="reflect"), [(1, 2, 4, 3)]
        yield cls((1, 2), mode="reflect"), [(2, 3)]
        yield cls((2, 0, 1, 3), mode="edge"), [(2, 2, 1)]
        yield cls(), [(2, 3), (1, 2)]
        yield cls(mode="edge"), [(2, 3, 2), (2, 2)]


def pairsOf(pad):
    """`pad` as a user gives it: one integer, or (before, after) for each of the last axes."""
    parts = pad if isinstance(pad, (tuple, list)) else (pad,)
    flat = [side for part in parts for side in (part if isinstance(part, (tuple, list)) else (part,))]
    isNumber = parts is not pad
    fits = all(isWhole(side, 0) for side in flat) and (isNumber or flat and len(flat) % 2 == 0)
    need(
        fits,
        "pad as a number of elements, or (before, after) for each of the last axes",
        pad,
        "Slice cuts elements off",
    )
    return int(pad) if isNumber else tuple((int(a), int(b)) for a, b in zip(flat[::2], flat[1::2]))


def inside(widths, shape):
    """The index of x in y."""
    return tuple(slice(before, before + size) for (before, _), size in zip(widths, shape))


@widened
def addBorders(grad, widths, mode):
    """The gradient, with its padding added to the elements that were copied there, axis by axis."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            lead, end = (slice(None),) * axis, grad.shape[axis] - after
            left, right = grad[(*lead, slice(0, before))], grad[(*lead, slice(end, None))]
            grad, last = grad[(*lead, slice(before, end))], end - before - 1
            if mode == "edge":
                parts = (left.sum(axis=axis, keepdims=True), 0), (right.sum(axis=axis, keepdims=True), last)
            else:
                parts = (np.flip(left, axis), 1), (np.flip(right, axis), last - after)
            for part, start in parts:
                rest = last + 1 - start - part.shape[axis]
                grad = grad + np.pad(part, [(start, rest) if i == axis else (0, 0) for i in range(grad.ndim)])
    return grad
