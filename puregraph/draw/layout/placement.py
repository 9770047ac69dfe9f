"""Placement: the coordinates of boxes, frames, edges and labels; graphlay positions boxes, routes edges."""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.draw.layout.edgelabels import LabelFinder
from puregraph.draw.layout.inputorder import inOrder
from puregraph.draw.layout.ordering import effortFor, fewestCrossings
from puregraph.draw.layout.textwidth import shortened, textWidth
from puregraph.draw.picture import Picture, PictureBox, PictureEdge, PictureGroup

NAME_SIZE, LINE_SIZE, PORT_SIZE, LABEL_SIZE, TITLE_SIZE = 12.0, 10.0, 8.5, 9.5, 15.0  # font sizes
HEIGHT = {NAME_SIZE: 15.0, LINE_SIZE: 13.0}  # height of a line of text
MARGIN, HEADER, PORTS = 9.0, 16.0, 11.0
GAPS = ((34.0, 8.0), (46.0, 8.0), (66.0, 18.0), (100.0, 18.0))  # (between layers, between parallel edges)
MAX_RETRIED_BOXES = 600  # boxes up to which a picture is placed again with larger gaps until all labels fit
SPACING = {"node_gap": 30.0, "compound_padding": 14.0, "compound_header": HEADER, "dummy_gap": 22.0, "stub": 16.0}


class Rectangle(NamedTuple):
    """An upright rectangle by its corners."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Rectangle) -> bool:
        """True if two rectangles have more than a border in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class PlacedLabel(NamedTuple):
    """A text, and the rectangle that it fills."""

    text: str
    area: Rectangle


class PlacedPicture(NamedTuple):
    """A picture with its coordinates, all of which are at least 0.

    `edges` are in the picture's order, each with the points of its line, and its label if it has one.
    """

    picture: Picture
    width: float
    height: float
    boxes: list[tuple[PictureBox, Rectangle]]
    groups: list[tuple[PictureGroup, Rectangle, str]]
    edges: list[tuple[PictureEdge, list[tuple[float, float]], PlacedLabel | None]]
    ports: list[PlacedLabel]


def placed(picture: Picture) -> PlacedPicture:
    """Lay out a picture, deterministically, with larger gaps if labels do not fit."""
    if not picture.boxes:
        return PlacedPicture(picture, 40.0, 40.0, [], [], [], [])
    values = len({(edge.source, edge.value) for edge in picture.edges if edge.label})
    groups = framesOf(picture)
    request = requestOf(picture, groups)
    effort = effortFor(request, optionsOf(picture, *GAPS[0]), len(picture.boxes))
    if effort.layout is not None:
        return measured(picture, groups, effort.layout)
    orders = effort.orders
    request = inOrder(request, picture, len(groups), orders)
    best, most = None, -1
    for gap, lane in GAPS:
        options = optionsOf(picture, gap, lane) | effort.options
        layout, order = fewestCrossings(request, options, orders)
        orders = (order,)
        candidate = measured(picture, groups, layout)
        count = sum(label is not None for _, _, label in candidate.edges)
        if count > most:
            best, most = candidate, count
        if effort.isTangled or len(picture.boxes) > MAX_RETRIED_BOXES or count == values:
            break
    return best or candidate


def optionsOf(picture: Picture, gap: float, lane: float) -> dict[str, Any]:
    """The options of graphlay, for gaps between layers (`gap`) and between parallel edges (`lane`)."""
    merging = "none" if any(box.slots for box in picture.boxes) else "forks"  # a fork would join different outputs
    spacing, routing = {**SPACING, "layer_gap": gap}, {"merge_edges": merging, "lane_gap": lane}
    return {"direction": "topbottom", "spacing": spacing, "routing": routing}


def measured(picture: Picture, groups: list[str], layout: Any) -> PlacedPicture:
    """The picture with the coordinates of a layout, a title above it, and labels beside their edges."""
    areas = [areaOf(node) for node in layout.nodes]
    lines = [[(p["x"], p["y"]) for p in edge["points"]] for edge in layout.edges]
    head = 2 * MARGIN + 20.0 + 14.0 * len(picture.notes)
    left = min([area.left for area in areas] + [x for line in lines for x, _ in line]) - 2 * MARGIN
    top = min([area.top for area in areas] + [y for line in lines for _, y in line]) - head
    areas = [
        Rectangle(*(round(v, 1) for v in (a.left - left, a.top - top, a.right - left, a.bottom - top))) for a in areas
    ]
    lines = [[(round(x - left, 1), round(y - top, 1)) for x, y in line] for line in lines]
    boxes = list(zip(picture.boxes, areas[len(groups) :]))
    frames = [(picture.groups[n], area, frameTitle(picture.groups[n], area, lines)) for n, area in zip(groups, areas)]
    titles = [
        Rectangle(a.left + 6, a.top + 2, a.left + 6 + textWidth(t, LINE_SIZE, True), a.top + HEADER)
        for _, a, t in frames
    ]
    finder = LabelFinder([a for _, a in boxes], titles, [a for _, a, _ in frames], lines)
    labels = labelsOf(picture.edges, lines, finder)
    ports = portsOf(boxes, picture.edges, lines)
    right = max([a.right for a in areas] + [x for line in lines for x, _ in line] + [b.area.right for b in labels if b])
    texts = [textWidth(picture.title, TITLE_SIZE, True), *(textWidth(note, LINE_SIZE) for note in picture.notes)]
    bottom = max([a.bottom for a in areas] + [y for line in lines for _, y in line])
    width, height = max(right, 2 * MARGIN + max(texts)) + 2 * MARGIN, bottom + 2 * MARGIN
    drawn = list(zip(picture.edges, lines, labels))
    return PlacedPicture(picture, round(width, 1), round(height, 1), boxes, frames, drawn, ports)


def framesOf(picture: Picture) -> list[str]:
    """The groups that contain boxes, outer groups first."""
    shown: dict[str, None] = {}
    for box in picture.boxes:
        name = box.group
        while name and name not in shown:
            shown[name] = None
            name = picture.groups[name].parent
    return sorted(shown, key=lambda name: (picture.depthOf(name), name))


def requestOf(picture: Picture, groups: list[str]) -> dict[str, Any]:
    """Build the request to graphlay: frames and boxes as nodes, and edges with their ports."""
    number = {f"frame {name}": i for i, name in enumerate(groups)}
    parents = [picture.groups[name].parent for name in groups]
    nodes = [nodeOf(10.0, 10.0, number[f"frame {parent}"] if parent else None) for parent in parents]
    sizes = {box.name: boxSize(box) for box in picture.boxes}
    for group in groups:  # edges enter in the middle, so half of a frame's width must hold its name
        inside = [box.name for box in picture.boxes if box.group == group]
        if inside:
            widest = max(inside, key=lambda name: sizes[name])
            least = 2 * (textWidth(countedTitle(picture.groups[group]), LINE_SIZE, True) + MARGIN)
            sizes[widest] = max(sizes[widest][0], round(least, 1)), sizes[widest][1]
    for box in picture.boxes:
        number[box.name] = len(nodes)
        nodes.append(nodeOf(*sizes[box.name], number[f"frame {box.group}"] if box.group else None))
    boxes = {box.name: box for box in picture.boxes}
    hasSlots = any(box.slots for box in picture.boxes)
    edges = []
    for edge in picture.edges:
        ends: dict[str, Any] = {"source": number[edge.source], "target": number[edge.target], "weight": 1.0}
        slots = boxes[edge.source].slots
        start = portOf(slots, edge.slot) if slots else 0.0 if hasSlots else None
        if start is not None:
            ends["source_port"] = {"offset": {"side": "bottom", "t": start}}
        if edge.argument.isdecimal():
            ends["target_port"] = {"side": "top"}  # numbers are short, and are drawn where their edges arrive
        elif edge.argument:
            stop = portOf(boxes[edge.target].arguments, edge.argument)
            ends["target_port"] = {"offset": {"side": "top", "t": stop}}
        edges.append(ends)
    return {"nodes": nodes, "edges": edges}


def nodeOf(width: float, height: float, parent: int | None) -> dict[str, Any]:
    """A node of the request to graphlay."""
    node: dict[str, Any] = {"size": {"width": width, "height": height}, "shape": "box"}
    return node if parent is None else {**node, "parent": parent}


def areaOf(node: dict[str, Any]) -> Rectangle:
    """The rectangle of a node that graphlay placed."""
    x, y, w, h = node["center"]["x"], node["center"]["y"], node["size"]["width"], node["size"]["height"]
    return Rectangle(x - w / 2, y - h / 2, x + w / 2, y + h / 2)


# Boxes ----------------------------------------------------------------------------------------------------------------


def boxSize(box: PictureBox) -> tuple[float, float]:
    """The width and height of a box, from its texts."""
    wide = max([textWidth(countedTitle(box), NAME_SIZE, True), *(textWidth(line, LINE_SIZE) for line in box.lines)])
    ends = [sum(textWidth(name, PORT_SIZE) + 8 for name in names) for names in (box.slots, box.arguments)]
    widest = [
        max((textWidth(name, PORT_SIZE) + 8 for name in names), default=0) * len(names)
        for names in (box.slots, box.arguments)
    ]
    wide = max(wide, *ends, *widest)
    high = HEIGHT[NAME_SIZE] + HEIGHT[LINE_SIZE] * len(box.lines) + 8 + PORTS * (bool(box.slots) + bool(box.arguments))
    isRound = box.kind in ("input", "output", "cost")
    return round(max(wide, 30.0) + (3.2 if isRound else 2) * MARGIN, 1), round(high, 1)


def countedTitle(drawn: PictureBox | PictureGroup) -> str:
    """The title of a box or group, with the number of equal ones that it stands for."""
    return f"{drawn.title}  \N{MULTIPLICATION SIGN} {drawn.repeats}" if drawn.repeats > 1 else drawn.title


def frameText(group: PictureGroup) -> str:
    """The name of a group and its module."""
    return f"{countedTitle(group)}  {group.module}"


def frameTitle(group: PictureGroup, area: Rectangle, lines: list[list[tuple[float, float]]]) -> str:
    """The title of a frame; only the group's name, shortened, if an entering edge leaves too little room."""
    left, band = area.left + 6, area.top + HEADER
    entering = [
        x
        for line in lines
        for (x, y), (x2, y2) in zip(line, line[1:])
        if x == x2 and min(y, y2) < band and max(y, y2) > area.top
    ]
    room = min([x - left - 3 for x in entering if left + 24 < x < area.right] + [area.right - left - 6])
    whole = frameText(group)
    return whole if textWidth(whole, LINE_SIZE, True) <= room else shortened(countedTitle(group), LINE_SIZE, room, True)


def portOf(names: tuple[str, ...], name: str) -> float | None:
    """Return the position of a port on the side of its box, from -1 to 1; None if an edge may end anywhere."""
    if name not in names:
        return None
    return (2 * names.index(name) + 1) / len(names) - 1


def portsOf(
    boxes: list[tuple[PictureBox, Rectangle]], edges: list[PictureEdge], lines: list[list[tuple[float, float]]]
) -> list[PlacedLabel]:
    """Return the labels of outputs and arguments inside the boxes, next to their edges."""
    labels = []
    arrivals = {(e.target, e.argument): line[-1][0] for e, line in zip(edges, lines) if e.argument.isdecimal()}
    for box, area in boxes:
        for names, top in ((box.arguments, area.top + 2), (box.slots, area.bottom - PORTS)):
            for name in names:
                middle = (area.left + area.right) / 2 + (portOf(names, name) or 0.0) * (area.right - area.left) / 2
                if names is box.arguments:
                    middle = arrivals.get((box.name, name), middle)
                half = textWidth(name, PORT_SIZE) / 2
                labels.append(PlacedLabel(name, Rectangle(middle - half, top, middle + half, top + PORTS - 2)))
    return labels


def labelsOf(
    edges: list[PictureEdge], lines: list[list[tuple[float, float]]], finder: LabelFinder
) -> list[PlacedLabel | None]:
    """Return a label for the first edge of each value that leaves a box; its other edges need none."""
    labels: list[PlacedLabel | None] = [None] * len(edges)
    together: dict[tuple[str, str], list[int]] = {}
    for i, edge in enumerate(edges):
        if edge.label:
            together.setdefault((edge.source, edge.value), []).append(i)
    for numbers in together.values():
        text = edges[numbers[0]].label
        area = finder.find(textWidth(text, LABEL_SIZE), LABEL_SIZE + 2, [(n, lines[n]) for n in numbers])
        if area is not None:
            number, corners = area
            labels[number] = PlacedLabel(text, Rectangle(*corners))
    return labels
