"""LayerPatterns: layers with weights, and normalisations, that exporters write as arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph import modules
from puregraph.modules.normalization import RmsNorm
from puregraph.onnx.modelfile import shortestDecimal
from puregraph.onnx.operators.productops import isLayer, linear
from puregraph.onnx.patterns.patternregistry import onnxPattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from puregraph.graph.module import Module
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

MEAN = "ReduceMean({}, axes=axes, keepdims=1)"
REST = f"(x - {MEAN.format('x')})"
CENTERED = (  # the division by the deviation in three forms
    f"{REST} / Sqrt({MEAN.format(f'{REST} ** 2')} + Known(epsilon))",
    f"{REST} * (1 / Sqrt({MEAN.format(f'{REST} ** 2')} + Known(epsilon)))",
    f"{REST} / ({MEAN.format(f'{REST} ** 2')} + Known(epsilon)) ** 0.5",
)
SCALED = (
    f"x / Sqrt({MEAN.format('x ** 2')} + Known(epsilon))",
    f"x * (1 / Sqrt({MEAN.format('x ** 2')} + Known(epsilon)))",
    f"x * ({MEAN.format('x ** 2')} + Known(epsilon)) ** -0.5",
)


@onnxPattern("MatMul(x, Known(weight)) + Known(bias)")
def biased(op: OnnxNode, x: OnnxValue, weight: OnnxValue, bias: OnnxValue) -> OnnxValue | None:
    """Linear, of samples or of sequences."""
    areUnshared = weight.array is not None and bias.array is not None and not (weight.isShared or bias.isShared)
    if not areUnshared or not isLayer(x, weight) or bias.shape != weight.shape[1:] or bias.dtype != weight.dtype:
        return None
    return linear(op, x, weight, bias)


@onnxPattern(*CENTERED)
def plainLayerNorm(op: OnnxNode, x: OnnxValue, axes: tuple, epsilon: OnnxValue) -> OnnxValue | None:
    """LayerNorm without scale and bias."""
    return normed(op, modules.LayerNorm, x, axes, epsilon)


@onnxPattern(*(f"({text}) * Known(scale)" for text in CENTERED))
def scaledLayerNorm(op: OnnxNode, x: OnnxValue, axes: tuple, epsilon: OnnxValue, scale: OnnxValue) -> OnnxValue | None:
    """LayerNorm with a scale alone."""
    return normed(op, modules.LayerNorm, x, axes, epsilon, scale=scale, bias=zerosLike(op, scale))


@onnxPattern(*(f"({text}) * Known(scale) + Known(bias)" for text in CENTERED))
def layerNorm(
    op: OnnxNode, x: OnnxValue, axes: tuple, epsilon: OnnxValue, scale: OnnxValue, bias: OnnxValue
) -> OnnxValue | None:
    """LayerNorm."""
    return normed(op, modules.LayerNorm, x, axes, epsilon, scale=scale, bias=bias)


@onnxPattern(*SCALED)
def plainRmsNorm(op: OnnxNode, x: OnnxValue, axes: tuple, epsilon: OnnxValue) -> OnnxValue | None:
    """RmsNorm without scale."""
    return normed(op, RmsNorm, x, axes, epsilon)


@onnxPattern(*(f"({text}) * Known(scale)" for text in SCALED))
def rmsNorm(op: OnnxNode, x: OnnxValue, axes: tuple, epsilon: OnnxValue, scale: OnnxValue) -> OnnxValue | None:
    """RmsNorm."""
    return normed(op, RmsNorm, x, axes, epsilon, scale=scale)


def zerosLike(op: OnnxNode, value: OnnxValue) -> OnnxValue:
    """A bias that is not trained."""
    return op.constant(np.zeros(np.shape(value.numbers), value.dtype))


def normed(
    op: OnnxNode,
    make: Callable[..., Module],
    x: OnnxValue,
    axes: tuple,
    epsilon: OnnxValue,
    **weights: OnnxValue,
) -> OnnxValue | None:
    """A normalisation of the last axes with unshared weights of the file; None if axes or shapes do not fit."""
    shape = None if x.rank is None else tuple(x.shape[-len(axes) :])
    small = epsilon.numbers
    if shape is None or axes != tuple(range(-len(axes), 0)) or not all(isinstance(n, int) for n in shape):
        return None
    if small.size != 1 or not 0 <= float(small.reshape(())) < np.inf:
        return None
    fits = (v.array is not None and not v.isShared and v.shape == shape for v in weights.values())
    if not all(fits) or len({v.dtype for v in weights.values()} - {x.dtype}):
        return None
    sizes = shape[0] if len(shape) == 1 else shape
    module = make(sizes, shortestDecimal(small), affine=bool(weights))
    return op(op.builder.fill(module, **weights) if weights else module, x)
