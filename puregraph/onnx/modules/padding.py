"""PadAll: more or fewer elements at both ends of chosen axes."""

import numpy as np

from puregraph.core.arguments import Scalar, Wholes, choice, optional
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.modules.pad import addBorders

MODES = ("constant", "reflect", "edge", "wrap")


class PadAll(Module):
    """y[before + i] = x[i] along each of `axes`; around it `fillValue`, the mirror image, the edge, or x again.

    `pads` are all numbers before, then all after; a negative one cuts elements off. Without them they are an input;
    `fill` is one that stands for `fillValue`.

    Shapes    x (any), pads (2 count of axes), fill () -> y (..., before + d + after, ...)
    Source    ONNX operator Pad
    Raises    ShapeError if x has no such axis, or there are not two numbers for each
    """

    reads = ("pads", "fill")
    keepsDtype = True
    flopsPerElement = 0
    indices = shapeInputs = ("pads",)

    def __init__(
        self,
        axes: Wholes,
        mode: choice(*MODES) = "constant",
        fillValue: Scalar = 0.0,
        pads: optional(Wholes) = None,
        name=None,
    ):
        super().__init__(name)
        self.axes, self.mode, self.fillValue = tuple(axes), mode, fillValue
        self.width = None if pads is None else tuple(pads)
        if pads is not None:
            self.pads = None

    def widths(self, rank, pads):
        """(before, after) of every axis."""
        count = len(self.axes)
        need(len(pads) == 2 * count, f"{2 * count} pads", list(pads))
        pairs = [(0, 0)] * rank
        for i, axis in enumerate(self.axes):
            pairs[normalAxis(axis, rank)] = (pads[i], pads[count + i])
        return pairs

    def dataShapeFrom(self, x, pads=None, fill=None):
        known = self.width
        need(fill is None or fill in ((), (1,)), "one number to fill with", fill)
        need(pads is None or pads == (2 * len(self.axes),), f"pads of shape ({2 * len(self.axes)},)", pads)
        if pads is not None:
            value = valueOf(pads)
            if value is None or value.dtype.kind == "O":
                chosen = [normalAxis(a, len(x)) for a in self.axes]
                return tuple(None if i in chosen else n for i, n in enumerate(x))
            known = sizesOf(value)
        shape = tuple(before + n + after for n, (before, after) in zip(x, self.widths(len(x), known)))
        need(not any(n < 0 for n in shape), "elements that can be cut off", x)
        return shape

    def dataTypeFrom(self, x, pads=None, fill=None):
        super().dataTypeFrom(x, pads, fill)
        return x

    def split(self, x, pads):
        """The slices to cut out, and the widths to pad."""
        widths = self.widths(x.ndim, self.width if pads is None else sizesOf(pads))
        cut = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths))
        return cut, [(max(0, a), max(0, b)) for a, b in widths]

    def updateData(self, x, pads=None, fill=None):
        cut, around = self.split(x, pads)
        if self.mode == "constant":
            value = np.asarray(self.fillValue).astype(x.dtype) if fill is None else fill.reshape(())
            return np.pad(x[cut], around, constant_values=value)
        return np.pad(x[cut], around, mode=self.mode)

    def updateGrad(self, grad, x, pads, fill, y):
        cut, around = self.split(x, pads)
        if self.mode in ("reflect", "edge"):
            inner = addBorders(grad, around, self.mode)
        elif self.mode == "wrap":
            inner = wrapped(grad, around)
        else:
            inner = grad[tuple(slice(a, n - b) for n, (a, b) in zip(grad.shape, around))]
        gx = np.zeros_like(grad, shape=x.shape)
        gx[cut] = inner
        return gx, None, None if fill is None else np.asarray(grad.sum() - inner.sum()).reshape(fill.shape)

    def sample(self, rng, x, *rest):
        return [rng.standard_normal(x), *[np.ones(s, int) for s in rest[:1]], *[np.full(s, 0.5) for s in rest[1:]]]

    @classmethod
    def examples(cls):
        yield cls((0, 1), pads=(1, 0, 2, 1)), [(2, 3)]
        yield cls((1,), fillValue=1.5, pads=(-1, 2)), [(2, 3)]
        yield cls((-1,), mode="reflect", pads=(1, 1)), [(2, 3)]
        yield cls((0,), mode="edge", pads=(1, 2)), [(2, 3)]
        yield cls((1,), mode="wrap", pads=(1, 2)), [(2, 3)]
        yield cls((0,)), [(2, 3), (2,)]
        yield cls((0,)), [(2, 3), (2,), ()]


def wrapped(grad, widths):
    """The gradient, with that of copies added where they were copied from."""
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
