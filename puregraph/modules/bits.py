"""Bits: logic of the bits of integers, and shifts of them."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Dtype, choice
from puregraph.core.base.dtype import nativeType, needType
from puregraph.core.errors import need
from puregraph.core.hostrule import onHost
from puregraph.core.shape import broadcast
from puregraph.graph.module import Module

FUNCTIONS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not}


class _OfBits(Module):
    """Base class of bitwise operators: integers that broadcast, without a gradient."""

    reads = ()
    isDiscrete = True
    keepsDtype = True

    def dataShapeFrom(self, a, b=None):
        return a if b is None else broadcast(a, b)

    def sample(self, rng, *shapes):
        return [rng.integers(0, 8, shape) for shape in shapes]


class Bitwise(_OfBits):
    """y = a & b, a | b, a ^ b or ~a, bit by bit.

    Shapes    a, b that broadcast -> their broadcast
    Source    ONNX operators BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot
    Raises    ShapeError if the shapes do not broadcast, or there is one input too many
    """

    def __init__(self, function: Annotated[str, choice(*FUNCTIONS)] = "and", name=None):
        super().__init__(name)
        self.function = function

    def dataShapeFrom(self, a, b=None):
        need((b is None) == (self.function == "not"), "two inputs, or one for 'not'", [a, b])
        return super().dataShapeFrom(a, b)

    def updateData(self, a, b=None):
        return FUNCTIONS[self.function](a) if b is None else FUNCTIONS[self.function](a, b)

    @classmethod
    def examples(cls):
        for function in ("and", "or", "xor"):
            yield cls(function), [(2, 3), (3,)]
        yield cls("not"), [(2, 3)]


class BitShift(_OfBits):
    """y = a << b or a >> b; a shift by all bits or more gives 0, or -1 if a negative a is shifted right.

    Shapes    a, b that broadcast -> their broadcast
    Source    ONNX operator BitShift
    Raises    ShapeError if the shapes do not broadcast
    """

    def __init__(self, direction: Annotated[str, choice("left", "right")] = "left", name=None):
        super().__init__(name)
        self.direction = direction

    def updateData(self, a, b):
        return np.left_shift(a, b) if self.direction == "left" else np.right_shift(a, b)

    @classmethod
    def examples(cls):
        yield cls("left"), [(2, 3), (3,)]
        yield cls("right"), [(2, 3), ()]


class BitCast(_OfBits):
    """y = the bits of x read as another dtype of the same size.

    Shapes    x any -> y as x
    Source    ONNX operator BitCast
    Raises    DtypeError for a dtype of another size
    """

    def __init__(self, dtype: Dtype, name=None):
        super().__init__(name)
        self.dtype = nativeType(dtype)

    def dataShapeFrom(self, x):
        return tuple(x)

    def dataTypeFrom(self, x):
        fits = x is None or x.itemsize == self.dtype.itemsize
        needType(fits, f"a dtype of {self.dtype.itemsize} bytes", x)
        return self.dtype

    @onHost
    def updateData(self, x):
        return np.ascontiguousarray(x).reshape(x.shape).view(self.dtype)

    @classmethod
    def examples(cls):
        yield cls("uint32"), [(2, 3)]

    def sample(self, rng, x):
        return [rng.integers(-8, 8, x, dtype=np.int32)]
