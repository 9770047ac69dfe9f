"""IntegerLayers: a product or convolution of integers whose sums stay integers of 32 bits, or are rounded to bytes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.arguments import Count
from puregraph.core.errors import need
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.convolution import Convolve
from puregraph.modules.product import MatMul
from puregraph.ops.quantized.reference import convolveIntegers, multiplyIntegers


class _IntegerLayer(Module):
    """Base class: y = layer(x - xZero, W - wZero) + b as int32; with a factor, y = round(float32(y) factor) + yZero."""

    layerShape: Callable[..., Any]
    outmaps: Callable[..., Any]
    layer: Callable[..., Any]
    reads = ()
    isDiscrete = True

    def dataShapeFrom(self, x, W, xZero=None, wZero=None, b=None, factor=None, yZero=None):
        y, outs = self.layerShape(x, W), self.outmaps(W)
        for name, shape in (("zero point of W", wZero), ("bias", b), ("factor", factor)):
            need(shape in (None, (), (1,), (outs,)), f"a {name}, one number or {outs}", shape)
        need(xZero in (None, (), *self.rowsOf(x)), "a zero point of x, one number", xZero)
        need(yZero in (None, ()) and (yZero is None) == (factor is None), "a factor and one yZero, or neither", yZero)
        return y

    def dataTypeFrom(self, x, W, xZero=None, wZero=None, b=None, factor=None, yZero=None):
        return np.dtype(np.int32) if yZero is None else yZero

    def updateData(self, x, W, xZero=None, wZero=None, b=None, factor=None, yZero=None):
        rounding = None if factor is None else (factor, None, None, yZero, False)
        return self.layer(x, W, xZero, wZero, b, rounding)

    def rowsOf(self, x):
        """Shapes of a zero point for each row."""
        return ()

    def flopsFrom(self, x, W, *rest):
        return 2 * product(W) // max(1, self.outmaps(W)) * product(self.layerShape(x, W))

    def sample(self, rng, x, W, *rest):
        small = [rng.integers(0, 9, x).astype(np.uint8), rng.integers(-9, 9, W).astype(np.int8)]
        dtypes = np.uint8, np.int8, np.int32, np.float32, np.uint8
        return [*small, *[np.ones(shape, dtype) for shape, dtype in zip(rest, dtypes)]]


class IntegerMatMul(_IntegerLayer):
    """y = (x - xZero) (W - wZero) + b, in int32; with a factor, round(y factor) + yZero in the dtype of yZero.

    Sums are exact, and wrap around. A zero point of x is one number, or one for each row, (m, 1).

    Shapes    x (..., m, i), W (..., i, o), xZero () or (m, 1), wZero, b and factor () or (o,), yZero ()
              -> y (..., m, o)
    Source    ONNX operators MatMulInteger, QLinearMatMul
    Raises    ShapeError if the sizes differ
    """

    def layerShape(self, x, W):
        """The shape of y."""
        need(len(x) >= 2 and len(W) >= 2, "x (..., m, i) and W (..., i, o)", [x, W])
        return MatMul().dataShapeFrom(x, W)

    def outmaps(self, W):
        """The number of columns."""
        return W[-1]

    def rowsOf(self, x):
        """One for each row, as a column."""
        return ((x[-2], 1),)

    def flopsFrom(self, x, W, *rest):
        return 2 * x[-1] * product(self.layerShape(x, W))

    def layer(self, x, W, *rest):
        """The product."""
        return multiplyIntegers(x, W, *rest)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (3, 4)]
        yield cls(), [(2, 2, 3), (3, 4), (), (4,), (4,), (4,), ()]
        yield cls(), [(2, 2, 3), (2, 3, 4), ()]


class IntegerConvolve(_IntegerLayer):
    """y = conv(x - xZero, W - wZero) + b, in int32; with a factor, round(y factor) + yZero in the dtype of yZero.

    Sums are exact, and wrap around. x counts as xZero outside.

    Shapes    x (n, maps, *spatial), W (o, maps / groups, *size), xZero and yZero (), wZero, b and factor () or (o,)
              -> y (n, o, *count)
    Source    ONNX operators ConvInteger, QLinearConv
    Raises    ShapeError if the ranks or channels differ, or x is too small for one window
    """

    def __init__(self, stride=(1,), pad=((0, 0),), dilation=(1,), groups: Count = 1, name=None):
        super().__init__(name)
        self.of = Convolve(stride, pad, dilation, groups)

    def layerShape(self, x, W):
        """The shape of y."""
        return self.of.dataShapeFrom(x, W)

    def outmaps(self, W):
        """The number of filters."""
        return W[0]

    def layer(self, x, W, *rest):
        """The convolution."""
        return convolveIntegers(x, W, *rest, *self.of.layout(x.shape[2:], W.shape[2:]))

    @classmethod
    def examples(cls):
        yield cls(groups=1), [(1, 2, 4), (3, 2, 2)]
        yield cls((2, 1), ((1, 0), (0, 2)), (1, 2), 2), [(2, 4, 5, 4), (2, 2, 3, 2), (), (2,), (2,), (2,), ()]
