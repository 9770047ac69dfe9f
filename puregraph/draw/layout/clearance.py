"""Clearance: find lines that run through a box, and move them beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS_AT_A_TIME = 1000  # parts of lines that are compared with the boxes at their height at a time
BORDER = 0.4  # width of a box's border, which a line may touch
CLEAR = 2.5  # distance between a box and a line that was moved beside it
MOVING_ROUNDS = 4  # rounds of moving, because a moved line may meet another box


class Hit(NamedTuple):
    """A part of a line that runs through a box, other than the line's two ends; all by number."""

    edge: int
    part: int
    box: int


def cleared(request: dict[str, Any], layout: Any) -> int:
    """Move line parts that run through boxes beside them; returns the number of parts that could not be moved."""
    hits = linesThrough(request, layout)
    for _ in range(MOVING_ROUNDS):
        if not hits:
            break
        before = {hit.edge: [dict(point) for point in layout.edges[hit.edge]["points"]] for hit in hits}
        for hit in hits:
            moveBeside(layout, request["edges"][hit.edge], hit)
        left = linesThrough(request, layout)
        if len(left) >= len(hits):
            for edge, points in before.items():
                layout.edges[edge]["points"] = points
            break
        hits = left
    return len(hits)


def moveBeside(layout: Any, edge: Mapping[str, object], hit: Hit) -> None:
    """Move one part of a line to the nearer side of a box, unless its end would leave the box that it belongs to."""
    points, box = layout.edges[hit.edge]["points"], layout.nodes[hit.box]
    a, b = points[hit.part], points[hit.part + 1]
    axis, side = ("x", "width") if a["x"] == b["x"] else ("y", "height")
    reach = box["size"][side] / 2 + CLEAR
    middle = box["center"][axis]
    to = round(middle + (reach if a[axis] > middle else -reach), 1)
    ends = [edge["source"]] * (hit.part == 0) + [edge["target"]] * (hit.part == len(points) - 2)
    for end in (layout.nodes[number] for number in ends):
        if axis == "y" or abs(to - end["center"][axis]) > end["size"][side] / 2 - CLEAR:
            return
    a[axis] = b[axis] = to


def linesThrough(request: dict[str, Any], layout: Any) -> list[Hit]:
    """Find every part of a line that runs through a box other than its two ends."""
    frames = {node["parent"] for node in request["nodes"] if "parent" in node}
    boxes = np.array([i for i in range(len(request["nodes"])) if i not in frames], dtype=int)
    center = np.array([[layout.nodes[i]["center"][axis] for axis in "xy"] for i in boxes]).reshape(-1, 2)
    half = np.array([[layout.nodes[i]["size"][side] / 2 - BORDER for side in ("width", "height")] for i in boxes])
    low, high = (center - half.reshape(-1, 2)).T, (center + half.reshape(-1, 2)).T
    ends, parts = [], []
    for i, (edge, line) in enumerate(zip(request["edges"], layout.edges, strict=True)):
        for part, (a, b) in enumerate(zip(line["points"], line["points"][1:])):
            ends.append((i, part, edge["source"], edge["target"]))
            parts.append((a["x"], a["y"], b["x"], b["y"]))
    numbers, corners = np.array(ends, dtype=int).reshape(-1, 4), np.array(parts, dtype=float).reshape(-1, 4)
    first, last = np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])
    order = np.argsort(first[:, 1], kind="stable")  # parts of a chunk are then at similar heights
    hits = []
    for start in range(0, len(order), PARTS_AT_A_TIME):
        chunk = order[start : start + PARTS_AT_A_TIME]
        near = np.flatnonzero((low[1] < last[chunk, 1].max()) & (high[1] > first[chunk, 1].min()))
        isInside = (last[chunk, None, 0] > low[0, near]) & (first[chunk, None, 0] < high[0, near])
        isInside &= (last[chunk, None, 1] > low[1, near]) & (first[chunk, None, 1] < high[1, near])
        for part, box in np.argwhere(isInside):
            edge, position, *around = map(int, numbers[chunk[part]])
            if boxes[near[box]] not in around:
                hits.append(Hit(edge, position, int(boxes[near[box]])))
    return sorted(hits)
