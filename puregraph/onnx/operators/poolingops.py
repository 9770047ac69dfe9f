"""PoolingOps: maxima, means and norms over windows, and over all positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph import modules
from puregraph.modules.normreduction import LpNorm
from puregraph.modules.pooling import MaxUnpool
from puregraph.onnx.operators.convolutionops import windowOf
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("MaxPool", "AveragePool", "LpPool")
def pool(op: OnnxNode, x: OnnxValue) -> OnnxValue | tuple[OnnxValue, OnnxValue]:
    """MaxPool, AveragePool, LpPool."""
    size = tuple(op.get("kernel_shape"))
    stride, pad, dilation = windowOf(op, x, size)
    reach = [d * (k - 1) + 1 for k, d in zip(size, dilation)]
    if min(size) < 1 or pad != "same" and any(max(both) >= n for both, n in zip(pad, reach)):
        op.refuse(f"wanted windows that reach beyond their padding, got {list(size)} padded by {list(pad)}")
    options: dict[str, Any] = {"dilation": dilation} if set(dilation) != {1} else {}
    options |= {"ceil": True} if op.get("ceil_mode", 0) else {}
    if op.type == "LpPool":
        return op(modules.LpPoolNd(op.get("p", 2), size, stride, pad, **options), x)
    if op.type == "AveragePool":
        average = {1: modules.AvgPool1D, 2: modules.AvgPool2D, 3: modules.AvgPool3D}.get(len(size), modules.AvgPoolNd)
        includePad = bool(op.get("count_include_pad", 0))
        return op(average(size, stride, pad, includePad=includePad, **options), x)
    largest = {1: modules.MaxPool1D, 2: modules.MaxPool2D, 3: modules.MaxPool3D}.get(len(size), modules.MaxPoolNd)
    if not op.wants(1):
        return op(largest(size, stride, pad, **options), x)
    options |= {"columns": True} if op.get("storage_order", 0) else {}
    return op(largest(size, stride, pad, useMask=True, **options), x)


@onnxOp("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def globalPool(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """GlobalAveragePool, GlobalMaxPool, GlobalLpPool."""
    axes = tuple(range(2, op.rankOf(x)))
    if op.type == "GlobalLpPool":
        return op(LpNorm(op.get("p", 2), axes, True), x)
    return op((modules.Mean if op.type == "GlobalAveragePool" else modules.Max)(axes, True), x)


@onnxOp("MaxUnpool")
def unpool(op: OnnxNode, x: OnnxValue, indices: OnnxValue, sizes: OnnxValue | None = None) -> OnnxValue:
    """MaxUnpool."""
    size = tuple(op.get("kernel_shape"))
    stride, pad, _ = windowOf(op, x, size)
    if pad == "same":
        op.refuse(f"auto_pad needs the lengths of '{x.name}': give shapes=")
    lengths = None if sizes is None else tuple(op.known(sizes, "the output's shape").tolist()[2:])
    natural = tuple((n - 1) * s + k - sum(both) for n, k, s, both in zip(x.shape[2:], size, stride, pad))
    return op(MaxUnpool(natural, lengths or natural), x, indices)
