"""ActivationWriters: activations that have an ONNX operator."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from puregraph import modules
from puregraph.core.errors import GraphError
from puregraph.onnx.onnxwriter import OnnxStep, schemaOf, writesOnnx
from puregraph.onnx.writers.formulawriters import formula
from puregraph.onnx.writers.operatorwriters import checkTypes

OPERATORS: dict[type, tuple[str, dict[str, str]]] = {  # operators, and the constructor argument of each attribute
    modules.Celu: ("Celu", {"alpha": "alpha"}),
    modules.Elu: ("Elu", {"alpha": "alpha"}),
    modules.HardShrink: ("Shrink", {"lambd": "lambd"}),
    modules.HardSigmoid: ("HardSigmoid", {"alpha": "slope", "beta": "offset"}),
    modules.LeakyRelu: ("LeakyRelu", {"alpha": "slope"}),
    modules.Mish: ("Mish", {}),
    modules.Selu: ("Selu", {"alpha": "alpha", "gamma": "scale"}),
    modules.SoftShrink: ("Shrink", {"bias": "lambd", "lambd": "lambd"}),
    modules.SoftSign: ("Softsign", {}),
    modules.Threshold: ("ThresholdedRelu", {"alpha": "threshold"}),
}


@writesOnnx(*OPERATORS)
def activation(step: OnnxStep) -> None:
    """The operator of an activation; the operations of its formula if the opset has no operator for this dtype.

    A float64 activation is always a formula: the attributes are float32, and runtimes lack these operators in float64.
    """
    kind, sources = OPERATORS.get(type(step.module), ("", {}))  # a user's subclass may have another formula
    constants = constantsOf(step.module)
    if not hasOperator(step, kind) or constants.get("value"):  # ThresholdedRelu is 0 below its threshold
        formula(step)
        return
    attributes: dict[str, Any] = {name: float(constants[source]) for name, source in sources.items()}
    step.op(kind, step.x, out=step.y, **attributes)


def hasOperator(step: OnnxStep, kind: str) -> bool:
    """True if the opset has an operator that takes the input, and gives its dtype."""
    dtype = step.indtypes[0]
    if schemaOf(kind, step.opset) is None or dtype is None or dtype == np.float64 or dtype != step.dtypes[0]:
        return False
    try:
        checkTypes(step, kind)
    except GraphError:
        return False
    return True


def constantsOf(module: Any) -> dict[str, Any]:
    """The constructor arguments of a module by name, with defaults."""
    args, named = module.initArgs
    bound = inspect.signature(type(module)).bind(*args, **named)
    bound.apply_defaults()
    return bound.arguments
