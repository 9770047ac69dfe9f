"""Gated linear units: one half of the features times an activation of the other half."""

from collections.abc import Callable
from typing import Any

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Whole
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module
from puregraph.ops.formula import Formula


class _Gated(Module):
    """Base class: y = gate(a, b), a the first and b the second half of x along the axis; a subclass writes the gate."""

    gate: Callable[..., Any]
    reads = ("x",)
    needsFloats = True
    flopsPerElement = 4

    def __init__(self, axis: Whole = -1, name=None):
        super().__init__(name)
        self.axis = axis

    def dataShapeFrom(self, x):
        axis = normalAxis(self.axis, len(x))
        need(x[axis] % 2 == 0, f"an even size along axis {self.axis}", x, "one half is the gate of the other")
        return (*x[:axis], x[axis] // 2, *x[axis + 1 :])

    def updateData(self, x):
        axis = normalAxis(self.axis, x.ndim)
        lead, half = (slice(None),) * axis, x.shape[axis] // 2
        return self.gate(x[lead + (slice(0, half),)], x[lead + (slice(half, None),)])

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 6)]
        yield cls(axis=1), [(2, 4, 3)]


class GLU(_Gated):
    """y = a / (1 + e^-b), a the first and b the second half of x along the axis

    Shapes    x (..., 2 d, ...) -> y (..., d, ...)
    Source    Dauphin, Fan, Auli, Grangier 2017, arXiv:1612.08083, eq. 1
    Raises    ShapeError if x has no such axis, or its length there is odd
    """

    gate = staticmethod(Formula("a * sigmoid(b)").numpy(("a", "b")))


class ReGLU(_Gated):
    """y = a max(b, 0), a the first and b the second half of x along the axis

    Shapes    x (..., 2 d, ...) -> y (..., d, ...)
    Source    Shazeer 2020, GLU Variants Improve Transformer, arXiv:2002.05202, eq. 5
    Raises    ShapeError if x has no such axis, or its length there is odd
    """

    gate = staticmethod(Formula("a * relu(b)").numpy(("a", "b")))


class GeGLU(_Gated):
    """y = a Gelu(b), a the first and b the second half of x along the axis

    Shapes    x (..., 2 d, ...) -> y (..., d, ...)
    Source    Shazeer 2020, GLU Variants Improve Transformer, arXiv:2002.05202, eq. 5
    Raises    ShapeError if x has no such axis, or its length there is odd
    """

    gate = staticmethod(Formula("a * 0.5 * b * erfc(-b / sqrt(2))").numpy(("a", "b")))


class SwiGLU(_Gated):
    """y = a b / (1 + e^-b), a the first and b the second half of x along the axis

    Shapes    x (..., 2 d, ...) -> y (..., d, ...)
    Source    Shazeer 2020, GLU Variants Improve Transformer, arXiv:2002.05202, eq. 5
    Raises    ShapeError if x has no such axis, or its length there is odd
    """

    gate = staticmethod(Formula("a * b * sigmoid(b)").numpy(("a", "b")))
