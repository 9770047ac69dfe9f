"""ActivationOps: nonlinear functions of one input, with their constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph import modules
from puregraph.core.base.dtype import isFloating
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.softmax import HardMax, LogSoftMax
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.operators.normalizationops import allWeights
from puregraph.onnx.opregistry import onnxOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from puregraph.graph.module import Module
    from puregraph.onnx.onnxnode import OnnxNode

SHRINK = "where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))"


def shrink(bias: float, lambd: float) -> Module:
    """HardShrink, SoftShrink, or the formula of both for another bias."""
    if lambd >= 0 and bias in (0, lambd):
        return modules.SoftShrink(lambd) if bias else modules.HardShrink(lambd)
    return Pointwise(formula=SHRINK, bias=bias, lambd=lambd)


MADE: dict[str, tuple[Callable[..., Module], dict[str, float]]] = {  # modules, and their attributes with defaults
    "Celu": (modules.Celu, {"alpha": 1.0}),
    "HardSigmoid": (modules.HardSigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Selu": (modules.Selu, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Shrink": (shrink, {"bias": 0.0, "lambd": 0.5}),
    "ThresholdedRelu": (modules.Threshold, {"alpha": 1.0}),
}
PLAIN = {
    "HardSwish": modules.HardSwish,
    "Mish": modules.Mish,
    "Sigmoid": modules.Sigmoid,
    "Softplus": modules.SoftPlus,
    "Softsign": modules.SoftSign,
    "Tanh": modules.Tanh,
}


@onnxOp(*MADE)
def made(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Activations with constants."""
    make, constants = MADE[op.type]
    y = op(make(*[op.get(name, default) for name, default in constants.items()]), x)
    return y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y)


@onnxOp(*PLAIN)
def plain(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Activations that are a module."""
    return op(PLAIN[op.type](), x)


@onnxOp("Relu")
def relu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Relu."""
    return op(modules.Relu() if isFloating(x.dtype) else Pointwise(formula="maximum(x, 0)"), x)


@onnxOp("Elu")
def elu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Elu."""
    return op(modules.Elu(op.get("alpha", 1.0)), x)


@onnxOp("LeakyRelu")
def leakyRelu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """LeakyRelu."""
    return op(modules.LeakyRelu(op.get("alpha", 0.01)), x)


@onnxOp("Gelu")
def gelu(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Gelu."""
    return op(modules.Gelu(op.get("approximate", "none") == "tanh"), x)


@onnxOp("Swish")
def swish(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Swish."""
    return op(modules.Swish(op.get("alpha", 1.0)), x)


@onnxOp("PRelu")
def pRelu(op: OnnxNode, x: OnnxValue, slope: OnnxValue) -> OnnxValue:
    """PRelu: a module with slopes if these are weights for channels, or one for all."""
    channels = None if x.shape is None or len(x.shape) < 2 else (x.shape[1], *[1] * (len(x.shape) - 2))
    if slope.isWeight and allWeights(slope) and slope.dtype == x.dtype and slope.array.shape in ((1,), channels):
        module = modules.PRelu(None if slope.array.shape == (1,) else slope.array.shape[0])
        return op(op.builder.fill(module, slope=OnnxValue.of(slope.name, slope.array.reshape(-1), isWeight=True)), x)
    y = op(Pointwise(formula="where(x > 0, x, slope * x)"), x, slope)
    return y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y)


@onnxOp("Softmax", "LogSoftmax", "Hardmax")
def softmax(op: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Before opset 13 the axes from `axis` on count as one."""
    kinds = {"Softmax": modules.SoftMax, "LogSoftmax": LogSoftMax, "Hardmax": HardMax}
    if op.version >= 13:
        return op(kinds[op.type](op.get("axis", -1)), x)
    rank = op.rankOf(x)
    axis = op.get("axis", 1) % max(rank, 1)
    if axis == rank - 1:
        return op(kinds[op.type](axis), x)
    flat = op(modules.Flatten(axis), x)
    y = op(kinds[op.type](axis), flat)
    return op(modules.Reshape(), y, op(modules.Shape(), x))


@onnxOp("Dropout")
def dropout(
    op: OnnxNode, x: OnnxValue, ratio: OnnxValue | None = None, training: OnnxValue | None = None
) -> OnnxValue | tuple[OnnxValue, OnnxValue]:
    """Zeros at random in the graph's trainMode; in training_mode, in every pass."""
    share = op.get("ratio", 0.5) if ratio is None else ratio.numbers
    if training is not None and bool(op.known(training, "training_mode")):
        if share is not None and not 0 <= float(share) < 1:
            op.refuse(f"ratio: wanted at least 0 and below 1, got {float(share)}")
        return dropped(op, x, op.scalar(share, x) if ratio is None else ratio)
    isPlain = share is None or not 0 < float(share) < 1
    y = op(modules.Identity() if isPlain else modules.Dropout(float(share)), x)
    return (y, op(Pointwise(formula="x == x or x != x"), x)) if op.wants(1) else y


def dropped(op: OnnxNode, x: OnnxValue, ratio: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """The elements that are kept, scaled to the expectation x, and the mask of kept elements."""
    drawn = op(op.seeded(modules.RandomLike("uniform")), x)
    kept = op(Pointwise(formula="u >= p"), drawn, ratio)
    y = op(Pointwise(formula="where(kept, x / (1 - p), 0)"), kept, x, ratio)
    return y if y.dtype == x.dtype else op(modules.Cast(x.dtype), y), kept
