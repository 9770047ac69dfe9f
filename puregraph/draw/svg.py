"""SVG: a placed picture as one self-contained file, with the same bytes each time."""

from __future__ import annotations

from puregraph.draw.escape import markup
from puregraph.draw.layout.placement import (
    HEADER,
    HEIGHT,
    LABEL_SIZE,
    LINE_SIZE,
    MARGIN,
    NAME_SIZE,
    PORT_SIZE,
    PORTS,
    TITLE_SIZE,
    PlacedLabel,
    PlacedPicture,
    Rectangle,
    countedTitle,
)
from puregraph.draw.picture import PictureBox, PictureEdge, PictureGroup

STYLE = f"""
text {{ font-family: Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif; fill: #1b2230 }}
.sheet {{ fill: #ffffff }}
.title {{ font-size: {TITLE_SIZE:g}px; font-weight: bold }}
.name {{ font-size: {NAME_SIZE:g}px; font-weight: bold }}
.line, .note {{ font-size: {LINE_SIZE:g}px; fill: #4a5468 }}
.port {{ font-size: {PORT_SIZE:g}px; fill: #4a5468 }}
.label {{ font-size: {LABEL_SIZE:g}px; fill: #2c4a7c }}
.box .shape {{ fill: #f5f7fb; stroke: #5a6a85; stroke-width: 1.2 }}
.input .shape {{ fill: #e6f3ea; stroke: #3f7a55 }}
.output .shape {{ fill: #e6f3ea; stroke: #3f7a55; stroke-width: 2 }}
.state .shape, .update .shape {{ fill: #f4effa }}
.cost .shape {{ fill: #fdf3dc; stroke: #9a7420 }}
.gradient .shape {{ fill: #fbf0ea; stroke: #a05a33 }}
.heat {{ fill: #d9480f }}
.group .shape {{ fill: #e9edf5 }}
.unknown .shape {{ fill: #f2f2f2; stroke: #8a8a8a; stroke-dasharray: 4 3 }}
.fault .shape {{ fill: #fdeaea; stroke: #b3261e; stroke-width: 2.6 }}
.fault .name, .fault .line {{ fill: #8c1d18 }}
.recomputed .shape {{ stroke-dasharray: 6 3 }}
.frame rect {{ fill: #1b2230; fill-opacity: 0.035; stroke: #9aa5b8; stroke-dasharray: 5 3 }}
.frame text {{ font-size: {LINE_SIZE:g}px; font-weight: bold; fill: #4a5468 }}
.edge path {{ fill: none; stroke: #5a6a85; stroke-width: 1.2 }}
.edge .head {{ fill: #5a6a85; stroke: none }}
.kept path {{ stroke-dasharray: 2 3 }}
.state path.wire {{ stroke-dasharray: 7 3 }}
""".strip()
CORNER_RADIUS = 5.0


def svgText(placed: PlacedPicture) -> str:
    """The SVG file of a placed picture."""
    width, height = f"{placed.width:g}", f"{placed.height:g}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">'
    )
    title = markup(placed.picture.title)
    lines = [head, f"<title>{title}</title>", f"<style>{STYLE}</style>"]
    return (
        "\n".join([*lines, f'<rect class="sheet" width="{width}" height="{height}"/>', *body(placed), "</svg>"]) + "\n"
    )


def body(placed: PlacedPicture) -> list[str]:
    """Return the elements of the drawing from back to front, one per line."""
    lines = [f'<text class="title" x="{2 * MARGIN:g}" y="{2 * MARGIN + 6:g}">{markup(placed.picture.title)}</text>']
    for i, note in enumerate(placed.picture.notes):
        lines.append(f'<text class="note" x="{2 * MARGIN:g}" y="{2 * MARGIN + 21 + 14 * i:g}">{markup(note)}</text>')
    lines += [frameSvg(*frame) for frame in placed.groups]
    lines += [edgeSvg(edge, points) for edge, points, _ in placed.edges]
    lines += [boxSvg(box, area) for box, area in placed.boxes]
    lines += [portSvg(port) for port in placed.ports]
    lines += [labelSvg(label) for _, _, label in placed.edges if label is not None]
    return lines


def frameSvg(group: PictureGroup, area: Rectangle, text: str) -> str:
    """The frame around a nested graph, and its name in the corner."""
    return (
        f'<g class="frame" data-name="{markup(group.name)}"><title>{markup(group.name)}</title>{rectangle(area, 8)}'
        f'<text x="{area.left + 6:g}" y="{area.top + HEADER - 4:g}">{markup(text)}</text></g>'
    )


def edgeSvg(edge: PictureEdge, points: list[tuple[float, float]]) -> str:
    """The line of an edge with its head; its tooltip describes the value."""
    said = " ".join(part for part in (f"{edge.source} > {edge.target}:", edge.slot, edge.label) if part)
    said += f" as {edge.argument}" if edge.argument else ""
    (x0, y0), (x, y) = points[-2], points[-1]
    dx, dy = (0, 1 if y >= y0 else -1) if abs(x - x0) < abs(y - y0) else (1 if x >= x0 else -1, 0)
    back, side = (x - 7 * dx, y - 7 * dy), (3.5 * dy, 3.5 * dx)
    head = f"M{x:g} {y:g}L{back[0] - side[0]:g} {back[1] - side[1]:g}L{back[0] + side[0]:g} {back[1] + side[1]:g}Z"
    return (
        f'<g class="edge {edge.kind}" data-source="{markup(edge.source)}" data-target="{markup(edge.target)}">'
        f'<title>{markup(said)}</title><path class="wire" d="{path(points)}"/><path class="head" d="{head}"/></g>'
    ).replace('"edge "', '"edge"')


def path(points: list[tuple[float, float]]) -> str:
    """A line through points with round corners."""
    text = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x0, y0), (x, y), (x2, y2) in zip(points, points[1:], points[2:]):
        near = min(CORNER_RADIUS, (abs(x - x0) + abs(y - y0)) / 2, (abs(x2 - x) + abs(y2 - y)) / 2)
        text += f"L{toward(x, y, x0, y0, near)}Q{x:g} {y:g} {toward(x, y, x2, y2, near)}"
    return text + f"L{points[-1][0]:g} {points[-1][1]:g}"


def toward(x: float, y: float, x2: float, y2: float, distance: float) -> str:
    """The point at a distance from one point on the way to another."""
    length = max(((x2 - x) ** 2 + (y2 - y) ** 2) ** 0.5, 1e-9)
    return f"{round(x + (x2 - x) * distance / length, 1):g} {round(y + (y2 - y) * distance / length, 1):g}"


def boxSvg(box: PictureBox, area: Rectangle) -> str:
    """A box: its shape, its name, and the lines under it."""
    middle = (area.left + area.right) / 2
    y = area.top + 4 + (PORTS if box.arguments else 0) + HEIGHT[NAME_SIZE] - 4
    texts = [f'<text class="name" x="{middle:g}" y="{y:g}" text-anchor="middle">{markup(countedTitle(box))}</text>']
    for line in box.lines:
        y += HEIGHT[LINE_SIZE]
        texts.append(f'<text class="line" x="{middle:g}" y="{y:g}" text-anchor="middle">{markup(line)}</text>')
    said = box.name.removeprefix("group ")
    return (
        f'<g class="box {box.kind}" data-name="{markup(box.name)}"><title>{markup(said)}</title>'
        f"{shapeSvg(box, area)}{''.join(texts)}</g>"
    )


def shapeSvg(box: PictureBox, area: Rectangle) -> str:
    """The outline of a box, which differs between kinds, so that no colours are needed."""
    left, top, right, bottom = area
    if box.kind in ("input", "output"):
        inner = Rectangle(left + 3, top + 3, right - 3, bottom - 3)
        more = rectangle(inner, 30, "inner") if box.kind == "output" else ""
        return rectangle(area, (bottom - top) / 2) + more.replace('class="inner"', 'class="shape"')
    if box.kind == "cost":
        cut = 9
        corners = [(left + cut, top), (right - cut, top), (right, (top + bottom) / 2), (right - cut, bottom),
                   (left + cut, bottom), (left, (top + bottom) / 2)]  # fmt: skip
        return polygon(corners) + heatSvg(box, area)
    if box.kind == "update":
        return polygon([(left, top), (right - 9, top), (right, top + 9), (right, bottom), (left, bottom)]) + heatSvg(
            box, area
        )
    if box.kind == "gradient":
        corners = [
            (left + 7, top),
            (right - 7, top),
            (right, top + 7),
            (right, bottom),
            (left, bottom),
            (left, top + 7),
        ]
        return polygon(corners) + heatSvg(box, area)
    behind = ""
    if box.kind == "group" or box.repeats > 1:
        behind = rectangle(Rectangle(left + 3, top - 3, right + 3, bottom - 3), 4)
    bar = f'<path class="shape" d="M{left + 4:g} {top:g}V{bottom:g}"/>' if box.kind == "state" else ""
    return behind + rectangle(area, 4) + bar + heatSvg(box, area)


def heatSvg(box: PictureBox, area: Rectangle) -> str:
    """A bar along the bottom of a box, as long as its share."""
    if box.heat is None:
        return ""
    width = f"{round((area.right - area.left) * box.heat, 1):g}"
    return f'<rect class="heat" x="{area.left:g}" y="{area.bottom - 4:g}" width="{width}" height="4"/>'


def rectangle(area: Rectangle, radius: float, name: str = "shape") -> str:
    """A rectangle with round corners."""
    radius = min(radius, (area.bottom - area.top) / 2)
    return (
        f'<rect class="{name}" x="{area.left:g}" y="{area.top:g}" width="{round(area.right - area.left, 1):g}" '
        f'height="{round(area.bottom - area.top, 1):g}" rx="{round(radius, 1):g}"/>'
    )


def polygon(corners: list[tuple[float, float]]) -> str:
    """A closed outline."""
    return f'<path class="shape" d="M{"L".join(f"{round(x, 1):g} {round(y, 1):g}" for x, y in corners)}Z"/>'


def portSvg(port: PlacedLabel) -> str:
    """The name of an output or argument inside of its box."""
    x, y = (port.area.left + port.area.right) / 2, port.area.bottom - 1
    return f'<text class="port" x="{x:g}" y="{y:g}" text-anchor="middle">{markup(port.text)}</text>'


def labelSvg(label: PlacedLabel) -> str:
    """Draw the label of an edge."""
    return f'<text class="label" x="{label.area.left:g}" y="{label.area.bottom - 2.5:g}">{markup(label.text)}</text>'
