"""NormalizationOps: normalisation by statistics of a batch, a sample, or neighbouring channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph import modules
from puregraph.core.shape import normalAxis
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.localnorm import LocalResponseNorm, LpNormalize
from puregraph.modules.normalization import RmsNorm
from puregraph.modules.scalemaps import ScaleMaps
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


def allWeights(*values: OnnxValue) -> bool:
    """True if all values are initializers of the file."""
    return all(v.array is not None and not v.isSplit for v in values)


def isNeutral(scale: OnnxValue, bias: OnnxValue | None) -> bool:
    """True if scale and bias are constants without effect, and not trained."""
    constants = [(v.array, n) for v, n in ((scale, 1), (bias, 0)) if v is not None and not v.isWeight]
    count = 1 if bias is None else 2
    return len(constants) == count and all(array is not None and np.all(array == n) for array, n in constants)


def lastSizes(scale: OnnxValue) -> int | tuple[int, ...]:
    """The sizes of the axes that a scale has, as people write them: an integer for one axis."""
    return scale.shape[0] if scale.rank == 1 else tuple(scale.shape)


@onnxOp("BatchNormalization")
def batchNorm(
    op: OnnxNode, x: OnnxValue, scale: OnnxValue, bias: OnnxValue, mean: OnnxValue, var: OnnxValue
) -> OnnxValue | tuple[OnnxValue, ...]:
    """BatchNormalization with running statistics; in training_mode with batch statistics, updating the running ones."""
    epsilon, momentum = op.get("epsilon", 1e-5), op.get("momentum", 0.9)
    rank = op.rankOf(x)
    if op.get("training_mode", 0):
        axes = (0, *range(2, rank))
        center = op(modules.Mean(axes), x)
        spread = op(modules.Sub(), x, op(modules.Mean(axes, True), x))
        variance = op(modules.Mean(axes), op(modules.Mul(), spread, spread))
        y = op(ScaleMaps(epsilon), x, scale, bias, center, variance)
        blend = "momentum * old + (1 - momentum) * new"
        kept = [
            op(Pointwise(formula=blend, momentum=momentum), old, new) for old, new in ((mean, center), (var, variance))
        ]
        return y, *[v if v.dtype == old.dtype else op(modules.Cast(old.dtype), v) for v, old in zip(kept, (mean, var))]
    if rank < 2 or any(v.array is None for v in (scale, bias, mean, var)):
        return op(ScaleMaps(epsilon), x, scale, bias, mean, var)
    momentum, isAffine = max(0.0, min(1.0, 1 - momentum)), not isNeutral(scale, bias)
    hasBias = isAffine and (bias.isWeight or np.any(bias.array))
    settings = {"epsilon": epsilon, "momentum": momentum, "affine": isAffine, "useBias": hasBias or not isAffine}
    module = modules.BatchNorm(scale.shape[0], **settings)
    module.isTraining = False
    arrays = {"mean": mean, "var": var} | ({"scale": scale} if isAffine else {}) | ({"bias": bias} if hasBias else {})
    return op(op.builder.fill(module, **arrays), x)


@onnxOp("InstanceNormalization")
def instanceNorm(op: OnnxNode, x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> OnnxValue:
    """InstanceNormalization."""
    epsilon, maps = op.get("epsilon", 1e-5), x.shape[1]
    if isNeutral(scale, bias):
        return op(modules.GroupNorm(maps, maps, epsilon, affine=False), x)
    if allWeights(scale, bias):
        return op(op.builder.fill(modules.GroupNorm(maps, maps, epsilon), scale=scale, bias=bias), x)
    y = op(modules.GroupNorm(maps, maps, epsilon, affine=False), x)
    shape = op.constant(np.array([-1, *[1] * (op.rankOf(x) - 2)]))
    scale, bias = (op(modules.Reshape(), v, shape) for v in (scale, bias))
    return op(modules.Add(), op(modules.Mul(), y, scale), bias)


@onnxOp("LayerNormalization")
def layerNorm(
    op: OnnxNode, x: OnnxValue, scale: OnnxValue, bias: OnnxValue | None = None
) -> OnnxValue | tuple[OnnxValue, ...]:
    """LayerNormalization; further outputs are the mean and the inverse of the deviation."""
    rank = op.rankOf(x)
    axis = normalAxis(op.get("axis", -1), rank)
    axes, epsilon = tuple(range(axis, rank)), op.get("epsilon", 1e-5)
    isLayer = allWeights(scale) and (bias is None or allWeights(bias)) and scale.shape == tuple(x.shape[axis:])
    if isLayer and not op.wants(1) and not op.wants(2):
        if isNeutral(scale, bias):
            return op(modules.LayerNorm(lastSizes(scale), epsilon, affine=False), x)
        module = modules.LayerNorm(lastSizes(scale), epsilon)
        zeros = op.constant(np.zeros(scale.shape, scale.dtype)) if bias is None else bias
        return op(op.builder.fill(module, scale=scale, bias=zeros), x)
    wide = x if x.dtype.itemsize >= 4 else op(modules.Cast("float32"), x)
    mean = op(modules.Mean(axes, True), wide)
    centered = op(modules.Sub(), wide, mean)
    variance = op(modules.Mean(axes, True), op(modules.Mul(), centered, centered))
    factor = op(Pointwise(formula="1 / sqrt(v + epsilon)", epsilon=epsilon), variance)
    y = op(modules.Mul(), centered, factor)
    y = y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y)
    y = op(modules.Mul(), y, scale)
    return (y if bias is None else op(modules.Add(), y, bias)), mean, factor


@onnxOp("RMSNormalization", since=23)
def rmsNorm(op: OnnxNode, x: OnnxValue, scale: OnnxValue) -> OnnxValue:
    """RMSNormalization: one module if the scale is a weight of the last axes, else composed, in at least float32."""
    axis, epsilon = normalAxis(op.get("axis", -1), op.rankOf(x)), op.get("epsilon", 1e-5)
    if allWeights(scale) and scale.shape == tuple(x.shape[axis:]) and scale.dtype == x.dtype:
        return op(op.builder.fill(RmsNorm(lastSizes(scale), epsilon), scale=scale), x)
    wide = x if x.dtype.itemsize >= 4 else op(modules.Cast("float32"), x)
    square = op(modules.Mean(tuple(range(axis, len(x.shape))), True), op(modules.Mul(), wide, wide))
    y = op(modules.Mul(), wide, op(Pointwise(formula="1 / sqrt(v + epsilon)", epsilon=epsilon), square))
    return op(modules.Mul(), y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y), scale)


@onnxOp("LRN")
def localResponse(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """LRN."""
    return op(LocalResponseNorm(op.get("size"), op.get("alpha", 1e-4), op.get("beta", 0.75), op.get("bias", 1.0)), x)


@onnxOp("LpNormalization")
def normalizeLp(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """LpNormalization."""
    return op(LpNormalize(op.choice("p", 2, 1), op.get("axis", -1)), x)
