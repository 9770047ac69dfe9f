"""Lengths of sequences as operators of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op
from puregraph.ops.recurrent.reference import alive

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(alive).onnx
def within(writer: RuleWriter, call: Call) -> str:
    """True at positions below each length."""
    lengths, count = call.arguments
    rows = writer.reshape(writer.name(lengths, np.int64), (lengths.shape[0], 1))
    return writer.op("Less", writer.step.constant(np.arange(count)), rows)
