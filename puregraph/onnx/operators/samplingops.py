"""SamplingOps: interpolation between the elements of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.modules.gridsample import AffineGrid, GridSample
from puregraph.modules.resize import CROP, Resize
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue


@onnxOp("Upsample")
def upsample(op: OnnxNode, x: OnnxValue, scales: OnnxValue | None = None) -> OnnxValue:
    """The scales are an attribute before opset 9."""
    factors = op.constant(np.asarray(op.get("scales"), np.float32)) if scales is None else scales
    return resizing(op, x, factors, "scales", range(op.rankOf(x)), coordinates="asymmetric", rounding="simple")


@onnxOp("Resize", since=10)
def resizeByScales(op: OnnxNode, x: OnnxValue, scales: OnnxValue) -> OnnxValue:
    """Opset 10 does not specify the rounding: up if an axis shrinks, else down, as in onnxruntime."""
    return resizing(op, x, scales, "scales", range(op.rankOf(x)), coordinates="asymmetric", rounding="simple")


@onnxOp("Resize", since=11)
def resize(
    op: OnnxNode,
    x: OnnxValue,
    region: OnnxValue | None = None,
    scales: OnnxValue | None = None,
    sizes: OnnxValue | None = None,
) -> OnnxValue:
    """Resize."""
    coordinates = op.get("coordinate_transformation_mode", "half_pixel")
    scales, sizes = (None if v is None or v.shape == (0,) else v for v in (scales, sizes))
    if (scales is None) == (sizes is None):
        op.refuse(f"wanted scales or sizes, got {'neither' if sizes is None else 'both'}")
    by = "scales" if sizes is None else "sizes"
    return resizing(
        op,
        x,
        scales if by == "scales" else sizes,
        by,
        op.get("axes", range(op.rankOf(x))),
        region if coordinates == CROP else None,
        coordinates=coordinates,
        rounding=op.get("nearest_mode", "round_prefer_floor"),
        cubicA=op.get("cubic_coeff_a", -0.75),
        antialias=bool(op.get("antialias", 0)),
        excludeOutside=bool(op.get("exclude_outside", 0)),
        policy=op.get("keep_aspect_ratio_policy", "stretch"),
        outside=op.get("extrapolation_value", 0.0),
    )


def resizing(
    op: OnnxNode,
    x: OnnxValue,
    factorInput: Any,
    by: str,
    axes: Sequence[int],
    region: OnnxValue | None = None,
    **options: Any,
) -> OnnxValue:
    """A Resize; factors and region become inputs if they depend on the data."""
    mode = op.get("mode", "nearest")
    if mode != "nearest" and not isFloating(x.dtype):
        op.refuse(f"interpolates {x.dtype}: the standard does not define the rounding")
    factors, bounds = factorInput.numbers, None if region is None else region.numbers
    module = Resize(
        tuple(axes),
        by,
        None if factors is None else tuple(factors.tolist()),
        mode="linear" if mode == "bilinear" else mode,
        bounds=None if bounds is None else tuple(bounds.tolist()),
        **options,
    )
    free = factorInput if factors is None else None
    values = [x, free if by == "sizes" else None, free if by == "scales" else None, region if bounds is None else None]
    while values[-1] is None:
        values.pop()
    return op(module, *values)


MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}  # before opset 20, and since


@onnxOp("GridSample", since=16)
def gridSample(op: OnnxNode, x: OnnxValue, grid: OnnxValue) -> OnnxValue:
    """GridSample; before opset 20, the modes linear and cubic had their names for two axes."""
    if not isFloating(x.dtype):
        op.refuse(f"interpolates {x.dtype}: the standard does not define the rounding")
    mode = op.choice("mode", *(MODES if op.version < 20 else MODES.values()))
    mode = MODES.get(mode, mode)
    return op(GridSample(mode, op.get("padding_mode", "zeros"), bool(op.get("align_corners", 0))), x, grid)


@onnxOp("AffineGrid", since=20)
def affineGrid(op: OnnxNode, theta: OnnxValue, size: OnnxValue) -> OnnxValue:
    """AffineGrid."""
    return op(AffineGrid(bool(op.get("align_corners", 0))), theta, size)
