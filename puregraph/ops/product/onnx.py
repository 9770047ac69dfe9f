"""Products as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(np.matmul).onnx
def product(writer: RuleWriter, call: Call) -> str:
    """MatMul."""
    return writer.op("MatMul", *[writer.name(x, call.outs[0].dtype) for x in call.arguments])


@op(np.einsum).onnx
def einsum(writer: RuleWriter, call: Call) -> str:
    """Einsum."""
    equation, *xs = call.arguments
    return writer.op("Einsum", *[writer.name(x, call.outs[0].dtype) for x in xs], equation=equation.replace(" ", ""))
