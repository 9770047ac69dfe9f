"""Casts, choices and rounding as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.core.tracer import astype
from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(astype).onnx
def cast(writer: RuleWriter, call: Call) -> str:
    """Cast."""
    return writer.cast(writer.name(call.arguments[0]), call.outs[0].dtype)


@op(np.where).onnx
def where(writer: RuleWriter, call: Call) -> str:
    """Where, element by element."""
    condition, a, b = call.arguments
    dtype = call.outs[0].dtype
    return writer.op("Where", writer.name(condition, bool), writer.name(a, dtype), writer.name(b, dtype))


@op(np.round).onnx
def rounded(writer: RuleWriter, call: Call) -> str:
    """Round."""
    return writer.op("Round", writer.name(call.arguments[0]))
