"""A picture in the DOT language, for Graphviz and whatever else reads it."""

from __future__ import annotations

from puregraph.draw.escape import dotQuoted
from puregraph.draw.layout.placement import countedTitle, frameText
from puregraph.draw.picture import Picture, PictureBox

OUTLINES = {
    "input": "shape=ellipse",
    "output": "shape=ellipse, peripheries=2",
    "cost": "shape=hexagon",
    "update": "shape=note",
    "gradient": "shape=house",
    "state": "shape=box, style=diagonals",
    "group": "shape=box3d",
    "fault": 'shape=box, color="#b3261e", penwidth=2.5',
    "unknown": "shape=box, style=dashed",
    "recomputed": "shape=box, style=dashed",
}
LINES = {"kept": ", style=dotted", "state": ", style=dashed"}


def dotText(picture: Picture) -> str:
    """The DOT file of a picture; groups are clusters."""
    numbers = {box.name: f"n{i}" for i, box in enumerate(picture.boxes)}
    lines = ["digraph {", f"  label={dotQuoted(picture.title)};", "  labelloc=t;", "  node [shape=box, style=rounded];"]
    lines += inside(picture, "", numbers, "  ")
    for edge in picture.edges:
        ends = {"label": edge.label, "taillabel": edge.slot, "headlabel": edge.argument}
        text = ", ".join(f"{name}={dotQuoted(value)}" for name, value in ends.items() if value)
        kind = LINES.get(edge.kind, "")
        label = f" [{text}{kind}]" if text else f" [{kind[2:]}]" if kind else ""
        lines.append(f"  {numbers[edge.source]} -> {numbers[edge.target]}{label};")
    return "\n".join([*lines, "}"]) + "\n"


def inside(picture: Picture, group: str, numbers: dict[str, str], indent: str) -> list[str]:
    """The boxes of a group and the groups in it."""
    lines = [f"{indent}{numbers[box.name]} {boxDot(box)};" for box in picture.boxes if box.group == group]
    for i, (name, inner) in enumerate(picture.groups.items()):
        if inner.parent == group:
            lines += [f"{indent}subgraph cluster{i} {{", f"{indent}  label={dotQuoted(frameText(inner))};"]
            lines += [*inside(picture, name, numbers, indent + "  "), f"{indent}}}"]
    return lines


def boxDot(box: PictureBox) -> str:
    """The attributes of a box."""
    outline = OUTLINES.get(box.kind)
    text = "\n".join([countedTitle(box), *box.lines])
    return f"[label={dotQuoted(text)}{', ' + outline if outline else ''}]"
