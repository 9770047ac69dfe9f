"""The picture of a difference: the second of two graphs, with the nodes that differ marked."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from puregraph.draw.drawing import Drawing
from puregraph.draw.graphpicture import MAX_LINE_CHARACTERS, graphPicture
from puregraph.draw.picture import Picture, replaced
from puregraph.graph.analysis.difference import ModelDifference

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph

MAX_BOX_LINES = 6  # maximum lines of a box, and nodes that a note lists


def differenceDrawing(first: Graph, second: Graph, compared: ModelDifference, depth: int | None = None) -> Drawing:
    """Draw the second graph with changed and new nodes marked; a page shows the first one beside it."""
    changes = {change.second: change.lines for change in compared.changed}
    before = {change.first: change.lines for change in compared.changed}
    pictures = []
    for graph, lines, only, other in (
        (first, before, compared.onlyFirst, "second"),
        (second, changes, compared.onlySecond, "first"),
    ):
        alone = {node.path: [f"not in the {other} model"] for node in only}
        pictures.append(marked(graphPicture(graph), {**lines, **alone}))
    gone = [node.path for node in compared.onlyFirst]
    if gone:
        more = f" and {len(gone) - MAX_BOX_LINES} more" if len(gone) > MAX_BOX_LINES else ""
        pictures[1].notes = (*pictures[1].notes, f"only in the first model: {', '.join(gone[:MAX_BOX_LINES])}{more}")
    return Drawing(pictures[1], depth, repeats=True, beside=pictures[:1])


def marked(picture: Picture, changes: dict[str, list[str]]) -> Picture:
    """The picture with changed boxes in the colour of a fault, and with the changes as their text."""
    count = 0
    inputs = [box.name for box in picture.boxes if box.name.startswith("input ")]
    names = {name: f"input {i}" for i, name in enumerate(inputs)}
    for i, box in enumerate(picture.boxes):
        lines = changes.get(names.get(box.name, box.name))
        if lines is None:
            continue
        count += 1
        wrapped = [part for line in lines for part in textwrap.wrap(line, MAX_LINE_CHARACTERS, subsequent_indent="  ")]
        story = (*box.story, *(("differs", line) for line in lines))
        shown = (*box.lines[:1], *wrapped[:MAX_BOX_LINES], *(["..."] if len(wrapped) > MAX_BOX_LINES else []))
        picture.boxes[i] = replaced(box, kind="fault", lines=shown, story=story)
    picture.notes = (*picture.notes, f"{count} of {len(picture.boxes)} boxes differ, in red")
    return picture
