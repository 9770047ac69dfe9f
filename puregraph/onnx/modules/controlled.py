"""Controlled: modules with an option as an input, which run another module once the option is known."""

import numpy as np

from puregraph import modules
from puregraph.core.arguments import Count, Flag, Items, Whole, choice
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis, product, valueOf
from puregraph.graph.module import Module
from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.joining import MOST
from puregraph.modules.selection import TopKValues, Trilu
from puregraph.onnx.modules.reduceaxes import REDUCTIONS, ReduceFilled


class _Controlled(Module):
    """Base class: `controlledBy(shape, options)` makes the module to run; `openShape` is the shape without options."""

    keepsDtype = True
    flopsPerElement = 1
    reads = ("x", "options")
    followsValues = True
    indices = shapeInputs = ("options",)

    def made(self, x, options):
        """The module for an input of this shape, and for options whose elements are known."""
        return self.controlledBy(x, None if options is None else np.asarray(options).ravel().tolist())

    def dataShapeFrom(self, x, options=None):
        if options is not None:
            isKnown = len(options) <= 1 and not any(isinstance(n, Dim) for n in options)
            need(isKnown and self.fitting(len(x), options), "as many options as there can be", options)
            value = valueOf(options)
            if value is None or value.dtype.kind == "O":
                return self.openShape(x, options)
            options = value
        return self.made(x, options).dataShapeFrom(x)

    def fitting(self, rank, options):
        """True if options may have this shape."""
        return options in ((), (1,))

    def dataTypeFrom(self, x, options=None):
        super().dataTypeFrom(x, options)
        return x

    def valueFrom(self, x, options=None):
        value, chosen = valueOf(x), None if options is None else valueOf(options)
        isOpen = value is not None and value.dtype.kind == "O" and (options is None or chosen is not None)
        return self.made(x, chosen).valueFrom(x) if isOpen else super().valueFrom(x, options)

    def updateData(self, x, options=None):
        return self.made(x.shape, options).updateData(x)

    def updateGrad(self, grad, x, options, *ys):
        module = self.made(x.shape, options)
        if module.isDiscrete or module.updateGrad is None:
            return None, None
        outputs = module.updateData(x) if module.hidden else ys[0]
        outputs = outputs if type(outputs) is tuple else (outputs,)
        gx = module.updateGrad(grad, x, *outputs)
        return gx[0] if type(gx) is tuple else gx, None

    def sample(self, rng, x, *options):
        return [rng.standard_normal(x), *[np.arange(product(shape)).reshape(shape) for shape in options]]


class ReduceAxes(_Controlled):
    """y = the sum, mean, product ... of x over the axes in `options`; without options over all axes, or over none.

    Shapes    x (any), options (count) -> y without the axes, or of length one there
    Source    ONNX operators ReduceSum, ReduceMean, Prod, ReduceMax ...
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ("x", "options", "y")

    def __init__(self, kind: choice(*REDUCTIONS) = "Sum", keepdims: Flag = True, ifEmpty: Flag = False, name=None):
        super().__init__(name)
        self.kind, self.keepdims, self.ifEmpty = kind, keepdims, ifEmpty

    def fitting(self, rank, options):
        return len(options) == 1 and options[0] <= rank

    def openShape(self, x, options):
        return (None,) * (len(x) if self.keepdims else len(x) - options[0])

    def controlledBy(self, x, axes):
        if not axes:
            axes = () if self.ifEmpty else tuple(range(len(x)))
        axes = tuple(normalAxis(axis, len(x)) for axis in axes)
        if any(x[axis] == 0 for axis in axes):
            return ReduceFilled(self.kind, axes, self.keepdims)
        return REDUCTIONS[self.kind](axes, self.keepdims)

    def dataTypeFrom(self, x, options=None):
        super().dataTypeFrom(x, options)
        return x

    def updateData(self, x, options=None):
        y = self.made(x.shape, options).updateData(x)
        return y.astype(x.dtype, copy=False)

    def sample(self, rng, x, *options):
        _, *rest = super().sample(rng, x, *options)
        return [1 + rng.random(x), *rest]

    @classmethod
    def examples(cls):
        for kind in REDUCTIONS:
            yield cls(kind), [(2, 3), (1,)]
        yield cls("Sum", keepdims=False), [(2, 3)]


class CumulativeAxis(_Controlled):
    """y = the cumulative sum or product of x along the axis in `options`.

    Shapes    x (any), options () or (1,) -> y as x
    Source    ONNX operators CumSum, CumProd
    Raises    ShapeError if x has no such axis
    """

    def __init__(
        self, kind: choice("sum", "product") = "sum", exclusive: Flag = False, reverse: Flag = False, name=None
    ):
        super().__init__(name)
        self.kind, self.exclusive, self.reverse = kind, exclusive, reverse

    def openShape(self, x, options):
        return x

    def controlledBy(self, x, axes):
        make = CumSum if self.kind == "sum" else CumProd
        return make(axes[0] if axes else 0, self.exclusive, self.reverse)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), ()]
        yield cls("product"), [(2, 3), (1,)]


class TopCount(_Controlled):
    """values, indices = the k largest or smallest elements of x along the axis, with k in `options`.

    Shapes    x (..., n, ...), options (1,) -> values, indices (..., k, ...)
    Source    ONNX operator TopK
    Raises    ShapeError if there are fewer elements
    """

    def __init__(self, axis: Whole = -1, largest: Flag = True, name=None):
        super().__init__(name)
        self.axis, self.largest = axis, largest

    @property
    def outputNames(self):
        return ("values", "indices")

    def openShape(self, x, options):
        axis = normalAxis(self.axis, len(x))
        return [(*x[:axis], None, *x[axis + 1 :])] * 2

    @property
    def reads(self):
        return ("options", "indices")

    def controlledBy(self, x, count):
        return TopKValues(count[0], self.axis, self.largest)

    def dataTypeFrom(self, x, options=None):
        return [x, np.dtype(np.int64)]

    def updateGrad(self, grad, x, options, *ys):
        return self.made(x.shape, options).updateGrad(grad, x, *ys), None

    def sample(self, rng, x, options):
        return [rng.standard_normal(x), np.full(options, 2)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (1,)]


class TriluFrom(_Controlled):
    """y = x with zeros below or above the diagonal whose number is in `options`.

    Shapes    x (..., n, m), options () -> y as x
    Source    ONNX operator Trilu
    Raises    ShapeError if x has fewer than two axes
    """

    def __init__(self, upper: Flag = True, name=None):
        super().__init__(name)
        self.upper = upper

    def openShape(self, x, options):
        return x

    def controlledBy(self, x, diagonal):
        return Trilu(self.upper, diagonal[0] if diagonal else 0)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), ()]


class SplitSizes(_Controlled):
    """y_0, y_1, ... = x split along the axis into parts of the sizes in `options`.

    Shapes    x (..., n, ...), options (count) -> yi (..., ni, ...)
    Source    ONNX operator Split
    Raises    ShapeError if the sizes do not add up to the axis
    """

    def __init__(self, axis: Whole, count: Count, name=None):
        super().__init__(name)
        need(count <= MOST, f"at most {MOST} parts", count)
        self.axis, self.count = axis, count

    @property
    def outputNames(self):
        return tuple(map(str, range(self.count)))

    def fitting(self, rank, options):
        return options == (self.count,)

    def openShape(self, x, options):
        axis = normalAxis(self.axis, len(x))
        shapes = [(*x[:axis], None, *x[axis + 1 :])] * self.count
        return shapes if self.count > 1 else shapes[0]

    def controlledBy(self, x, sizes):
        return Parts(self.axis, sizes)

    def dataTypeFrom(self, x, options=None):
        return [x] * self.count if self.count > 1 else x

    def updateData(self, x, options):
        parts = self.made(x.shape, options).updateData(x)
        return parts if self.count > 1 else parts[0]

    def updateGrad(self, grad, x, options, *ys):
        return self.made(x.shape, options).updateGrad(grad, x, *ys), None

    def sample(self, rng, x, options):
        return [rng.standard_normal(x), np.full(options, x[self.axis] // options[0])]

    @classmethod
    def examples(cls):
        yield cls(1, 2), [(2, 4), (2,)]


class Parts(modules.Split):
    """y_0, y_1, ... = x split along `axis` into parts of these sizes, which may be 0.

    Shapes    x (..., n0 + n1 + ..., ...) -> yi (..., ni, ...)
    Source    ONNX operator Split
    Raises    ShapeError if the sizes do not add up to the axis
    """

    def __init__(self, axis: Whole, sections: Items, name=None):
        super().__init__(axis, [1] * len(sections), name)
        need(all(not isinstance(n, str) and n >= 0 for n in sections), "sizes of at least 0", sections)
        self.sections = tuple(sections)

    @classmethod
    def examples(cls):
        yield cls(axis=1, sections=(2, 0, 3)), [(2, 5)]
        yield cls(axis=0, sections=(3,)), [(3, 2)]
