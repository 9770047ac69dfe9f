"""QuantizedLayers: a product or convolution of integers that gives integers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.arguments import Count, Flag
from puregraph.core.errors import need
from puregraph.core.shape import product
from puregraph.graph.module import Module
from puregraph.modules.convolution import Convolve
from puregraph.modules.windows import perMap
from puregraph.ops.quantized.reference import convolveIntegers, multiplyIntegers

EXACT_IN_FLOAT32 = 1 << 24  # integers up to this are exact in float32
MOST_TERMS = (1 << 31) // 255**2  # products of bytes whose sum does not leave 32 bits


def areBytes(*arrays):
    """True if all are integers of 8 bits."""
    return all(a.dtype.itemsize == 1 and a.dtype.kind in "iu" for a in arrays)


class _QuantizedLayer(Module):
    """Base class: s = layer(x - xZero, W - wZero), exact; y = round((s xScale wScale + b) / yScale) + yZero.

    With `isRectified`, a ReLU is applied before rounding.
    """

    layerShape: Callable[..., Any]
    outmaps: Callable[..., Any]
    ofBytes: Callable[..., Any]
    layer: Callable[..., Any]
    perFilter: Callable[..., Any]
    perOutput: Callable[..., Any]
    isRectified: bool
    reads = ()
    isDiscrete = True

    def dataShapeFrom(self, x, xScale, xZero, W, wScale, wZero, yScale, yZero, b=None):
        for name, shape in (("xScale", xScale), ("xZero", xZero), ("yScale", yScale), ("yZero", yZero)):
            need(shape == (), f"{name}, one number", shape)
        y, outs = self.layerShape(x, W), self.outmaps(W)
        need(
            wScale in ((), (outs,)) and wZero == wScale, f"a scale and zero point of W, one or {outs}", [wScale, wZero]
        )
        need(b is None or b == (outs,), f"a bias of shape ({outs},)", b)
        return y

    def dataTypeFrom(self, x, xScale, xZero, W, wScale, wZero, yScale, yZero, b=None):
        return yZero

    def updateData(self, x, xScale, xZero, W, wScale, wZero, yScale, yZero, b=None):
        scale = xScale.astype(np.float64) * wScale.astype(np.float64)
        if areBytes(x, W, yZero) and self.termsOf(W.shape) <= MOST_TERMS:
            offset = None if b is None else b.astype(np.float64)
            rounding = scale, offset, yScale.astype(np.float32), yZero, self.isRectified
            return self.ofBytes(x, W, xZero, wZero, rounding)
        wide = self.exact(x, W)
        total = self.layer(
            x.astype(wide) - xZero.astype(wide), W.astype(wide) - self.perFilter(wZero, W.ndim).astype(wide)
        )
        y = total.astype(np.float64) * self.perOutput(scale, total)
        y = (y if b is None else y + self.perOutput(b.astype(np.float64), total)).astype(np.float32)
        y = np.maximum(y, np.float32(0)) if self.isRectified else y
        ends = np.iinfo(yZero.dtype)
        rounded = np.rint(y / yScale.astype(np.float32)) + yZero.astype(np.float32)
        return np.clip(rounded, ends.min, ends.max).astype(yZero.dtype)

    def exact(self, x, W):
        """The float dtype in which all sums of products are exact."""
        return (
            np.float32
            if self.termsOf(W.shape) * (1 << 8 * (x.dtype.itemsize + W.dtype.itemsize)) <= EXACT_IN_FLOAT32
            else np.float64
        )

    def termsOf(self, W):
        """Terms of a sum."""
        return product(W) // max(1, self.outmaps(W))

    def flopsFrom(self, x, xScale, xZero, W, *rest):
        return 2 * self.termsOf(W) * product(self.layerShape(x, W))

    def sample(self, rng, x, xScale, xZero, W, wScale, wZero, yScale, yZero, *b):
        scales = [np.full(shape, 0.25, np.float32) for shape in (xScale, wScale, yScale)]
        integers = [rng.integers(0, 9, shape).astype(np.uint8) for shape in (x, xZero, wZero, yZero)]
        weights = rng.integers(-9, 9, W).astype(np.int8)
        arrays = [integers[0], scales[0], integers[1], weights, scales[1], integers[2].astype(np.int8), scales[2]]
        return [*arrays, integers[3], *[rng.standard_normal(shape).astype(np.float32) for shape in b]]


class QuantizedMatMul(_QuantizedLayer):
    """y = round(((x - xZero) (W - wZero) xScale wScale + b) / yScale) + yZero, with exact sums of integers.

    Shapes    x (..., i), W (i, o), scale and zero point of W () or (o,), of x and y (), b (o,) -> y (..., o)
    Source    ONNX operators DequantizeLinear, MatMul, QuantizeLinear; Jacob and others 2018, section 2.2
    Raises    ShapeError if the sizes differ
    """

    def __init__(self, isRectified: Flag = False, name=None):
        super().__init__(name)
        self.isRectified = isRectified

    def layerShape(self, x, W):
        """The shape of y."""
        need(len(x) >= 1 and len(W) == 2 and x[-1] == W[0], "x (..., i) and W (i, o)", [x, W])
        return (*x[:-1], W[1])

    def outmaps(self, W):
        """The number of columns."""
        return W[1]

    def layer(self, x, W):
        """The product."""
        return np.matmul(x, W)

    def ofBytes(self, x, W, xZero, wZero, rounding):
        """The product of bytes, rounded."""
        if x.ndim == 1:
            return multiplyIntegers(x[None], W, xZero, wZero, None, rounding)[0]
        return multiplyIntegers(x, W, xZero, wZero, None, rounding)

    def perFilter(self, values, rank):
        """Values per column, to broadcast with W."""
        return values

    def perOutput(self, values, y):
        """Values per column, to broadcast with y."""
        return values

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3), (), (), (3, 4), (), (), (), ()]
        yield cls(True), [(2, 2, 3), (), (), (3, 4), (4,), (4,), (), (), (4,)]


class QuantizedConvolve(_QuantizedLayer):
    """y = round((conv(x - xZero, W - wZero) xScale wScale + b) / yScale) + yZero, with exact sums of integers.

    Shapes    x (n, maps, *spatial), W (o, maps / groups, *size), scale and zero point of W () or (o,), of x and y (),
              b (o,) -> y (n, o, *count)
    Source    ONNX operators DequantizeLinear, Conv, QuantizeLinear; Jacob and others 2018, section 2.2
    Raises    ShapeError if the ranks or channels differ, or x is too small for one window
    """

    def __init__(
        self, stride=(1,), pad=((0, 0),), dilation=(1,), groups: Count = 1, isRectified: Flag = False, name=None
    ):
        super().__init__(name)
        self.of, self.isRectified = Convolve(stride, pad, dilation, groups), isRectified

    def layerShape(self, x, W):
        """The shape of y."""
        return self.of.dataShapeFrom(x, W)

    def outmaps(self, W):
        """The number of filters."""
        return W[0]

    def layer(self, x, W):
        """The convolution."""
        return self.of.updateData(x, W)

    def ofBytes(self, x, W, xZero, wZero, rounding):
        """The convolution of bytes, rounded."""
        layout = self.of.layout(x.shape[2:], W.shape[2:])
        return convolveIntegers(x, W, xZero, wZero, None, rounding, *layout)

    def perFilter(self, values, rank):
        """Values per filter, to broadcast with W."""
        return values.reshape(-1, *(1,) * (rank - 1)) if values.ndim else values

    def perOutput(self, values, y):
        """Values per filter, to broadcast with y."""
        return perMap(values, y) if values.ndim else values

    @classmethod
    def examples(cls):
        yield cls(groups=1), [(1, 2, 4), (), (), (3, 2, 2), (), (), (), ()]
        yield (
            cls((2, 1), ((1, 0), (0, 2)), (1, 2), 2, True),
            [(2, 4, 5, 4), (), (), (2, 2, 3, 2), (2,), (2,), (), (), (2,)],
        )
