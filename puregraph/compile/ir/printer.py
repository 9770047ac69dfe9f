"""Printer: a schedule as text, one line a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.ops.formula.formula import formulasOf
from puregraph.ops.ir.value import Value, text

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule
    from puregraph.ops.ir.value import Call


def listing(schedule: Schedule) -> str:
    """Every call with its node and the shape of its result."""
    lines = [repr(schedule)]
    lines += [f"  input {v!r}" for v in schedule.inputs]
    origin = None
    for call in schedule.calls:
        if call.origin is not origin:
            origin = call.origin
            lines.append(f"{origin.path}  ({origin.label}, {origin.phase})")
        made = ", ".join("None" if y is None else shown(y) for y in call.outs)
        lines.append(f"  {call.kind.name:9} {call!r}   {made}{formula(call)}")
    for what, values in (("output", schedule.outputs), ("input gradient", schedule.inputGrads)):
        lines += [f"  {what} {text(v)}" for v in values if v is not None]
    lines += [f"  gradient {text(v)}   {v.name}" for _, v in schedule.paramGrads]
    lines += [f"  store {text(v)}" for _, v in schedule.stores]
    return "\n".join(lines)


def shown(y: Value) -> str:
    """Dtype and shape of a result, and its location if it shares memory."""
    if y.role == "object":
        return "object"
    return f"{y.dtype}{list(y.shape)}" + (f" in %{y.base.number}" if y.base is not None else "")


def formula(call: Call) -> str:
    """The formulas that a call computes."""
    if call.kind.isOpaque:
        return f"   opaque: {call.function.reason}"
    if not hasattr(getattr(call, "function", None), "terms"):
        return ""
    return "   " + "; ".join(map(str, formulasOf(call.function)))
