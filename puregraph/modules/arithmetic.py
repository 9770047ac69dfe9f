"""Arithmetic of arrays, element by element, with broadcasting."""

from functools import reduce

import numpy as np

from puregraph.core.arguments import Number, Scalar
from puregraph.core.base.widen import asResultType, widened
from puregraph.core.errors import ArgumentError, need
from puregraph.core.shape import broadcast, product
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.ops.reduction.reference import unbroadcast


class _Broadcast(Module):
    """The base of Add and Mul: any number of inputs whose shapes broadcast."""

    keepsDtype = True
    followsValues = True

    def dataShapeFrom(self, *xs):
        need(xs, "at least one input", "none")
        return broadcast(*xs)

    def flopsFrom(self, *xs):
        return (len(xs) - 1) * product(self.dataShapeFrom(*xs))

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 3), (3,), (2, 1)]
        yield cls(), [(2, 1), (1, 3)]
        yield cls(), [(2, 3)]


class Add(_Broadcast):
    """y = x1 + x2 + ..., element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    He, Zhang, Ren, Sun 2016, arXiv:1512.03385, eq. 1; PuzzleLib's Add
    Raises    ShapeError if the shapes do not broadcast
    """

    reads = ()
    gradAliases = True

    def updateData(self, *xs):
        return total(*xs)

    def updateGrad(self, grad, *values, needs):
        return tuple([unbroadcast(grad, x.shape) if wanted else None for x, wanted in zip(values, needs)])


@widened
def total(*xs):
    """Return the sum, added from left to right; a copy of a single input."""
    return reduce(np.add, asResultType(*xs)) if len(xs) > 1 else xs[0].copy()


class Sub(Pointwise):
    """y = a - b, element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Sub
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a - b"

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(), (2,)]


class Mul(_Broadcast):
    """y = x1 x2 ..., element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    Dauphin, Fan, Auli, Grangier 2017, arXiv:1612.08083, eq. 1: a gate; PuzzleLib's Mul
    Raises    ShapeError if the shapes do not broadcast
    """

    reads = ("xs",)

    def updateData(self, *xs):
        return times(*xs)

    def updateGrad(self, grad, *values, needs):
        *xs, _ = values
        return tuple(
            [
                unbroadcast(times(grad, *xs[:i], *xs[i + 1 :]), x.shape) if wanted else None
                for i, (x, wanted) in enumerate(zip(xs, needs))
            ]
        )


@widened
def times(*xs):
    """Return the product, multiplied from left to right; a copy of a single input."""
    return reduce(np.multiply, asResultType(*xs)) if len(xs) > 1 else xs[0].copy()


class Div(Pointwise):
    """y = a / b, element by element; shapes broadcast as numpy's do.

    Shapes    any that broadcast -> their broadcast
    Source    ONNX operator Div
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a / b"

    def sample(self, rng, a, b):
        below = rng.standard_normal(b)
        return [rng.standard_normal(a), below + np.copysign(0.5, below)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]
        yield cls(), [(2, 3), ()]


class Mod(Pointwise):
    """y = a - b floor(a / b), element by element: it has the sign of b. Exact for integers, where y is 0 for b = 0.

    Shapes    any that broadcast -> their broadcast
    Source    the NumPy reference, numpy.remainder; ONNX operator Mod
    Raises    ShapeError if the shapes do not broadcast
    """

    formula = "a % b"

    def sample(self, rng, a, b):
        return [2.5 + 0.2 * rng.random(a), 1.0 + 0.2 * rng.random(b)]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (2, 3)]
        yield cls(), [(2, 1), (4, 1, 3)]


class Power(Pointwise):
    """y = x^exponent

    Shapes    x (any) -> y the same
    Source    the NumPy reference, numpy.power
    Raises    FormulaError for the exponent 0, with which nothing depends on x
    """

    formula = "x ** exponent"
    settings = ({"exponent": 2}, {"exponent": 3.0}, {"exponent": 1})

    def __init__(self, exponent: Number, name=None):
        super().__init__(name, exponent=exponent)

    def sample(self, rng, *shapes):
        return [1.0 + rng.random(shape) for shape in shapes]


class Clip(Pointwise):
    """y = min(max(x, low), high); its derivative is 1 at both bounds. The defaults are ReLU6.

    Shapes    x (any) -> y the same
    Source    Krizhevsky 2010, Convolutional Deep Belief Networks on CIFAR-10, section 2; PuzzleLib's clip
    Raises    ArgumentError if low is above high
    """

    formula = "clip(x, low, high)"
    settings = ({}, {"low": -0.5, "high": 0.5})

    def __init__(self, low: Scalar = 0.0, high: Scalar = 6.0, name=None):
        if not low <= high:
            raise ArgumentError(f"Clip: wanted low <= high, got {low} and {high}")
        super().__init__(name, low=low, high=high)


class MulAddConst(Pointwise):
    """y = a x + b

    Shapes    x (any) -> y the same
    Source    PuzzleLib's MulAddConst
    """

    formula = "a * x + b"
    settings = ({"a": 2.0, "b": -1.0}, {"a": -0.5}, {"b": 3}, {})

    def __init__(self, a: Number = 1.0, b: Number = 0.0, name=None):
        if b == 0:
            super().__init__(name, "a * x", a=a)
        else:
            super().__init__(name, a=a, b=b)
