"""QuantizedPatterns: dequantization followed by quantization with the same scale, which is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph import modules
from puregraph.onnx.patterns.patternregistry import onnxPattern

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

PAIR = "QuantizeLinear({}, Known(scale), Known(zero))"
FLOATS = "DequantizeLinear(x, Known(scale), Known(zero))"


@onnxPattern(PAIR.format(FLOATS))
def pair(op: OnnxNode, x: OnnxValue, scale: OnnxValue, zero: OnnxValue) -> OnnxValue | None:
    """The integers themselves: the float error of one product and one quotient is below half a step."""
    return op(modules.Identity(), x) if isExact(x, scale, zero) else None


@onnxPattern(PAIR.format(f"Transpose({FLOATS}, perm=perm)"))
def transposed(op: OnnxNode, x: OnnxValue, scale: OnnxValue, zero: OnnxValue, perm: list) -> OnnxValue | None:
    """The integers in another order."""
    return op(modules.Transpose(tuple(perm)), x) if isExact(x, scale, zero) else None


@onnxPattern(PAIR.format(f"Reshape({FLOATS}, Known(sizes))"))
def reshaped(op: OnnxNode, x: OnnxValue, scale: OnnxValue, zero: OnnxValue, sizes: OnnxValue) -> OnnxValue | None:
    """The integers in another shape."""
    return op(modules.Reshape(tuple(sizes.numbers.tolist())), x) if isExact(x, scale, zero) else None


def isExact(x: OnnxValue, scale: OnnxValue, zero: OnnxValue) -> bool:
    """True if scale and zero point are single numbers that make quantizing a dequantized x exact."""
    number = scale.numbers
    isOne = number.size == 1 and number.ndim == 0 and zero.numbers.ndim == 0 and number.dtype.kind == "f"
    fits = x.dtype == zero.dtype and x.dtype.itemsize == 1 and number.dtype.itemsize >= 4
    if not isOne or not fits:
        return False
    limits = np.finfo(number.dtype)
    return bool(limits.tiny * 1024 <= number <= limits.max / 1024)
