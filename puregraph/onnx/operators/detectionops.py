"""DetectionOps: boxes and regions of pictures, windows at positions that data gives, and windows put back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph import modules
from puregraph.core.dim import Dim
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.detection import NonMaxSuppression, RoiAlign, RoiPool
from puregraph.modules.gridsample import GridSample
from puregraph.modules.signal import Col2Im
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("NonMaxSuppression", since=10)
def nonMaxSuppression(op: OnnxNode, boxes: OnnxValue, scores: OnnxValue, *limits: OnnxValue | None) -> OnnxValue:
    """NonMaxSuppression."""
    return op(NonMaxSuppression(bool(op.get("center_point_box", 0))), boxes, scores, *limits)


@onnxOp("RoiAlign", since=10)
def roiAlign(op: OnnxNode, x: OnnxValue, regions: OnnxValue, which: OnnxValue) -> OnnxValue:
    """Before opset 16 positions are not moved by half an element."""
    usual = "half_pixel" if op.version >= 16 else "output_half_pixel"
    module = RoiAlign(
        (op.get("output_height", 1), op.get("output_width", 1)),
        op.get("spatial_scale", 1.0),
        op.get("sampling_ratio", 0),
        op.choice("mode", "avg", "max"),
        op.get("coordinate_transformation_mode", usual) == "half_pixel",
    )
    return op.builder.add(module, [x, regions, which], isComputed=False)[0]  # samples grow with the region


@onnxOp("MaxRoiPool")
def maxRoiPool(op: OnnxNode, x: OnnxValue, regions: OnnxValue) -> OnnxValue:
    """MaxRoiPool."""
    return op(RoiPool(tuple(op.get("pooled_shape")), op.get("spatial_scale", 1.0)), x, regions)


@onnxOp("Col2Im", since=18)
def col2Im(op: OnnxNode, x: OnnxValue, lengths: Any, size: OnnxValue) -> OnnxValue:
    """Col2Im."""
    lengths, size = (op.known(v, "a size").tolist() for v in (lengths, size))
    rank = len(lengths)
    pads = op.lengths("pads", 2 * rank, 0)
    pad = list(zip(pads[:rank], pads[rank:]))
    return op(Col2Im(lengths, size, op.lengths("strides", rank, 1), pad, op.lengths("dilations", rank, 1)), x)


@onnxOp("DeformConv", since=19)
def deformConv(
    op: OnnxNode,
    x: OnnxValue,
    W: OnnxValue,
    offset: OnnxValue,
    b: OnnxValue | None = None,
    mask: OnnxValue | None = None,
) -> OnnxValue:
    """Sample each element of a window at its offset, times its mask; then compute a matrix product."""
    if any(op.rankOf(v) != 4 for v in (x, W, offset)):
        op.refuse(
            f"wanted pictures (n, c, h, w), filters and offsets of 4 axes, got {x.shape}, {W.shape}, {offset.shape}"
        )
    if any(isinstance(n, Dim) for n in (*x.shape[1:], *W.shape, *offset.shape[1:])):
        op.refuse("channels and lengths are known only with the data: give shapes= of the model's inputs")
    op.kernel(W)
    (_, c, *lengths), (outs, _, *size), out = x.shape, W.shape, offset.shape[2:]
    groups, parts, count = op.get("group", 1), op.get("offset_group", 1), prod(size)
    stride, dilation, pads = op.lengths("strides", 2, 1), op.lengths("dilations", 2, 1), op.lengths("pads", 4, 0)
    at = [
        np.arange(k)[:, None] * d + np.arange(m) * s - before
        for k, d, m, s, before in zip(size, dilation, out, stride, pads)
    ]
    base = np.empty((2, *size, *out))
    base[0], base[1] = at[0][:, None, :, None], at[1][None, :, None, :]
    base = np.moveaxis(base.reshape(2, count, *out), 0, 1)
    wide = np.dtype(np.float64)  # a rounded position would read some of a neighbouring element
    position = op(modules.Reshape((-1, count, 2, *out)), op(modules.Cast(wide), offset))
    scale = np.array(lengths).reshape(2, 1, 1)
    point = op(
        Pointwise(formula="(2 * (offset + base) + 1) / n - 1"),
        position,
        op.constant(base),
        op.constant(scale.astype(wide)),
    )
    grid = op(modules.Transpose((0, 1, 3, 4, 2)), point)
    grid = op(modules.Reshape((-1, count * out[0], out[1], 2)), grid)
    grid = op(modules.Gather(-1, fromEnd=True), grid, op.constant(np.array([1, 0])))
    read = op(GridSample("linear"), op(modules.Reshape((-1, c // parts, *lengths)), op(modules.Cast(wide), x)), grid)
    read = op(modules.Cast(x.dtype), read)
    if mask is not None:
        weight = op(modules.Reshape((-1, 1, count * out[0], out[1])), mask)
        read = op(modules.Mul(), read, weight)
    read = op(modules.Reshape((-1, groups, c // groups, count, *out)), read)
    kernel = op(modules.Reshape((groups, outs // groups, c // groups, count)), W)
    y = op(modules.Reshape((-1, outs, *out)), op(modules.Einsum("ngckhw,gmck->ngmhw"), read, kernel))
    return y if b is None else op(modules.Add(), y, op(modules.Reshape((outs, 1, 1)), b))
