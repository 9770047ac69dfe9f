"""QuantizedWriters: layers of integers as float layers between Dequantize- and QuantizeLinear, which runtimes fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.modules.integerlayers import IntegerConvolve, IntegerMatMul
from puregraph.modules.quantizedlayers import QuantizedConvolve, QuantizedMatMul
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx
from puregraph.onnx.writers.convolutionwriters import optionsOf

if TYPE_CHECKING:
    from collections.abc import Callable

FLOAT = 1  # float32 in ONNX


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


@writesOnnx(IntegerMatMul)
def integerProduct(step: OnnxStep) -> None:
    """MatMulInteger, then what is done with its sums."""
    x, W, xZero, wZero, *_ = [*step.inputs, None, None]
    ended(step, lambda out: step.op("MatMulInteger", x, W, xZero, wZero, out=out), 0)


@writesOnnx(IntegerConvolve)
def integerConvolve(step: OnnxStep) -> None:
    """ConvInteger, then what is done with its sums."""
    of, (x, W, xZero, wZero, *_) = step.module.of, [*step.inputs, None, None]
    options = {**optionsOf(*of.windows(step.shapes[1][2:])), "group": of.groups}
    ended(step, lambda out: step.op("ConvInteger", x, W, xZero, wZero, out=out, **options), len(step.shapes[1]) - 2)


def ended(step: OnnxStep, layer: Callable[[str | None], str], rank: int) -> None:
    """The sums of a layer plus the bias; scaled and rounded if there is a factor. Both have `rank` axes behind."""
    b, factor, yZero = [*step.inputs, *[None] * 5][4:7]
    y = layer(step.y if b is None and factor is None else None)
    b, factor = (alongFilters(step, v, i, rank) for v, i in ((b, 4), (factor, 5)))
    y = y if b is None else step.op("Add", y, b, out=step.y if factor is None else None)
    if factor is not None:
        y = step.op("Mul", step.op("Cast", y, to=FLOAT), factor)
        step.op("QuantizeLinear", y, step.constant(1, np.float32), yZero, out=step.y)


def alongFilters(step: OnnxStep, values: str | None, index: int, rank: int) -> str | None:
    """Values per filter, in front of `rank` axes."""
    isPlain = values is None or not rank or not step.shapes[index]
    return values if isPlain else step.op("Reshape", values, step.whole(-1, *[1] * rank))
