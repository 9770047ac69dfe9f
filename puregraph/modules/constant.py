"""Constant: an array that is part of the network, and never trained."""

import numpy as np

from puregraph.arguments import Dtype, optional
from puregraph.base.dtype import isNumeric, needType
from puregraph.core.accumulate import needPlain
from puregraph.core.machinememory import needMemory
from puregraph.core.param import FixedState
from puregraph.core.shape import asShape
from puregraph.errors import ArgumentError, need, show
from puregraph.module import Module


def zeros(shape, dtype):
    """Zeros of a shape whose sizes are known."""
    need(all(type(size) is int for size in shape), "a shape of known sizes", show(shape))
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):
        needMemory("a constant", shape, dtype)
        raise


class Constant(Module):
    """y = value: an array of numbers, saved with the network and never trained.

    `value` is an array, a number, or a list of them; or else `shape` and `dtype` say what a file will bring. Integers,
    booleans and a float without axes are known ahead of data, so that shapes may follow from them.

    Shapes    -> y as value
    Source    ONNX operator Constant
    Raises    DtypeError if these are no numbers
    """

    isDiscrete = True
    reads = ()
    flopsPerElement = 0

    def __init__(self, value=None, shape=None, dtype: optional(Dtype) = None, name=None):
        super().__init__(name)
        need(
            (value is None) != (shape is None),
            "a value, or else the shape of one",
            "neither" if value is None else "both",
        )
        needPlain(value, "Constant")
        array = zeros(asShape(shape), dtype or "float32") if value is None else numbersFrom(value, dtype)
        needType(isNumeric(array.dtype), "numbers for value", array.dtype)
        self.state = FixedState(array.shape, lambda rng, shape: array, array.dtype)
        self.initArgs = ((), {"shape": array.shape, "dtype": array.dtype.name, "name": name})
        _ = self.state.materialize()

    def dataShapeFrom(self):
        return self.state.shape

    def dataTypeFrom(self):
        return self.state.dtype

    def valueFrom(self):
        return self.state.materialize() if self.state.isAhead else None

    def updateData(self, state):
        return state.copy()

    def flopsFrom(self):
        return 0

    @classmethod
    def examples(cls):
        yield cls([1.5, -2.0]), []
        yield cls(3), []
        yield cls(shape=(2, 3), dtype="int32"), []


def numbersFrom(value, dtype):
    """An array of what a user wrote.

    Raises    ArgumentError where numpy makes none of it, as of rows of several lengths
    """
    try:
        return np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"Constant: wanted an array of numbers, got {value!r:.60}: {error}") from None
