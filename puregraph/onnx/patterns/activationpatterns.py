"""ActivationPatterns: activations that exporters write as arithmetic."""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

from puregraph import modules
from puregraph.graph.pointwise import Pointwise
from puregraph.onnx.patterns.matching import numberOf
from puregraph.onnx.patterns.patternregistry import onnxPattern

if TYPE_CHECKING:
    from puregraph.onnx.onnxnode import OnnxNode
    from puregraph.onnx.onnxvalue import OnnxValue

CUBIC = f"{sqrt(2 / pi)} * ({{}} + 0.044715 * {{}})"
CUBES = ("x ** 3", "x * x * x", "x * x ** 2")
LOGISTIC = "Log(1 + Exp(x))"


@onnxPattern(f"0.5 * x * (1 + Erf(x * {1 / sqrt(2)}))", f"0.5 * x * (1 - Erf(x * {-1 / sqrt(2)}))")
def gelu(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Gelu by the error function."""
    return op(modules.Gelu(), x)


@onnxPattern(
    *(f"0.5 * x * (1 + Tanh({CUBIC.format('x', cube)}))" for cube in CUBES),
    *(f"0.5 * x * (1 + Tanh({sqrt(2 / pi)} * x * (1 + 0.044715 * {square})))" for square in ("x ** 2", "x * x")),
    *(f"x * Sigmoid({2 * sqrt(2 / pi)} * (x + 0.044715 * {cube}))" for cube in CUBES),
)
def geluTanh(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Gelu by a tanh."""
    return op(modules.Gelu(True), x)


@onnxPattern("x * Sigmoid(x)", "x / (1 + Exp(-x))")
def swish(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Swish with beta 1."""
    return op(modules.Swish(), x)


@onnxPattern("x * Sigmoid(x * Known(beta))")
def swishBy(op: OnnxNode, x: OnnxValue, beta: OnnxValue) -> OnnxValue | None:
    """Swish with another beta."""
    number = numberOf(beta)
    return None if number is None else op(modules.Swish(number), x)


@onnxPattern("x * Tanh(Softplus(x))", f"x * Tanh({LOGISTIC})")
def mish(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Mish."""
    return op(modules.Mish(), x)


@onnxPattern("x * HardSigmoid(x, alpha=0.16666667, beta=0.5)", "x * Clip(x + 3, 0, 6) / 6")
def hardSwish(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """HardSwish."""
    return op(modules.HardSwish(), x)


@onnxPattern("1 / (1 + Exp(-x))")
def sigmoid(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Sigmoid, which does not overflow."""
    return op(modules.Sigmoid(), x)


@onnxPattern(LOGISTIC)
def softplus(op: OnnxNode, x: OnnxValue) -> OnnxValue | None:
    """Softplus, which does not overflow."""
    return op(modules.SoftPlus(), x)


@onnxPattern("Softplus(x * Known(beta)) * Known(factor)", "Softplus(x * Known(beta)) / Known(beta)")
def softplusBy(op: OnnxNode, x: OnnxValue, beta: OnnxValue, factor: OnnxValue | None = None) -> OnnxValue | None:
    """Softplus of another steepness."""
    steep, by = numberOf(beta), None if factor is None else numberOf(factor)
    if not steep or factor is not None and (by is None or abs(by * steep - 1) > 1e-6):
        return None
    return op(Pointwise(formula="softplus(beta * x) / beta", beta=steep), x)
