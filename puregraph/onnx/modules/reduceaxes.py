"""Reductions of axes that may be empty, as onnxruntime has them."""

import numpy as np

from puregraph.core.arguments import Flag, Wholes, choice
from puregraph.graph.module import Module
from puregraph.modules.normreduction import L1Norm, L2Norm, LogSum, LogSumExp, Prod, SumSquares
from puregraph.modules.reduction import Max, Mean, Min, Sum, reduced


class ReduceMax(Max):
    """y = max of x over `axis`; over no elements the smallest value of the dtype.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMax
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    purpose = ""

    def updateData(self, x):
        return empty(self, "Max", x) if x.size == 0 else super().updateData(x)


class ReduceMin(Min):
    """y = min of x over `axis`; over no elements the largest value of the dtype.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMin
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    purpose = ""

    def updateData(self, x):
        return empty(self, "Min", x) if x.size == 0 else super().updateData(x)


class ReduceMean(Mean):
    """y = mean of x over `axis`; over no elements 0, as in onnxruntime.

    Shapes    x (any) -> y without the axes, or of length one there
    Source    ONNX operator ReduceMean
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    purpose = ""

    def updateData(self, x):
        return empty(self, "Mean", x).astype(self.dataTypeFrom(x.dtype)) if x.size == 0 else super().updateData(x)


OFFLOATS = ("L2", "LogSum", "LogSumExp")  # reductions for which integers are converted to floats


REDUCTIONS = {
    "Sum": Sum,
    "Mean": Mean,
    "Max": Max,
    "Min": Min,
    "Prod": Prod,
    "L1": L1Norm,
    "L2": L2Norm,
    "LogSum": LogSum,
    "LogSumExp": LogSumExp,
    "SumSquare": SumSquares,
}


OPEN = {"Max": ReduceMax, "Min": ReduceMin, "Mean": ReduceMean}  # for axes whose length is a symbol, which may be 0


class ReduceFilled(Module):
    """y = the reduction of no elements: 0 for sums, 1 for products, the smallest value for Max, the largest for Min.

    Shapes    x (any) with an empty axis among `axes` -> y without them, or of length one there
    Source    ONNX operators ReduceSum, Prod, ReduceMax ... of an empty set
    Raises    ShapeError if x has no such axis, or one is named twice
    """

    reads = ()
    isDiscrete = True
    keepsDtype = True

    def __init__(self, kind: choice(*REDUCTIONS), axes: Wholes, keepdims: Flag = True, name=None):
        super().__init__(name)
        self.kind, self.axes, self.keepdims = kind, tuple(axes), keepdims

    def dataShapeFrom(self, x):
        return reduced(x, self.axes, self.keepdims)

    def updateData(self, x):
        return np.full_like(x, neutral(self.kind, x.dtype), shape=self.dataShapeFrom(x.shape))

    @classmethod
    def examples(cls):
        yield cls("Sum", (0,)), [(0, 3)]
        yield cls("Prod", (1,), keepdims=False), [(2, 0)]


def empty(module, kind, x):
    """The result of a reduction of an array without elements."""
    return np.full_like(x, neutral(kind, x.dtype), shape=reduced(x.shape, module.axis, module.keepdims))


def neutral(kind, dtype):
    """The neutral element of a reduction: its result for no elements."""
    if kind in ("Max", "Min"):
        if dtype.kind == "b":
            return kind == "Min"
        least, most = (-np.inf, np.inf) if dtype.kind in "fV" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return least if kind == "Max" else most
    return {"Prod": 1, "LogSum": -np.inf, "LogSumExp": -np.inf}.get(kind, 0)
