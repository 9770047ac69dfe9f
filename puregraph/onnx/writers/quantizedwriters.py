"""QuantizedWriters: layers of integers as float layers between Dequantize- and QuantizeLinear, which runtimes fuse."""

from __future__ import annotations

from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx
from puregraph.onnx.writers.convolutionwriters import optionsOf


def floats(step: OnnxStep, axis: int) -> tuple[str, str]:
    """Input and weights, dequantized; `axis` is the weight axis with one scale per element."""
    x, xScale, xZero, W, wScale, wZero, *_ = step.inputs
    scaleAxis = axis if step.shapes[4] else None
    return (
        step.op("DequantizeLinear", x, xScale, xZero),
        step.op("DequantizeLinear", W, wScale, wZero, axis=None if scaleAxis == 1 else scaleAxis),
    )


def integers(step: OnnxStep, y: str) -> None:
    """The output as integers."""
    y = step.op("Relu", y) if step.module.isRectified else y
    step.op("QuantizeLinear", y, *step.inputs[6:8], out=step.y)


@writesOnnx(QuantizedMatMul)
def quantizedProduct(step: OnnxStep) -> None:
    """DequantizeLinear, MatMul, Add, QuantizeLinear."""
    y = step.op("MatMul", *floats(step, 1))
    b = step.inputs[8] if len(step.inputs) > 8 else None
    integers(step, y if b is None else step.op("Add", y, b))


@writesOnnx(QuantizedConvolve)
def quantizedConvolve(step: OnnxStep) -> None:
    """DequantizeLinear, Conv, QuantizeLinear."""
    of = step.module.of
    options = {**optionsOf(*of.windows(step.shapes[3][2:])), "group": of.groups}
    integers(step, step.op("Conv", *floats(step, 0), *step.inputs[8:], **options))
