"""Exact products and convolutions of integers, given as int32, or scaled and rounded to small integers again.

Native code sums bytes; elsewhere, as on a GPU, these are products and convolutions in float64.

`rounding` is None for sums as int32, which wrap around, or (factor, offset, yScale, yZero, isRectified):

    y = round(max(float32(sums factor + offset), 0) / yScale) + yZero, within the dtype of yZero

`factor` and `offset` are one number or one per column, in the float dtype that scales; the maximum is taken if
`isRectified`, offset and yScale may be None. Zero points are one number, or one for each column of b or filter; `bias`
has one int32 for each of them.

Source    Jacob and others 2018, Quantization and Training of Neural Networks, arXiv:1712.05877, section 2.2
"""

import numpy as np

from puregraph.ops.convolution.reference import convolve
from puregraph.ops.convolution.windowgeometry import window
from puregraph.ops.kernel import CHANNELSLAST, compositeKernel

FACTOR, YZERO = 0, 3  # positions in `rounding`
SUMS = np.dtype(np.int32)


@compositeKernel
def multiplyIntegers(a, b, aZero=None, bZero=None, bias=None, rounding=None):
    """sums[m, n] = sum over k of (a[m, k] - aZero) (b[k, n] - bZero) + bias[n], exact; a zero point of a may also be
    one for each row.

    Shapes    a (..., m, k), b (..., k, n) -> y (..., m, n)
    """
    left, right = (x.astype(np.float64) for x in (a, b))
    left = left if aZero is None else left - aZero.astype(np.float64)
    right = right if bZero is None else right - bZero.astype(np.float64)
    return ended(np.matmul(left, right), bias, rounding)


@multiplyIntegers.shape
def multiplyIntegers(a, b, aZero=None, bZero=None, bias=None, rounding=None):
    """As of a product."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (*batch, *a.shape[-2:-1], *b.shape[-1:]), dtypeOf(rounding)


@multiplyIntegers.flops
def multiplyIntegers(y, a, b, aZero=None, bZero=None, bias=None, rounding=None):
    """A multiplication and an addition for each term."""
    return 2 * y.size * a.shape[-1]


@compositeKernel
def convolveIntegers(x, W, xZero, wZero, bias, rounding, stride, pad, dilation, groups):
    """Cross-correlation of x - xZero with W - wZero, exact; x counts as xZero outside.

    Shapes    x (n, c, *spatial), W (o, c / groups, *size) -> y (n, o, *count)
    """
    rank = x.ndim - 2
    maps, filters = (v.astype(np.float64) for v in (x, W))
    maps = maps if xZero is None else maps - xZero.astype(np.float64)
    filters = filters if wZero is None else filters - alongFilters(wZero, rank + 1).astype(np.float64)
    sums = convolve(maps, filters, stride, pad, dilation, groups)
    if rounding is not None:
        factor, offset, *rest = rounding
        rounding = alongFilters(factor, rank), None if offset is None else alongFilters(offset, rank), *rest
    return ended(sums, None if bias is None else alongFilters(bias, rank), rounding)


@convolveIntegers.shape
def convolveIntegers(x, W, xZero, wZero, bias, rounding, stride, pad, dilation, groups):
    """As of a convolution."""
    return (x.shape[0], W.shape[0], *window(x.shape[2:], W.shape[2:], stride, pad, dilation).count), dtypeOf(rounding)


@convolveIntegers.flops
def convolveIntegers(y, x, W, *options):
    """A multiplication and an addition for each term."""
    return 2 * y.size * (W.size // max(1, W.shape[0]))


convolveIntegers.declare(layout=CHANNELSLAST, constant=True)
multiplyIntegers.declare(constant=True)


def dtypeOf(rounding):
    """The dtype of the result."""
    return SUMS if rounding is None else rounding[YZERO].dtype


def alongFilters(values, rank):
    """Values per filter, in front of `rank` axes; a single number stays."""
    return values.reshape(-1, *(1,) * rank) if values.size > 1 else values.reshape(())


def ended(sums, bias, rounding):
    """Exact sums as int32 with the bias, or scaled and rounded."""
    sums = sums.astype(np.int64)
    sums = (sums if bias is None else sums + bias).astype(SUMS)
    if rounding is None:
        return sums
    factor, offset, yScale, yZero, isRectified = rounding
    y = sums.astype(factor.dtype) * factor
    y = (y if offset is None else y + offset).astype(np.float32)
    y = np.maximum(y, np.float32(0)) if isRectified else y
    y = y if yScale is None else y / yScale.astype(np.float32)
    ends = np.iinfo(yZero.dtype)
    return np.clip(np.rint(y) + yZero.astype(np.float32), ends.min, ends.max).astype(yZero.dtype)
