"""Graphviz: the calls of a plan as a graph in the DOT language."""

from __future__ import annotations

from textwrap import shorten
from typing import Any

from puregraph.compile.ir.value import Value
from puregraph.compile.report.describe import Describer

WIDE = 80  # letters at most in a box
SHAPES = {
    "input": "ellipse",
    **dict.fromkeys(("param", "state", "attribute"), "cylinder"),
    **dict.fromkeys(("constant", "scalar"), "plaintext"),
}


def drawing(plan: Any) -> str:
    """Every call as a box, every input, parameter and state as its holder, and the values as edges between them."""
    schedule = plan.schedule
    lines = ["digraph Program {", "  rankdir=TB;", "  node [shape=box, style=rounded];"]
    source: dict[int, str] = {}
    describer = Describer(schedule)
    for i, call in enumerate(schedule.calls):
        if call.kind.isView:
            continue
        terms = "; ".join(line.text for line in describer.lines(call))
        lines.append(f"  c{i} [label={quoted(shorten(f'{call.origin.path}: {terms}', WIDE, placeholder=' ...'))}];")
        for v in dict.fromkeys(v.root for v in call.values()):
            lines += entered(v, source)
            lines.append(f"  {source[v.number]} -> c{i} [label={quoted(f'{v.dtype}{list(v.shape)}')}];")
        source.update((y.number, f"c{i}") for y in call.outs if y is not None)
    for index, y in enumerate(schedule.outputs):
        if y is not None:
            lines += entered(y.root, source)
            lines += [f"  o{index} [label=output, shape=ellipse];", f"  {source[y.root.number]} -> o{index};"]
    return "\n".join([*lines, "}"]) + "\n"


def entered(v: Value, source: dict[int, str]) -> list[str]:
    """The node of a Value that no call computes, when it is first met."""
    if v.number in source:
        return []
    source[v.number] = f"v{v.number}"
    return [f"  v{v.number} [label={quoted(v.name or v.role)}, shape={SHAPES.get(v.role, 'box')}];"]


def quoted(text: str) -> str:
    """A quoted DOT string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
