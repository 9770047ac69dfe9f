"""Concat and Split: arrays joined or cut along an axis."""

from itertools import accumulate
from numbers import Integral

import numpy as np

from puregraph.core.arguments import Whole
from puregraph.core.base.widen import asResultType
from puregraph.core.errors import need, show
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module


class Concat(Module):
    """y = [x1, x2, ...] along `axis`, which may count from the end; any number of inputs.

    Shapes    xi (..., ni, ...) -> y (..., n1 + n2 + ..., ...)
    Source    Huang, Liu, van der Maaten, Weinberger 2017, arXiv:1608.06993, eq. 2; PuzzleLib's Concat
    Raises    ShapeError if two inputs differ in another axis, or in rank
    """

    reads = ()
    flopsPerElement = 0
    followsValues = True
    keepsDtype = True

    def __init__(self, axis: Whole, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, *xs):
        need(xs, "at least one input", "none")
        axis = normalAxis(self.axis, len(xs[0]))
        rests = [x[:axis] + x[axis + 1 :] for x in xs]
        fits = all(len(x) == len(xs[0]) and others == rests[0] for x, others in zip(xs, rests))
        wanted = show((*xs[0][:axis], "*", *xs[0][axis + 1 :]))
        need(fits, f"inputs like the first, {wanted}", list(xs), f"they may differ only in axis {axis}")
        return (*xs[0][:axis], sum(x[axis] for x in xs), *xs[0][axis + 1 :])

    def updateData(self, *xs, out=None):
        return np.concatenate(asResultType(*xs), axis=self.axis, out=out)

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        axis = normalAxis(self.axis, grad.ndim)
        ends = list(accumulate(x.shape[axis] for x in xs))
        parts = zip([0, *ends], ends)
        lead = (slice(None),) * axis
        return tuple([grad[(*lead, slice(*part))] if wanted else None for part, wanted in zip(parts, needs)])

    @classmethod
    def examples(cls):
        yield cls(axis=1), [(2, 3), (2, 4)]
        yield cls(axis=-1), [(2, 2, 3), (2, 2, 1), (2, 2, 2)]
        yield cls(axis=0), [(3,)]
        yield cls(axis=-3), [(2, 3, 2), (1, 3, 2)]


MOST = 65536  # the most outputs, as each has a name


class Split(Module):
    """y_0, y_1, ... = x cut along `axis`, which may count from the end.

    `sections` are the sizes of the parts, or one integer: the number of parts of equal size.

    Shapes    x (..., n0 + n1 + ..., ...) -> yi (..., ni, ...)
    Source    ONNX operator Split; PuzzleLib's Split
    Raises    ShapeError if the sizes do not add up to the axis, or it is not divisible into equal parts
    """

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True

    def __init__(self, axis: Whole, sections, name=None):
        super().__init__(name)
        sizes = sections if isinstance(sections, (tuple, list)) else (sections,)
        areCounts = all(isinstance(size, Integral) and not isinstance(size, bool) and size >= 1 for size in sizes)
        need(sizes and areCounts, "sections of at least 1, or one number of equal parts", sections)
        self.axis = axis
        self.sections = tuple(sizes) if sizes is sections else sections
        self.count = len(sizes) if sizes is sections else sections
        need(self.count <= MOST, f"at most {MOST} parts", self.count)

    @property
    def outputNames(self):
        return tuple(map(str, range(self.count)))

    def sizes(self, size):
        """The sizes of the parts of an axis."""
        if isinstance(self.sections, tuple):
            wanted = f"an axis {self.axis} of {sum(self.sections)}, the sum of the sections {self.sections}"
            need(size == sum(self.sections), wanted, size)
            return self.sections
        need(size % self.count == 0, f"an axis {self.axis} that is a multiple of {self.count}", size)
        return (size // self.count,) * self.count

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        shapes = [(*x[:axis], size, *x[axis + 1 :]) for size in self.sizes(x[axis])]
        return shapes if self.count > 1 else shapes[0]

    def updateData(self, x):
        axis = normalAxis(self.axis, x.ndim)
        ends = list(accumulate(self.sizes(x.shape[axis])))
        lead = (slice(None),) * axis
        return tuple([x[(*lead, slice(*part))] for part in zip([0, *ends], ends)])

    def updateGrad(self, grad, x, *ys):
        grads = grad if self.count > 1 else [grad]
        known = next(g for g in grads if g is not None)
        parts = [np.zeros_like(known, shape=y.shape) if g is None else g for g, y in zip(grads, ys)]
        return np.concatenate(parts, axis=self.axis)

    @classmethod
    def examples(cls):
        yield cls(axis=1, sections=(2, 1, 3)), [(2, 6)]
        yield cls(axis=-1, sections=2), [(2, 3, 4)]
        yield cls(axis=0, sections=[3]), [(3, 2)]
        yield cls(axis=0, sections=1), [(3, 2)]
