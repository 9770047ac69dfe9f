"""MicrosoftCalls: what the readers of onnxruntime's own operators share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from puregraph import modules
from puregraph.onnx import opregistry
from puregraph.onnx.onnxnode import OnnxNode
from puregraph.onnx.onnxvalue import OnnxValue
from puregraph.onnx.opregistry import MICROSOFT, onnxOp
from puregraph.onnx.shapes.operandshapes import settleOperand

MASKED_SCORE = -10000.0  # added to the score of a masked key
ACTIVATIONS = {  # the names of their constants
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "HardSwish"), ()),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
}


def microsoftOp(*names: str, optional: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Register the function below; inputs without a default are required, except `optional` ones and zero points."""

    def register(read: Callable) -> Callable:
        formal = [p for p in inspect.signature(read).parameters.values() if p.kind is not p.VAR_POSITIONAL][1:]

        @wraps(read)
        def checked(op: OnnxNode, *values: OnnxValue | None) -> Any:
            padded = [*values, *[None] * (len(formal) - len(values))]
            for parameter, value in zip(formal, padded):
                isOptional = parameter.name.endswith("Zero") or parameter.name in optional
                if value is None and parameter.default is parameter.empty and not isOptional:
                    op.refuse(f"wanted an input {parameter.name}, got none")
            return read(op, *padded)

        onnxOp(*names, domain=MICROSOFT)(checked)
        return read

    return register


def standard(
    op: OnnxNode,
    kind: str,
    *values: OnnxValue | None,
    outputs: int = 1,
    version: int = opregistry.NEWEST,
    **attributes: Any,
) -> Any:
    """The outputs of a standard operator on these values; it has the first n `outputs` of this node."""
    proto = type(op.proto)(op_type=kind, output=op.proto.output[:outputs])
    inner = OnnxNode(proto, op.name, version, attributes, op.builder)
    inner.scope = op.scope
    settleOperand(kind, attributes, list(values))
    return opregistry.readerOf("", kind, version)(inner, *values)  # type: ignore[misc]


def refuseUnless(op: OnnxNode, **usual: Any) -> None:
    """Check that unsupported attributes are left out or have their usual value.

    Raises    GraphError naming the first that does not
    """
    for name, value in usual.items():
        if op.get(name, value) != value:
            op.refuse(f"{name}: wanted {value!r}, got {op.get(name)!r}")


def activated(op: OnnxNode, x: OnnxValue, name: str, numbers: Any) -> OnnxValue:
    """A value after the activation of a fused operator."""
    if not name:
        return x
    if name == "Clip":
        return standard(op, "Clip", x, *[op.scalar(number, x) for number in numbers])
    if name not in ACTIVATIONS:
        op.refuse(f"activation: wanted one of {', '.join([*ACTIVATIONS, 'Clip'])}, got {name!r}")
    return standard(op, name, x, **dict(zip(ACTIVATIONS[name], numbers)))


def summed(op: OnnxNode, *values: OnnxValue | None) -> OnnxValue:
    """The sum of the values that are present."""
    total, *others = [value for value in values if value is not None]
    for value in others:
        total = op(modules.Add(), total, value)
    return total


def counted(op: OnnxNode, x: OnnxValue, axis: int) -> OnnxValue:
    """The numbers 0, 1, 2, ... for the positions of an axis."""
    size = op(modules.Reshape(()), op(modules.Shape(axis, axis + 1), x))
    return standard(op, "Range", op.constant(np.array(0)), size, op.constant(np.array(1)))


def unscaled(op: OnnxNode, exact: OnnxValue, aScale: OnnxValue, bScale: OnnxValue, bias: OnnxValue | None) -> OnnxValue:
    """An exact product in float64, scaled and rounded once, with a bias in the dtype of the scale."""
    scale = op(modules.Mul(), aScale, bScale)
    y = op(modules.Mul(), op(modules.Cast(scale.dtype), exact), scale)
    return summed(op, y, bias)
