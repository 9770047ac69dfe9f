"""Sorting along an axis as an operator of ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.ir.value import Call
from puregraph.ops.operation import op
from puregraph.ops.order.reference import sortAlong

if TYPE_CHECKING:
    from puregraph.onnx.rules.rulewriter import RuleWriter


@op(sortAlong).onnx
def ordered(writer: RuleWriter, call: Call) -> list[str]:
    """TopK; where nan counts is left open there."""
    x, axis, count, *rest = call.arguments
    isLargest = bool(rest[0] if rest else call.options.get("largest", False))
    options = {"axis": axis % x.ndim, "largest": int(isLargest)}
    names = [writer.step.fresh("values"), writer.step.fresh("indices")]
    writer.op("TopK", writer.name(x), writer.whole(count), out=names, **options)
    return names
