"""QuantizedLayerPatterns: layers between dequantization and quantization, computed on the integers themselves."""

from __future__ import annotations

from copy import copy
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.operators.convolutionops import windowOf
from puregraph.onnx.patterns.patternregistry import onnxPattern

if TYPE_CHECKING:
    from puregraph.graph.module import Module
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.patterns.origin import Origin

LAYERS = {  # with and without a bias
    "Conv": ("Conv({}, {}, use=layer)", "Conv({}, {}, b, use=layer)"),
    "Gemm": ("Gemm({}, {}, use=layer)", "Gemm({}, {}, b, use=layer)"),
    "MatMul": ("MatMul({}, {}, use=layer)", "MatMul({}, {}, use=layer) + b"),
}


def texts(kind: str) -> list[str]:
    """The patterns of a layer: with or without zero points, bias, and a following Relu."""
    patterns = []
    for layer, relu, *zeros in product(LAYERS[kind], ("{}", "Relu({})"), *[("", ", Known({})")] * 3):
        x, W, y = (f", Known({n}Scale){zero.format(n + 'Zero')}" for n, zero in zip("xWy", zeros))
        relu = relu if relu == "{}" else "Relu({}, use=relu)"
        inner = layer.format(f"DequantizeLinear(x{x})", f"DequantizeLinear(Known(W){W}, use=filters)")
        patterns.append(f"QuantizeLinear({relu.format(inner)}{y})")
    return patterns


@onnxPattern(*texts("MatMul"))
def quantizedProduct(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    layer: Origin,
    filters: Origin,
    relu: Origin | None = None,
    **rest: OnnxValue,
) -> OnnxValue | None:
    """A product with a matrix."""
    axis = filters.attributes.get("axis", 1)
    if x.rank is None or W.rank != 2 or axis not in (1, -1):
        return None
    return made(op, QuantizedMatMul(relu is not None), x, W, filters, **rest)


@onnxPattern(*texts("Gemm"))
def quantizedGemm(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    layer: Origin,
    filters: Origin,
    relu: Origin | None = None,
    **rest: OnnxValue,
) -> OnnxValue | None:
    """A product with a matrix that may be transposed."""
    isPlain = not layer.attributes.get("transA", 0) and {layer.attributes.get(n, 1.0) for n in ("alpha", "beta")} == {
        1.0
    }
    isTransposed = bool(layer.attributes.get("transB", 0))
    axis = filters.attributes.get("axis", 1) % 2
    if not isPlain or W.rank != 2 or rest["WScale"].rank and axis == isTransposed:
        return None
    W = OnnxValue.of(f"{op.name}:W", np.ascontiguousarray(W.numbers.T)) if isTransposed else W
    return made(op, QuantizedMatMul(relu is not None), x, W, filters, **rest)


@onnxPattern(*texts("Conv"))
def quantizedConvolution(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    layer: Origin,
    filters: Origin,
    relu: Origin | None = None,
    **rest: OnnxValue,
) -> OnnxValue | None:
    """A convolution."""
    if W.rank is None or rest["WScale"].rank and filters.attributes.get("axis", 1) % W.rank:
        return None
    layerOp = copy(op)
    layerOp.attributes = layer.attributes
    stride, pad, dilation = windowOf(layerOp, x, tuple(W.shape[2:]))
    if min(map(min, pad), default=0) < 0:
        return None
    module = QuantizedConvolve(stride, pad, dilation, layer.attributes.get("group", 1), relu is not None)
    return made(op, module, x, W, filters, **rest)


def made(
    op: OnnxNode,
    module: Module,
    x: OnnxValue,
    W: OnnxValue,
    filters: Origin,
    b: OnnxValue | None = None,
    **scaling: OnnxValue,
) -> OnnxValue | None:
    """The quantized layer, for integers of at most 16 bits and float32 scales; None for others, and for block
    scales."""
    scales = [scaling[f"{name}Scale"] for name in "xWy"]
    zeros = [scaling.get(f"{name}Zero") for name in "xWy"]
    kinds = [x.dtype, W.dtype, np.dtype(np.uint8) if zeros[2] is None else zeros[2].dtype]
    isNarrow = all(kind is not None and kind.kind in "iu" and kind.itemsize <= 2 for kind in kinds)
    if not isNarrow or any(scale.dtype != np.float32 for scale in scales):
        return None
    if filters.attributes.get("block_size", 0) or b is not None and b.dtype != np.float32:
        return None
    operands = [x]
    for name, scale, zero, kind in zip("xWy", scales, zeros, kinds):
        shape = () if scale.numbers.size == 1 and name != "W" else scale.shape
        operands.append(shaped(op, scale, f"{name}Scale", shape, scale.dtype))
        operands.append(shaped(op, zero, f"{name}Zero", shape, kind))
    return op(module, *operands[:3], W, *operands[3:], b)


def shaped(op: OnnxNode, value: OnnxValue | None, name: str, shape: tuple, dtype: np.dtype) -> OnnxValue:
    """A known value in a shape; zeros for one that is left out."""
    if value is not None and tuple(value.shape) == tuple(shape):
        return value
    array = np.zeros(tuple(shape), dtype) if value is None else value.numbers.reshape(tuple(shape))
    return OnnxValue.of(f"{op.name}:{name}", array)
