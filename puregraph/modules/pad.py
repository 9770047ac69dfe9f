"""Pad: more or fewer elements before and after, along some axes."""

from typing import Annotated, Any

import numpy as np

from puregraph.core.arguments import Scalar, Wholes, areWhole, choice
from puregraph.core.base.dtype import inferredType, needType
from puregraph.core.base.widen import widened
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.ops.convolution.windowgeometry import inner, opposite, padded

MODES = ("constant", "reflect", "edge", "wrap")


class Pad(Module):
    """y[before + i] = x[i] along each padded axis; around it `fillValue`, a mirror image, the edge, or x again.

    `pad` counts the elements on both sides of every axis after the second, (n, c, ...); or (left, right) of the last
    axis, (up, down, left, right) of the last two, and so on; or one (before, after) per axis, for the last ones or for
    `axes`. A negative side cuts elements off. "reflect" mirrors at the outermost element, which is not repeated; "edge"
    repeats it; "wrap" goes on at the other end. Without `pad`, `pads` are a second input, integers: (before, after) for
    each of these axes, or all before, then all after; an optional third input `fill` replaces `fillValue`.

    Shapes    x (..., d), pads (count of axes, 2) or (2 count of axes), fill () -> y (..., before + d + after)
    Source    the NumPy reference, numpy.pad; PuzzleLib's Pad1D and Pad2D; ONNX operator Pad
    Raises    ShapeError if x has too few axes, or one is too short to be mirrored or cut

    >>> Pad((1, 2), mode="wrap")(np.array([[1.0, 2.0, 3.0]]))
    array([[3., 1., 2., 3., 1., 2.]])
    """

    reads = ("pads", "fill")
    flopsPerElement = 0
    indices = shapeInputs = ("pads",)

    def __init__(
        self,
        pad=None,
        mode: Annotated[str, choice(*MODES)] = "constant",
        fillValue: Scalar = 0.0,
        name=None,
        axes: Wholes | None = None,
    ):
        super().__init__(name)
        self.pad: Any = None
        self.axes = None if axes is None else tuple(axes)
        if pad is not None:
            self.pad, self.pads, self.fill = pairsOf(pad), None, None
            isFitting = axes is None or isinstance(self.pad, int) or len(axes) == len(self.pad)
            need(isFitting, f"(before, after) for each of the axes {self.axes}", pad)
        self.mode, self.fillValue = mode, fillValue

    def axesFrom(self, rank, count):
        """The axes that are padded, counted from the first."""
        if self.axes is not None:
            return [normalAxis(axis, rank, "axes") for axis in self.axes]
        return range(2, rank) if isinstance(self.pad, int) else range(rank - count, rank)

    def widths(self, rank, pads=None):
        """(before, after) of every axis."""
        pad = self.pad
        if pads is not None:
            flat = sizesOf(pads)
            half = len(flat) // 2
            pad = tuple(zip(flat[::2], flat[1::2]) if pads.ndim == 2 else zip(flat[:half], flat[half:]))
        axes = self.axesFrom(rank, 0 if isinstance(pad, int) else len(pad))
        pairs = ((pad, pad),) * len(axes) if isinstance(pad, int) else pad
        widths = [(0, 0)] * rank
        for axis, pair in zip(axes, pairs):
            widths[axis] = pair
        return widths

    def dataShapeFrom(self, x, pads=None, fill=None):
        need(fill is None or fill in ((), (1,)), "one number to fill with", fill)
        count = 0
        if self.axes is None and self.pad is not None:
            count = 3 if isinstance(self.pad, int) else len(self.pad)
        if self.pad is None:
            isPairs = pads is not None and len(pads) == 2 and pads[1] == 2
            isFlat = pads is not None and len(pads) == 1 and pads[0] % 2 == 0
            isFitting = isPairs or isFlat
            count = pads[0] if isPairs else pads[0] // 2 if isFlat else 0
            isFitting = isFitting and (self.axes is None or count == len(self.axes))
            need(isFitting, "pads of shape (count of axes, 2) or (2 count of axes,)", pads)
        need(len(x) >= count, f"at least {count} axes", x, "one number pads all axes after the second")
        value = None if self.pad is not None else valueOf(pads)
        if self.pad is None and (value is None or self.mode != "constant" and value.dtype.kind == "O"):
            axes = self.axesFrom(len(x), count)
            return tuple(None if i in axes else n for i, n in enumerate(x))
        return self.padded(x, self.widths(len(x), value))

    def padded(self, x, widths):
        """Return the padded shape. Raises ShapeError if an axis has too few elements to be cut or copied."""
        for axis, (size, width) in enumerate(zip(x, widths)):
            if any(isinstance(side, Dim) for side in width):
                continue
            least = -sum(min(side, 0) for side in width)
            if self.mode != "constant" and max(width) > 0:
                least += 1 if self.mode != "reflect" else max(width) + 1
            need(not size < least, f"at least {least} along axis {axis}, for {self.mode} padding of {width}", x)
        return tuple(before + size + after for size, (before, after) in zip(x, widths))

    def dataTypeFrom(self, x, pads=None, fill=None):
        inferredType(self, (x, pads))
        fits = x is None or self.mode != "constant" or np.asarray(self.fillValue).astype(x) == self.fillValue
        needType(fits, f"a dtype that holds {self.fillValue}", x, "convert the data with .astype('float32')")
        return x

    def updateData(self, x, pads=None, fill=None):
        widths = self.widths(x.ndim, pads)
        shape = self.padded(x.shape, widths)
        if self.mode != "constant":
            cut, around = parts(widths)
            mode: Any = self.mode
            return np.pad(padded(x, cut), around, mode=mode)
        y = np.full_like(x, self.fillValue if fill is None else fill.reshape(()), shape=shape)
        y[inner(widths, shape)] = x[inner(opposite(widths), x.shape)]
        return y

    def updateGrad(self, grad, x, pads, fill, y, needs):
        widths = self.widths(x.ndim, pads)
        cut, around = parts(widths)
        if self.mode == "constant":
            inside = grad[inner(widths, grad.shape)]
        else:
            inside = wrapped(grad, around) if self.mode == "wrap" else addBorders(grad, around, self.mode)
        gFill = (grad.sum() - inside.sum()).reshape(fill.shape) if needs[2] else None
        return padded(inside, opposite(cut)), None, gFill

    def sample(self, rng, x, *rest):
        return [rng.standard_normal(x), *[np.ones(s, int) for s in rest[:1]], *[np.full(s, 0.5) for s in rest[1:]]]

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
        yield cls(((1, 2), (-1, 1)), fillValue=1.5, axes=(0, -1)), [(2, 2, 3)]
        yield cls((-1, 2), mode="reflect"), [(2, 4)]
        yield cls(((1, 2),), mode="wrap", axes=(0,)), [(2, 3)]
        yield cls(axes=(0,)), [(2, 3), (2,), ()]


def pairsOf(pad):
    """Return a user's `pad` as one integer, or as (before, after) for each of the last axes."""
    parts = pad if isinstance(pad, (tuple, list)) else (pad,)
    flat = [side for part in parts for side in (part if isinstance(part, (tuple, list)) else (part,))]
    isNumber = parts is not pad
    fits = areWhole(flat) and (isNumber or flat and len(flat) % 2 == 0)
    need(fits, "pad as a number of elements, or (before, after) for each of the last axes", pad)
    return int(pad) if isNumber else tuple((int(a), int(b)) for a, b in zip(flat[::2], flat[1::2]))


def parts(widths):
    """Return the negative sides, which are cut off first, and the positive ones, which are then padded."""
    return [(min(0, a), min(0, b)) for a, b in widths], [(max(0, a), max(0, b)) for a, b in widths]


@widened
def addBorders(grad, widths, mode):
    """Return the gradient of x: that of each border is added to the elements copied there, axis by axis."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            lead, end = (slice(None),) * axis, grad.shape[axis] - after
            left, right = grad[lead + (slice(0, before),)], grad[lead + (slice(end, None),)]
            grad, last = grad[lead + (slice(before, end),)], end - before - 1
            if mode == "edge":
                parts = (left.sum(axis=axis, keepdims=True), 0), (right.sum(axis=axis, keepdims=True), last)
            else:
                parts = (np.flip(left, axis), 1), (np.flip(right, axis), last - after)
            for part, start in parts:
                rest = last + 1 - start - part.shape[axis]
                grad = grad + np.pad(part, [(start, rest) if i == axis else (0, 0) for i in range(grad.ndim)])
    return grad


def wrapped(grad, widths):
    """Return the gradient of x: that of each copy is added to the element that was copied."""
    for axis, (before, after) in enumerate(widths):
        size = grad.shape[axis] - before - after
        if size == 0 or not before + after:
            continue
        parts = np.moveaxis(grad, axis, 0)
        total = np.zeros_like(parts, shape=(size, *parts.shape[1:]))
        for start in range(before % size - size, len(parts), size):
            first, last = max(start, 0), min(start + size, len(parts))
            at = slice(first - start, last - start)
            total[at] = total[at] + parts[first:last]
        grad = np.moveaxis(total, 0, axis)
    return grad
