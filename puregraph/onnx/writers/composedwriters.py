"""ComposedWriters: modules with an operator only in new opsets; in old opsets they are composed of small operators."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from puregraph import modules
from puregraph.modules.normalization import RmsNorm
from puregraph.onnx.onnxwriter import OnnxStep, writesOnnx
from puregraph.onnx.writers.layerwriters import reduced
from puregraph.onnx.writers.operatorwriters import checkTypes

GELU, HARDSWISH, RMSNORM = 20, 14, 23  # the first opsets with these operators


@writesOnnx(modules.Gelu)
def gelu(step: OnnxStep) -> None:
    """Gelu since opset 20, else by Erf or Tanh."""
    isTanh = str(step.module.formula) == modules.Gelu.approximation
    if step.opset >= GELU:
        step.op("Gelu", step.x, out=step.y, approximate="tanh" if isTanh else None)
        return
    if isTanh:
        cube = step.op("Mul", number(step, 0.044715), step.op("Pow", step.x, number(step, 3)))
        wide = step.op("Mul", number(step, sqrt(2 / pi)), step.op("Add", step.x, cube))
    else:
        wide = step.op("Div", step.x, number(step, sqrt(2)))
    grown = step.op("Add", step.op("Tanh" if isTanh else "Erf", wide), number(step, 1))
    step.op("Mul", step.op("Mul", step.x, grown), number(step, 0.5), out=step.y)


def number(step: OnnxStep, value: float) -> str:
    """A number in the dtype of the output."""
    return step.constant(value, step.dtypes[0])


@writesOnnx(modules.HardSwish)
def hardSwish(step: OnnxStep) -> None:
    """HardSwish since opset 14, else by Clip."""
    if step.opset >= HARDSWISH:
        step.op("HardSwish", step.x, out=step.y)
        return
    clipped = step.op("Clip", step.op("Add", step.x, number(step, 3)), number(step, 0), number(step, 6))
    step.op("Div", step.op("Mul", step.x, clipped), number(step, 6), out=step.y)


@writesOnnx(modules.Swish)
def swish(step: OnnxStep) -> None:
    """Swish by Sigmoid: runtimes lack the operator of opset 24, and the result is the same."""
    args, named = step.module.initArgs
    beta = float(args[0] if args else named.get("beta", 1.0))
    wide = step.x if beta == 1 else step.op("Mul", step.x, number(step, beta))
    step.op("Mul", step.x, step.op("Sigmoid", wide), out=step.y)


@writesOnnx(RmsNorm)
def rmsNorm(step: OnnxStep) -> None:
    """RMSNormalization since opset 23, else its formula."""
    module, rank, dtype = step.module, len(step.module.shape), step.dtypes[0]
    if step.opset >= RMSNORM:
        checkTypes(step, "RMSNormalization")
        scale = step.param("scale") or step.constant(np.ones(module.shape), dtype)
        step.op("RMSNormalization", step.x, scale, out=step.y, axis=-rank, epsilon=module.epsilon)
        return
    square = step.op("Pow", step.x, number(step, 2))
    mean = reduced(step, "ReduceMean", square, module.axes, True)
    root = step.op("Sqrt", step.op("Add", mean, number(step, module.epsilon)))
    y = step.op("Div", step.x, root, out=step.y if module.scale is None else None)
    if module.scale is not None:
        step.op("Mul", y, step.param("scale"), out=step.y)
