"""Input order: draw several inputs in order from left to right, if no more lines cross then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from puregraph.draw.layout.ordering import USUAL, crossings, engine
from puregraph.draw.picture import Picture

SEVERAL = range(3, 33)  # numbers of inputs that are ordered
MAIN_PATH_WEIGHT = 2.0  # weight of an edge of the main path


def inOrder(request: dict[str, Any], picture: Picture, frames: int, orders: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a request, with another main path if that keeps the order of inputs better.

    The layout library draws the main path in the middle. By default it takes the path of the first input, unless
    another path is heavier.
    """
    inputs = [frames + i for i, box in enumerate(picture.boxes) if box.kind == "input"]
    if len(inputs) not in SEVERAL or orders == USUAL:
        return request
    middle = {inputs[(len(inputs) - 1) // 2], inputs[len(inputs) // 2]}
    asked = [request, *(withMainPath(request, start) for start in sorted(middle))]
    return min(asked, key=lambda asking: disorder(asking, inputs))


def withMainPath(request: dict[str, Any], start: int) -> dict[str, Any]:
    """The request with heavy edges on the path from a node on, up to the first node that other edges enter."""
    arriving = Counter(edge["target"] for edge in request["edges"])
    path, edges = {start}, []
    for edge in request["edges"]:
        isHeavy = edge["source"] in path
        if isHeavy and arriving[edge["target"]] == 1:
            path.add(edge["target"])
        edges.append({**edge, "weight": MAIN_PATH_WEIGHT} if isHeavy else edge)
    return {**request, "edges": edges}


def disorder(request: dict[str, Any], inputs: list[int]) -> tuple[int, int]:
    """(crossings of lines, pairs of inputs that are drawn out of order), of a quick layout."""
    layout = engine().layout(request, options={"direction": "topbottom", "effort": "balanced"})
    x = [layout.nodes[i]["center"]["x"] for i in inputs]
    return crossings(request["edges"], layout.edges), sum(a > b for a, b in combinations(x, 2))
