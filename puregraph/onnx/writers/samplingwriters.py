"""SamplingWriters: modules that interpolate between the elements of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.errors import GraphError
from puregraph.modules.gridsample import AffineGrid, GridSample
from puregraph.modules.resize import CROP, Resize, _Upsample
from puregraph.modules.signal import DFT, Col2Im
from puregraph.onnx.onnxwriter import OnnxStep, kindOf, writesOnnx


@writesOnnx(_Upsample)
def upsample(step: OnnxStep) -> None:
    """Resize by integer factors, from the centers of pixels."""
    module = step.module
    if module.scale is None:
        factors = step.op("Cast", step.inputs[1], to=kindOf(np.dtype(np.float32)))
        scales = step.op("Concat", step.constant(np.ones(2), np.float32), factors, axis=0)
    else:
        scales = step.constant(np.array([1, 1, *module.scale]), np.float32)
    options = {"mode": module.mode, "coordinate_transformation_mode": "half_pixel"}
    if module.mode == "nearest":
        options = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    step.op("Resize", step.x, None, scales, out=step.y, **options)


@writesOnnx(Resize)
def resize(step: OnnxStep) -> None:
    """Resize; the attribute `axes` is written from opset 18 on, before that it covers all axes."""
    module, rank = step.module, len(step.shapes[0])
    if isMixed(module):
        resizeTwice(step)
        return
    options: dict[str, Any] = {"mode": module.mode, "coordinate_transformation_mode": module.coordinates}
    if module.mode == "nearest":
        options["nearest_mode"] = roundingOf(module)
    if module.mode == "cubic":
        options["cubic_coeff_a"] = float(module.cubicA)
    options |= {"exclude_outside": 1} if module.excludeOutside else {}
    options |= {"extrapolation_value": float(module.outside)} if module.outside else {}
    newer: dict[str, Any] = {"antialias": 1} if module.antialias else {}
    newer |= {"keep_aspect_ratio_policy": module.policy} if module.policy != "stretch" else {}
    newer |= {"axes": list(module.axes)} if module.axes != tuple(range(rank)) else {}
    if step.opset < 18 and newer:
        raise GraphError(f"{', '.join(newer)} can be written from opset 18 on, not in {step.opset}")
    _, sizes, scales, region = [*step.inputs, None, None, None][:4]
    if module.factors is not None:
        factors = step.constant(module.factors, np.int64 if module.by == "sizes" else np.float32)
        sizes, scales = (factors, None) if module.by == "sizes" else (None, factors)
    if module.coordinates == CROP and region is None:
        region = step.constant(module.bounds or (0,) * len(module.axes) + (1,) * len(module.axes), np.float32)
    step.op("Resize", step.x, region, scales, *([sizes] if sizes else []), out=step.y, **options, **newer)


def isMixed(module: Any) -> bool:
    """True if some axes may grow and others shrink, with differently rounded positions."""
    isSimple = module.mode == "nearest" and module.rounding == "simple"
    return isSimple and (module.factors is None or min(module.factors) < 1 < max(module.factors))


def resizeTwice(step: OnnxStep) -> None:
    """Resize growing axes, then shrinking ones; all axes are written."""
    module, rank, one = step.module, len(step.shapes[0]), np.float32(1)
    if module.factors is None:
        grown, shrunk = (step.op(kind, step.inputs[2], step.constant(one)) for kind in ("Max", "Min"))
    else:
        factors = np.ones(rank, np.float32)
        factors[list(module.axes)] = module.factors
        grown, shrunk = (step.constant(change(factors, one)) for change in (np.maximum, np.minimum))
    options = {"mode": "nearest", "coordinate_transformation_mode": module.coordinates}
    y = step.op("Resize", step.x, None, grown, nearest_mode="floor", **options)
    step.op("Resize", y, None, shrunk, out=step.y, nearest_mode="ceil", **options)


def roundingOf(module: Any) -> str:
    """The nearest_mode; for old operators it depends on whether an axis shrinks."""
    return str(module.rounding) if module.rounding != "simple" else "ceil" if min(module.factors) < 1 else "floor"


@writesOnnx(GridSample)
def gridSample(step: OnnxStep) -> None:
    """GridSample, from opset 16 on; with more than two axes from opset 20 on, in which the modes have other names."""
    module, isOld = step.module, step.opset < 20
    since = 16 if len(step.shapes[0]) == 4 else 20
    if step.opset < since:
        raise GraphError(f"it can be written from opset {since} on, not in {step.opset}")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(module.mode, module.mode) if isOld else module.mode
    options = {"mode": mode, "padding_mode": module.padding, "align_corners": int(module.alignCorners)}
    step.op("GridSample", *step.inputs, out=step.y, **options)


@writesOnnx(AffineGrid)
def affineGrid(step: OnnxStep) -> None:
    """AffineGrid, from opset 20 on."""
    if step.opset < 20:
        raise GraphError(f"it can be written from opset 20 on, not in {step.opset}")
    step.op("AffineGrid", *step.inputs, out=step.y, align_corners=int(step.module.alignCorners))


@writesOnnx(Col2Im)
def writtenCol2Im(step: OnnxStep) -> None:
    """Col2Im, from opset 18 on."""
    m = step.module
    pads = [before for before, _ in m.pad] + [after for _, after in m.pad]
    options: dict[str, Any] = {"strides": list(m.stride), "dilations": list(m.dilation), "pads": pads}
    step.op("Col2Im", step.x, step.whole(*m.lengths), step.whole(*m.size), out=step.y, **options)


@writesOnnx(DFT)
def fourier(step: OnnxStep) -> None:
    """DFT; its axis is an attribute before opset 20."""
    m = step.module
    length = None if m.length is None else step.constant(m.length, np.int64)
    options: dict[str, Any] = {"inverse": int(m.inverse) or None, "onesided": int(m.oneSided) or None}
    if step.opset < 20:
        step.op("DFT", step.x, length, out=step.y, axis=m.axis % len(step.shapes[0]), **options)
    else:
        step.op("DFT", step.x, length, step.constant(m.axis, np.int64), out=step.y, **options)
