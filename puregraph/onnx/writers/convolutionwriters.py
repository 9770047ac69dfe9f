"""ConvolutionWriters: convolutions with filters as inputs and with negative padding, which ONNX lacks."""

from __future__ import annotations

from typing import Any

from puregraph.onnx.modules.convolving import Convolve, ConvolveTransposed
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx


def optionsOf(module: Any) -> dict[str, Any]:
    """Stride, dilation, groups, and the padding that is not below zero."""
    pads = [max(both[side], 0) for side in (0, 1) for both in module.pad]
    return {
        "strides": list(module.stride),
        "pads": pads,
        "dilations": list(module.dilation) if set(module.dilation) != {1} else None,
        "group": module.groups,
    }


def below(module: Any) -> list[int] | None:
    """The widths that negative padding cuts off at the start and end of each axis; None if there is none."""
    missing = [min(both[side], 0) for side in (0, 1) for both in module.pad]
    if not any(missing):
        return None
    rank = len(module.pad)
    return [0, 0, *missing[:rank], 0, 0, *missing[rank:]]


@writesOnnx(Convolve)
def convolve(step: OnnxStep) -> None:
    """Conv, after a cut for negative padding."""
    x, cut = step.x, below(step.module)
    if cut is not None:
        x = step.op("Pad", x, step.whole(*cut))
    step.op("Conv", x, *step.inputs[1:], out=step.y, **optionsOf(step.module))


@writesOnnx(ConvolveTransposed)
def convolveTransposed(step: OnnxStep) -> None:
    """ConvTranspose, with zeros around it where padding is below zero, and then the bias."""
    module, longer = step.module, below(step.module)
    options = optionsOf(module) | {"output_padding": list(module.postpad) if any(module.postpad) else None}
    if longer is None:
        step.op("ConvTranspose", *step.inputs, out=step.y, **options)
        return
    x, W, *b = step.inputs
    hasBias = bool(b) and b[0] is not None
    pads = step.whole(*[-n for n in longer])
    y = step.op("Pad", step.op("ConvTranspose", x, W, **options), pads, out=None if hasBias else step.y)
    if hasBias:
        step.op("Add", y, step.op("Unsqueeze", b[0], step.whole(*range(1, len(module.pad) + 1))), out=step.y)
