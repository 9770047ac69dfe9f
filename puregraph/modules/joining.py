"""Concat and Split: arrays joined or cut along an axis."""

from itertools import accumulate
from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Whole, isWhole
from puregraph.core.base.widen import asResultType
from puregraph.core.dim import Dim
from puregraph.core.errors import need, show
from puregraph.core.shape import normalAxis, sizesOf, valueOf
from puregraph.graph.module import Module
from puregraph.modules.windows import halves


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
        return tuple([grad[lead + (slice(*part),)] if wanted else None for part, wanted in zip(parts, needs)])

    @classmethod
    def examples(cls):
        yield cls(axis=1), [(2, 3), (2, 4)]
        yield cls(axis=-1), [(2, 2, 3), (2, 2, 1), (2, 2, 2)]
        yield cls(axis=0), [(3,)]
        yield cls(axis=-3), [(2, 3, 2), (1, 3, 2)]


MAX_OUTPUTS = 65536  # the most outputs, as each has a name


class DepthConcat(Module):
    """y = the maps of all inputs one after the other, smaller ones in the middle of zeros

    Shapes    x_i (n, maps_i, *spatial_i) -> y (n, sum of maps_i, *largest lengths)
    Source    Szegedy et al. 2015, arXiv:1409.4842, section 4; PuzzleLib's DepthConcat
    Raises    ShapeError if inputs have other samples or ranks
    """

    reads = ("xs",)
    keepsDtype = True
    flopsPerElement = 0

    def dataShapeFrom(self, *xs):
        fits = xs and len(xs[0]) >= 2 and all(len(x) == len(xs[0]) and x[0] == xs[0][0] for x in xs)
        need(fits, "inputs (n, maps, *spatial) of one n and rank", list(xs))
        lengths = [set(sizes) for sizes in zip(*[x[2:] for x in xs])]
        areKnown = all(len(n) == 1 or not any(isinstance(size, Dim) for size in n) for n in lengths)
        need(areKnown, "numbers for lengths that differ", list(xs), "which is the largest depends on the symbol")
        return (xs[0][0], sum(x[1] for x in xs), *map(max, lengths))

    def updateData(self, *xs):
        lengths, same = self.dataShapeFrom(*[x.shape for x in xs])[2:], [(0, 0)] * 2
        sides = [[halves(m - n) for n, m in zip(x.shape[2:], lengths)] for x in xs]
        return np.concatenate([np.pad(x, same + side) for x, side in zip(asResultType(*xs), sides)], axis=1)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 1, 3, 4), (2, 2, 5, 1)]
        yield cls(), [(1, 2, 3)]


class Split(Module):
    """y_0, y_1, ... = x cut along `axis`, which may count from the end.

    `sections` are the sizes of the parts, or one integer: the number of parts of equal size. If they are None, a second
    input `lengths` has the sizes of `count` parts.

    Shapes    x (..., n0 + n1 + ..., ...), lengths (count) -> yi (..., ni, ...)
    Source    ONNX operator Split; PuzzleLib's Split
    Raises    ShapeError if the sizes do not add up to the axis, or it is not divisible into equal parts
    """

    reads = ()
    views = True
    flopsPerElement = 0
    followsValues = True
    indices = shapeInputs = ("lengths",)

    def __init__(self, axis: Whole, sections=None, name=None, count: Count | None = None):
        super().__init__(name)
        need((sections is None) != (count is None), "sections, or the count of parts whose lengths are an input", count)
        self.axis, self.sections = axis, sections
        self.count: Any = count
        if sections is not None:
            sizes = sections if isinstance(sections, (tuple, list)) else (sections,)
            isTuple = sizes is sections
            areCounts = all(isWhole(size, 0 if isTuple else 1) for size in sizes)
            need(sizes and areCounts, "sections of at least 0, or one number of equal parts of at least 1", sections)
            self.sections, self.count = (tuple(sizes), len(sizes)) if isTuple else (sections, sections)
            self.lengths = None
        need(self.count <= MAX_OUTPUTS, f"at most {MAX_OUTPUTS} parts", self.count)

    @property
    def outputNames(self):
        return tuple(map(str, range(self.count)))

    def sizes(self, size, lengths=None):
        """The sizes of the parts of an axis."""
        sections = self.sections if lengths is None else tuple(sizesOf(lengths))
        if isinstance(sections, tuple):
            wanted = f"an axis {self.axis} of {sum(sections)}, the sum of the sections {sections}"
            need(size == sum(sections) and not any(n < 0 for n in sections), wanted, size)
            return sections
        need(size % self.count == 0, f"an axis {self.axis} that is a multiple of {self.count}", size)
        return (size // self.count,) * self.count

    def dataShapeFrom(self, x, lengths=None):
        axis = normalAxis(self.axis, len(x))
        value = None
        if self.sections is None:
            need(lengths == (self.count,), f"lengths of shape ({self.count},)", lengths)
            value = valueOf(lengths)
        isOpen = self.sections is None and value is None
        sizes = (None,) * self.count if isOpen else self.sizes(x[axis], value)
        shapes = [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]
        return shapes if self.count > 1 else shapes[0]

    def updateData(self, x, lengths=None):
        axis = normalAxis(self.axis, x.ndim)
        ends = list(accumulate(self.sizes(x.shape[axis], lengths)))
        lead = (slice(None),) * axis
        return tuple([x[lead + (slice(*part),)] for part in zip([0, *ends], ends)])

    def updateGrad(self, grad, x, lengths, *ys):
        grads = grad if self.count > 1 else [grad]
        known = next(g for g in grads if g is not None)
        parts = [np.zeros_like(known, shape=y.shape) if g is None else g for g, y in zip(grads, ys)]
        return np.concatenate(parts, axis=self.axis), None

    def sample(self, rng, x, *lengths):
        return [rng.standard_normal(x), *[np.full(shape, x[self.axis] // shape[0]) for shape in lengths]]

    @classmethod
    def examples(cls):
        yield cls(axis=1, sections=(2, 1, 3)), [(2, 6)]
        yield cls(axis=-1, sections=2), [(2, 3, 4)]
        yield cls(axis=0, sections=[3]), [(3, 2)]
        yield cls(axis=0, sections=1), [(3, 2)]
        yield cls(axis=1, sections=(2, 0, 3)), [(2, 5)]
        yield cls(axis=1, count=2), [(2, 4), (2,)]
