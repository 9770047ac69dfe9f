"""ElementGradients: gradients of modules that gather and scatter elements by index, and of cumulative ones."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from puregraph.modules.cumulative import CumProd, CumSum
from puregraph.modules.gathering import GatherElements, GatherND
from puregraph.modules.pooling import MaxUnpool
from puregraph.modules.product import Determinant
from puregraph.modules.scattering import ScatterElements, ScatterND
from puregraph.modules.selection import TopKValues, Trilu
from puregraph.modules.signal import DFT
from puregraph.modules.tensorscatter import TensorScatter
from puregraph.onnx.gradients.gradientcall import GradientCall
from puregraph.onnx.gradients.gradientregistry import writesGradient
from puregraph.onnx.onnxwriter import End, OnnxStep


def writesIndexed(*classes: type, forAnySize: bool = True) -> Callable[[Callable], Callable]:
    """Register the function below it, which gets an `IndexedGradient`."""

    def register(write: Callable) -> Callable:
        writesGradient(*classes, forAnySize=forAnySize)(lambda step: write(IndexedGradient(step)))
        return write

    return register


class IndexedGradient(GradientCall):
    """A gradient of a module with an index: `take` gathers at the index, `put` scatters to it."""

    def __init__(self, step: OnnxStep):
        super().__init__(step)
        self.isPoints = isinstance(self.module, (GatherND, ScatterND))
        self.axis: dict[str, Any] = {} if self.isPoints else {"axis": getattr(self.module, "axis", 0)}

    def index(self, number: int) -> str:
        """An argument as an index of int64."""
        name = str(self.values[number])
        return name if self.dtypes[number] == np.int64 else self.cast(name, np.int64)

    def take(self, x: str, index: str) -> str:
        """Gather the elements of x at an index."""
        return self.op("GatherND" if self.isPoints else "GatherElements", x, index, **self.axis)

    def put(self, x: str, index: str, updates: str, reduction: str | None = None) -> str:
        """Scatter updates to the positions of an index in a copy of x."""
        kind = "ScatterND" if self.isPoints else "ScatterElements"
        return self.op(kind, x, index, updates, **self.axis, reduction=reduction)


@writesIndexed(GatherElements, GatherND)
def gathered(g: IndexedGradient) -> tuple:
    """Add each gradient at the position of its element; with batch axes, the index is extended by the sample's."""
    index, batch = g.index(1), getattr(g.module, "batch", 0)
    if batch:
        size = g.op("Shape", index, end=-1)
        ones = g.op("Expand", g.number(1, np.int64), g.op("Concat", size, g.step.whole(1), axis=0))
        samples = [g.op("CumSum", ones, g.number(axis, np.int64), exclusive=1) for axis in range(batch)]
        index = g.op("Concat", *samples, index, axis=-1)
    return g.put(g.full(0, 0), index, g.grad, "add"), None


@writesIndexed(TopKValues)
def chosen(g: IndexedGradient) -> tuple:
    """Scatter the gradients of the chosen elements to their positions."""
    return (g.full(0, 0) if g.grad is None else g.put(g.full(0, 0), g.index(3), g.grad)), None


@writesIndexed(MaxUnpool, forAnySize=False)
def unpooled(g: IndexedGradient) -> tuple:
    """Gather the gradients at the positions of the elements, which count in an output of the natural lengths."""
    cut = g.module.natural != g.module.lengths
    size = g.step.whole(*g.module.natural), g.step.whole(*range(2, 2 + len(g.module.natural)))
    grad = g.op("Slice", g.grad, g.step.whole(*[0] * len(g.module.natural)), *size) if cut else g.grad
    return g.op("Gather", g.op("Reshape", grad, g.step.whole(-1)), g.index(1)), None


@writesIndexed(ScatterElements, ScatterND)
def scattered(g: IndexedGradient) -> tuple:
    """Replaced elements get no gradient; of updates at equal positions, only the last gets one."""
    index, kind = g.index(1), g.module.reduction
    if kind == "add":
        return g.grad, None, g.take(g.grad, index)
    if kind == "mul":
        return multiplied(g, index)
    if kind != "none":
        return compared(g, index)
    count = np.int64
    order = g.op("CumSum", g.op("Reshape", g.full(1, 2, count), g.step.whole(-1)), g.number(0, count))
    order = g.op("Reshape", order, g.op("Shape", g.values[2]))
    last = g.put(g.full(0, 0, count), index, order)
    none = g.number(0)
    kept = g.op("Where", g.op("Equal", last, g.number(0, count)), g.grad, none)
    return kept, None, g.op("Where", g.op("Equal", g.take(last, index), order), g.take(g.grad, index), none)


@writesIndexed(Determinant, forAnySize=False)
def cofactors(g: IndexedGradient) -> tuple:
    """The cofactors of a matrix: signed determinants of its minors."""
    n, rank = int(g.shapes[0][-1]), len(g.shapes[0])
    grad = g.op("Unsqueeze", g.grad, g.step.whole(-2, -1))
    if n < 2:
        return (g.op("Expand", grad, g.step.whole(*(1,) * rank)),) if n else (None,)
    others = g.step.constant([[i for i in range(n) if i != left] for left in range(n)], np.int64)
    x = g.op("Gather", g.op("Gather", g.values[0], others, axis=rank - 2), others, axis=rank)
    minors = g.op("Det", g.op("Transpose", x, perm=[*range(rank - 1), rank, rank - 1, rank + 1]))
    signs = g.number((-1.0) ** np.add.outer(np.arange(n), np.arange(n)))
    return (g.op("Mul", grad, g.op("Mul", minors, signs)),)


@writesIndexed(DFT, forAnySize=False)
def transformed(g: IndexedGradient) -> tuple:
    """A product with the transform's matrix along its axis, with real and imaginary part as one axis."""
    shape, rank = g.shapes[0], len(g.shapes[0])
    axis, _ = g.module.sizes(shape)
    outShape = g.module.dataShapeFrom(shape)
    outSizes, inSizes = (outShape[axis], outShape[-1]), (shape[axis], shape[-1])
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    lead = [shape[i] for i in order[:-2]]
    units = np.eye(prod(outSizes)).reshape(-1, *outSizes)
    alone = DFT(1, g.module.length, g.module.inverse, g.module.oneSided)
    matrix = alone.adjoint(units, (len(units), *inSizes)).reshape(prod(outSizes), prod(inSizes))
    rows = g.op("Reshape", g.op("Transpose", g.grad, perm=order), g.step.whole(*lead, prod(outSizes)))
    gradient = g.op("Reshape", g.op("MatMul", rows, g.number(matrix)), g.step.whole(*lead, *inSizes))
    return (g.op("Transpose", gradient, perm=[order.index(i) for i in range(rank)]),)


@writesIndexed(Trilu)
def triangle(g: IndexedGradient) -> tuple:
    """The same triangle of the gradient."""
    diagonal = g.values[1] if g.module.diagonal is None else g.step.constant(g.module.diagonal, np.int64)
    return g.op("Trilu", g.grad, diagonal, upper=int(g.module.upper)), None


@writesIndexed(CumSum, CumProd)
def accumulated(g: IndexedGradient) -> tuple:
    """Cumulative sums of the gradient from the other end; for products, see `otherFactors`."""
    if g.module.axis is None:
        axis = g.op("Reshape", g.index(1), g.step.constant(np.zeros(0, np.int64)))
    else:
        axis = g.number(g.module.axis, np.int64)
    if isinstance(g.module, CumProd):
        return otherFactors(g, axis), None
    options: dict[str, Any] = {"exclusive": int(g.module.exclusive) or None}
    options["reverse"] = int(not g.module.reverse) or None
    return g.op("CumSum", g.grad, axis, **options), None


def otherFactors(g: IndexedGradient, axis: str) -> str:
    """The gradient of a cumulative product: loop over elements, summing all products that contain the element, without
    that factor."""
    x, count, options = str(g.values[0]), np.int64, {"exclusive": int(g.module.exclusive) or None}
    along = g.op("Reshape", axis, g.step.whole(1))
    position = g.op("CumSum", g.full(1, 0, count), axis, exclusive=1)
    body = g.inside()
    t, on, total = (g.step.writer.unique(f"{g.step.path}:{name}") for name in ("t", "on", "total"))
    isOwn = body.op("Equal", position, t)
    products = body.op(
        "CumProd",
        body.op("Where", isOwn, body.number(1), x),
        axis,
        **options,
        reverse=int(g.module.reverse) or None,
    )
    comparison = ("Less" if g.module.reverse else "Greater") + ("" if g.module.exclusive else "OrEqual")
    isBehind = body.op(comparison, position, t)
    terms = body.op("Mul", g.grad, body.op("Where", isBehind, products, body.number(0)))
    gradient = body.op("Where", isOwn, body.op("ReduceSum", terms, along), body.number(0))
    outputs = [body.op("Identity", on), body.op("Add", total, gradient)]
    ends = [End(t, count, ()), End(on, bool, ()), End(total, g.dtype, g.shapes[0])]
    graph = body.step.writer.attribute(ends, [end._replace(name=y) for end, y in zip(ends[1:], outputs)], "product")
    length = g.op("Gather", g.op("Shape", x), axis)
    return g.op("Loop", length, g.number(True, bool), g.full(0, 0), body=graph)


@writesIndexed(TensorScatter)
def put(g: IndexedGradient) -> tuple:
    """Replaced elements get no gradient; the gradient of the updates is gathered from their positions."""
    axis, options = g.module.axis, {"axis": g.module.axis, "mode": "circular" if g.module.circular else "linear"}
    starts = () if g.values[2] is None else (g.index(2),)
    kept = g.op("TensorScatter", g.grad, g.full(0, 1), *starts, **options)
    rank = len(g.shapes[1])
    position = g.op("CumSum", g.full(1, 1, np.int64), g.number(axis, np.int64), exclusive=1)
    if starts:
        position = g.op("Add", position, g.op("Reshape", *starts, g.step.whole(-1, *[1] * (rank - 1))))
    if g.module.circular:
        position = g.op("Mod", position, g.op("Gather", g.op("Shape", g.grad), g.number(axis, np.int64)))
    return kept, g.op("GatherElements", g.grad, position, axis=axis), None


def multiplied(g: IndexedGradient, index: str) -> tuple:
    """Multiply the gradient by the product of the other factors, which is 0 if two or more factors are 0."""
    x, updates = str(g.values[0]), str(g.values[2])
    one, none, count = g.number(1), g.number(0), np.int64
    isZero = [g.op("Equal", v, none) for v in (x, updates)]
    factors = [g.op("Where", zero, one, v) for zero, v in zip(isZero, (x, updates))]
    zeros = g.put(g.cast(isZero[0], count), index, g.cast(isZero[1], count), "add")
    products = g.put(factors[0], index, factors[1], "mul")
    gradients = []
    for i, (zero, grad) in enumerate(zip(isZero, (g.grad, g.take(g.grad, index)))):
        zeroCount, product = (zeros, products) if i == 0 else (g.take(zeros, index), g.take(products, index))
        isAlone = g.op("Equal", zeroCount, g.cast(zero, count))
        gradients.append(g.op("Mul", grad, g.op("Where", isAlone, g.op("Div", product, factors[i]), none)))
    return gradients[0], None, gradients[1]


def compared(g: IndexedGradient, index: str) -> tuple:
    """Distribute the gradient evenly over the elements equal to the largest, or smallest."""
    x, updates, none = str(g.values[0]), str(g.values[2]), g.number(0)
    y = g.put(x, index, updates, g.module.reduction)
    isKept, isTaken = g.op("Equal", x, y), g.op("Equal", updates, g.take(y, index))
    count = g.put(g.cast(isKept, g.dtype), index, g.cast(isTaken, g.dtype), "add")
    share = g.op("Div", g.grad, g.op("Max", count, g.number(1)))
    return g.op("Where", isKept, share, none), None, g.op("Where", isTaken, g.take(share, index), none)
