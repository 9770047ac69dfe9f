"""Table: the calls of a plan in columns."""

from __future__ import annotations

from typing import Any

from puregraph.compile.flops import flopsOf, layoutOf
from puregraph.compile.value import Call, Value
from puregraph.formula import formulasOf

HEAD = ("node", "call", "value", "layout", "bytes", "offset", "flops")
RIGHT = ("bytes", "offset", "flops")
WIDE = 56  # letters at most in a cell


def table(plan: Any) -> str:
    """One line a call that does something, and what all of them take."""
    rows, flops = [], 0
    before = None
    for i, call in enumerate(plan.schedule.calls):
        if call.kind == "view":
            continue
        flops += flopsOf(call)
        path = call.place.path if call.place != before else ""
        before = call.place
        rows.append((path, *cellsOf(call, plan, i)))
    cells = [HEAD, *rows]
    wide = [max(len(row[i]) for row in cells) for i in range(len(HEAD))]
    lines = [
        "  ".join(padded(cell, width, name) for cell, width, name in zip(row, wide, HEAD)).rstrip() for row in cells
    ]
    rule = "-" * (sum(wide) + 2 * len(wide) - 2)
    total = f"{len(rows)} calls, {plan.bytes:,} bytes of memory in {len(plan.buffers)} pieces, {flops:,} operations"
    return "\n".join([lines[0], rule, *lines[1:], rule, total])


def padded(cell: str, width: int, name: str) -> str:
    """A cell in the width of its column."""
    return cell.rjust(width) if name in RIGHT else cell.ljust(width)


def cellsOf(call: Call, plan: Any, i: int) -> tuple[str, ...]:
    """What a line says of a call."""
    made = [y for y in call.outs if y is not None and y.role != "object"]
    nbytes = sum(y.nbytes for y in made)
    made = [y for y in made if y.name != "scratch"]
    kinds = ", ".join(f"{y.dtype}{list(y.shape)}".replace(" ", "") for y in made)
    places = ", ".join(placeOf(y, plan) for y in made)
    flops = flopsOf(call)
    return (
        cut(told(call)),
        cut(kinds),
        ", ".join(filter(None, map(layoutOf, made))),
        f"{nbytes:,}" if made else "",
        cut(f"{places}*" if i in plan.taken else places),
        f"{flops:,}" if flops else "",
    )


def placeOf(y: Value, plan: Any) -> str:
    """Where a result lies: its offset in the arena, or the name of what holds it."""
    place = plan.places.get(y.number)
    if hasattr(place, "offset"):
        return f"{place.offset:,}"
    return "" if place is None else "gradient" if type(place).__name__ == "GradientOf" else "in place"


def told(call: Call) -> str:
    """What a call does: a formula, or a function and its options."""
    if call.kind == "native":
        return call.function.name
    if hasattr(call.function, "terms"):
        return "; ".join(map(str, formulasOf(call.function)))
    if call.kind == "native":
        return call.function.name
    given = ", ".join(f"{k}={v}" for k, v in call.options.items() if k != "target" and v is not None)
    return f"{call.name}({given})" if given else call.name


def cut(text: str) -> str:
    """A text in the space of a cell."""
    return text if len(text) <= WIDE else f"{text[: WIDE - 3]}..."
