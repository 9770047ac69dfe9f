"""Ordering: choose the order of boxes in their layers in which the fewest lines cross."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from puregraph.core.errors import PuregraphError
from puregraph.draw.layout.clearance import cleared

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

USUAL: tuple[dict[str, Any], ...] = ({},)
CAREFUL: tuple[dict[str, Any], ...] = tuple(
    {"order": {"heuristic": name}, "tuning": {"order": {"seeds": 24}}} for name in ("alternate", "median", "barycenter")
)
MAX_REORDERED_BOXES = 200  # boxes up to which several orders are tried
# crossings of a quick layout above which less effort, or none, pays off
TANGLED_CROSSINGS, HOPELESS_CROSSINGS = 150, 1000
QUICK = {"effort": "fast", "tuning": {"order": {"kick_rounds": 200}}}
BOUNDED = {"effort": "balanced", "tuning": {"order": {"kick_rounds": 2000}}}
RANDOM_STARTS = 5  # random starts until no line runs through a box; fewer for hundreds of boxes
MAX_SIMPLEX_SIZE = 3000  # boxes plus crossed layers above which coordinates by network simplex take seconds
MAX_COMPARED_BOXES, MAX_EXACT_BOXES = 1100, 1700  # the same for many boxes: one layout is enough, and a rough one
BROAD = 400_000  # pairs of parallel lines above which separating overlapping ones takes seconds
ROUGH = {
    "effort": "fast",
    "tuning": {"order": {"kick_rounds": 0, "balance_rounds": 0}},
    "coords": {"placement": "brandes_koepf"},
    "routing": {"merge_edges": "none", "lane_gap": 8.0},
}
UNPARTED = {
    **ROUGH,
    "tuning": {
        "order": {"kick_rounds": 0, "balance_rounds": 0, "seeds": 1, "sweeps": 1, "sifting_rounds": 0},
        "routing": {"overlap_repair_rounds": 0},
    },
}


def engine() -> ModuleType:
    """The layout library.

    Raises    PuregraphError saying what to install if it is missing
    """
    try:
        import graphlay  # only pictures need it
    except ImportError as error:
        raise PuregraphError(
            "a picture's boxes are placed by graphlay, which is not installed: pip install 'puregraph[draw]'; "
            "a .dot file needs nothing"
        ) from error
    return graphlay


class Effort(NamedTuple):
    """The effort for a layout: options, the orders to try, and whether one try is enough; or a finished layout."""

    options: dict[str, Any]
    orders: Sequence[dict[str, Any]]
    isTangled: bool = False
    layout: Any = None


def effortFor(request: dict[str, Any], options: Mapping[str, object], boxes: int) -> Effort:
    """Choose the effort: high if few lines cross, low if thousands do, where minutes would change little.

    The choice depends on counts, never on a clock, so that a graph has the same picture on any machine.
    """
    crossed, layers = layersCrossed(request["edges"])
    size, isMany = boxes + crossed, boxes > MAX_REORDERED_BOXES
    if size > (MAX_EXACT_BOXES if isMany else MAX_SIMPLEX_SIZE):
        lines = len(request["edges"]) + crossed
        isBroad = lines * lines > BROAD * layers
        return Effort({}, USUAL, True, laidOut(request, {**options, **(UNPARTED if isBroad else ROUGH)}))
    layout = laidOut(request, {**options, **QUICK})
    count = crossings(request["edges"], layout.edges)
    if count > (TANGLED_CROSSINGS if isMany else HOPELESS_CROSSINGS) or isMany and size > MAX_COMPARED_BOXES:
        return Effort({}, USUAL, True, layout)
    if count > TANGLED_CROSSINGS:
        return Effort(BOUNDED, USUAL, True)
    return Effort({"effort": "balanced"}, USUAL if isMany else CAREFUL)


def fewestCrossings(
    request: dict[str, Any], options: Mapping[str, object], orders: Sequence[dict[str, Any]]
) -> tuple[Any, dict[str, Any]]:
    """Return the layout with the fewest crossings, or the narrowest of equals, and its order."""
    candidates = []
    for order in orders:
        layout = laidOut(request, {**options, **order})
        if len(orders) == 1:
            return layout, order
        width = layout.bounds["max"]["x"] - layout.bounds["min"]["x"]
        candidates.append((crossings(request["edges"], layout.edges), width, layout, order))
        if not candidates[-1][0]:
            break
    return min(candidates, key=lambda candidate: candidate[:2])[2:]


def laidOut(request: dict[str, Any], options: Mapping[str, object]) -> Any:
    """Return a layout whose lines avoid boxes. If there is no room for a line, other random starts are tried."""
    candidates: list[tuple[int, int, Any]] = []
    starts = max(1, min(RANDOM_STARTS, 1000 // (1 + len(request["nodes"]))))
    for seed in range(starts):
        layout = engine().layout(request, options={**options, "seed": seed})
        candidates.append((cleared(request, layout), seed, layout))
        if not candidates[-1][0]:
            break
    return min(candidates)[2]


def layersCrossed(edges: list[dict[str, Any]]) -> tuple[int, int]:
    """Count the layers that edges cross between their ends, and all layers.

    Every box is in the highest layer that its sources permit.
    """
    targets, waiting = defaultdict[Any, list[Any]](list), Counter[Any]()
    for edge in edges:
        targets[edge["source"]].append(edge["target"])
        waiting[edge["target"]] += 1
    layer = dict.fromkeys((source for source in targets if not waiting[source]), 0)
    ready = list(layer)
    while ready:
        source = ready.pop()
        for target in targets[source]:
            layer[target] = max(layer.get(target, 0), layer[source] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    crossed = sum(max(0, layer.get(edge["target"], 0) - layer.get(edge["source"], 0) - 1) for edge in edges)
    return crossed, 1 + max(layer.values(), default=0)


def crossings(asked: list[dict[str, Any]], drawn: list[dict[str, Any]]) -> int:
    """Count the crossings of vertical line parts with horizontal ones that leave another box."""
    parts = [
        (edge["source"], a["x"], a["y"], b["x"], b["y"])
        for edge, line in zip(asked, drawn, strict=True)
        for a, b in zip(line["points"], line["points"][1:])
    ]
    source, x1, y1, x2, y2 = np.array(parts, dtype=float).reshape(-1, 5).T
    left, right, top, bottom = np.minimum(x1, x2), np.maximum(x1, x2), np.minimum(y1, y2), np.maximum(y1, y2)
    level, steep = np.flatnonzero(y1 == y2)[:, None], np.flatnonzero(x1 == x2)
    across = (left[level] < x1[steep]) & (x1[steep] < right[level])
    along = (top[steep] < y1[level]) & (y1[level] < bottom[steep])
    return int(np.sum(across & along & (source[level] != source[steep])))
