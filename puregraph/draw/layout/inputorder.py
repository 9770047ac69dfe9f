"""Input order: of several inputs the first stands on the left, and the last on the right, where no more lines cross."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from puregraph.draw.layout.ordering import USUAL, crossings, engine
from puregraph.draw.picture import Picture

SEVERAL = range(3, 33)  # inputs of which the order is looked at
HEAVY = 2.0  # of an edge of the main path


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
    """A request in which the edges from one node on are heavy, up to where other edges join them."""
    arriving = Counter(edge["target"] for edge in request["edges"])
    path, edges = {start}, []
    for edge in request["edges"]:
        isHeavy = edge["source"] in path
        if isHeavy and arriving[edge["target"]] == 1:
            path.add(edge["target"])
        edges.append({**edge, "weight": HEAVY} if isHeavy else edge)
    return {**request, "edges": edges}


def disorder(request: dict[str, Any], inputs: list[int]) -> tuple[int, int]:
    """Count the crossings of lines, then the pairs of inputs that are drawn out of order."""
    layout = engine().layout(request, options={"direction": "topbottom", "effort": "balanced"})
    x = [layout.nodes[i]["center"]["x"] for i in inputs]
    return crossings(request["edges"], layout.edges), sum(a > b for a, b in combinations(x, 2))
