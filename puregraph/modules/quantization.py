"""Quantized: floats as small integers, by a scale and a zero point of the whole array, of slices, or of blocks."""

import numpy as np

from puregraph.core.arguments import Dtype, Size, Whole
from puregraph.core.base.dtype import nativeType
from puregraph.core.dim import Dim
from puregraph.core.errors import need
from puregraph.core.shape import normalAxis
from puregraph.graph.module import Module


class _Scaled(Module):
    """Base class of modules with a scale and a zero point."""

    reads = ()
    isDiscrete = True
    flopsPerElement = 3

    def setScaling(self, axis, block):
        self.axis, self.block = axis, block

    def dataShapeFrom(self, x, scale, zero=None):
        isOne = scale in ((), (1,))
        fits = zero in (None, scale) or isOne and zero in ((), (1,))
        need(fits, f"a zero point of the scale's shape {scale}", zero)
        if isOne and not self.block:
            return x
        axis = normalAxis(self.axis, len(x))
        if self.block:
            isSymbol = isinstance(x[axis], Dim)
            blocks = scale[axis] if isSymbol else -(-x[axis] // self.block)
            wanted = (*x[:axis], blocks, *x[axis + 1 :])
        else:
            wanted = (x[axis],)
        need(scale == wanted, f"a scale of shape {wanted}", scale)
        return x

    def spread(self, scale, x):
        """Return a scale or a zero point in a shape that broadcasts with x."""
        if scale.size == 1 and not self.block:
            return scale.reshape(())
        axis = normalAxis(self.axis, x.ndim)
        if self.block:
            return np.repeat(scale, self.block, axis)[(slice(None),) * axis + (slice(x.shape[axis]),)]
        return scale.reshape(-1, *(1,) * (x.ndim - axis - 1))


class Quantize(_Scaled):
    """y = x / scale, rounded to the nearest integer, half to even, plus zero, kept within the dtype.

    The scale is of the whole array, of each slice along `axis`, or of each `block` of elements along it.

    Shapes    x (any), scale, zero (), (n) or (.., blocks, ..) -> y as x
    Source    ONNX operator QuantizeLinear
    Raises    ShapeError if the scale has another shape
    """

    def __init__(self, dtype: Dtype = "uint8", axis: Whole = 1, block: Size = 0, name=None):
        super().__init__(name)
        self.setScaling(axis, block)
        self.dtype = nativeType(dtype)

    def dataTypeFrom(self, *dtypes):
        return self.dtype

    def updateData(self, x, scale, zero=None):
        wide = np.float64 if x.dtype == np.float64 else np.float32
        steps = np.rint(x.astype(wide) / self.spread(scale, x).astype(wide))
        steps = steps if zero is None else steps + self.spread(zero, x).astype(wide)
        ends = np.iinfo(self.dtype)
        return np.clip(steps, ends.min, ends.max).astype(self.dtype)

    def sample(self, rng, x, *rest):
        return [rng.standard_normal(x), *[np.full(s, 0.25 if i == 0 else 3.0) for i, s in enumerate(rest)]]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), ()]
        yield cls("int8"), [(2, 3), (3,), (3,)]
        yield cls("int8", 1, 2), [(2, 4), (2, 2)]


class Dequantize(_Scaled):
    """y = (x - zero) scale, in the dtype of the scale or in `dtype`; x itself is stored as small integers.

    The scale is of the whole array, of each slice along `axis`, or of each `block` of elements along it.

    Shapes    x (any), scale, zero (), (n) or (.., blocks, ..) -> y as x
    Source    ONNX operator DequantizeLinear
    Raises    ShapeError if the scale has another shape
    """

    namesFloats = True

    def __init__(self, axis: Whole = 1, block: Size = 0, dtype: Dtype | None = None, name=None):
        super().__init__(name)
        self.setScaling(axis, block)
        self.dtype = None if dtype is None else nativeType(dtype)

    def dataTypeFrom(self, x, scale, zero=None):
        return scale if self.dtype is None else self.dtype

    def updateData(self, x, scale, zero=None):
        wide = x.astype(np.float64 if scale.dtype == np.float64 else np.float32)
        steps = wide if zero is None else wide - self.spread(zero, x).astype(wide.dtype)
        steps = steps * self.spread(scale, x).astype(wide.dtype)
        return steps.astype(scale.dtype if self.dtype is None else self.dtype)

    def sample(self, rng, x, *rest):
        return [rng.integers(0, 9, x), *[np.full(s, 0.25 if i == 0 else 3.0) for i, s in enumerate(rest)]]

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), ()]
        yield cls(0), [(2, 3), (2,), (2,)]
        yield cls(1, 2), [(2, 4), (2, 2)]
