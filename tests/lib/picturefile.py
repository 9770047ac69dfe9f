"""A picture's file as a reader of it sees it: boxes, frames, lines and texts with where they are."""

import re
from bisect import bisect_left, bisect_right
from xml.etree import ElementTree

from puregraph.draw.layout.textwidth import textWidth

SPACE = "{http://www.w3.org/2000/svg}"
SIZES = {"label": 9.5, "port": 8.5, "name": 12.0, "line": 10.0}


class PictureFile:
    """What an SVG text draws."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        self.width, self.height = float(self.root.get("width")), float(self.root.get("height"))
        self.boxes, self.lines, self.labels, self.frames, self.texts = {}, [], [], {}, []
        for group in self.root.iter(f"{SPACE}g"):
            kind = group.get("class").split()[0]
            if kind == "box":
                self.boxes[group.get("data-name")] = outline(group)
                self.texts += [t for t in map(textArea, group.iter(f"{SPACE}text")) if t]
            elif kind == "frame":
                self.frames[group.get("data-name")] = outline(group)
            elif kind == "edge":
                points = pathPoints(group.find(f"{SPACE}path").get("d"))
                self.lines.append((group.get("data-source"), group.get("data-target"), points))
        for text in self.root.iter(f"{SPACE}text"):
            if text.get("class") == "label":
                self.labels.append(textArea(text))

    def labelsOnLabels(self):
        """Pairs of labels that share some area."""
        return [(a, b) for i, a in enumerate(self.labels) for b in self.labels[:i] if meet(a[1], b[1])]

    def labelsOnBoxes(self):
        """Labels that share some area with a box."""
        return [(a, name) for a in self.labels for name, area in self.boxes.items() if meet(a[1], area)]

    def labelsOnLines(self):
        """Labels that a line runs through."""
        return [(a, line[:2]) for a in self.labels for line in self.lines if crosses(line[2], a[1])]

    def boxesOnBoxes(self):
        """Pairs of boxes that share some area."""
        found = list(self.boxes.items())
        return [(a, b) for i, (a, area) in enumerate(found) for b, other in found[:i] if meet(area, other)]

    def linesThroughBoxes(self):
        """Lines that run through a box."""
        found = []
        boxes = sorted(self.boxes.items(), key=lambda each: each[1][1])
        tops = [area[1] for _, area in boxes]
        highest = max((area[3] - area[1] for area in self.boxes.values()), default=0)
        for source, target, points in self.lines:
            around = bounds(points)
            beside = boxes[bisect_left(tops, around[1] - highest) : bisect_right(tops, around[3])]
            near = [(name, area) for name, area in beside if meet(around, area)]
            found += [((source, target), name) for name, area in near if crosses(points, area)]
        return found

    def outside(self):
        """Boxes and labels that reach over the sheet, and texts that reach out of their box."""
        sheet = (0, 0, self.width, self.height)
        found = [name for name, area in self.boxes.items() if not within(area, sheet)]
        found += [text for text, area in self.labels if not within(area, sheet)]
        return found + [t for t, area in self.texts if not any(within(area, b) for b in self.boxes.values())]

    def crossings(self):
        """How often lines of different sources cross."""
        parts = [(s, a, b) for s, _, line in self.lines for a, b in zip(line, line[1:])]
        flat = [(s, a, b) for s, a, b in parts if a[1] == b[1]]
        steep = [(s, a, b) for s, a, b in parts if a[0] == b[0]]
        return sum(
            min(a[0], b[0]) < c[0] < max(a[0], b[0]) and min(c[1], d[1]) < a[1] < max(c[1], d[1])
            for s, a, b in flat
            for t, c, d in steep
            if s != t
        )


def outline(group):
    """The rectangle around the shapes of a box or frame, from left to bottom; the shadow behind a box left out."""
    shapes = [shape for shape in group if shape.get("class") == "shape" or group.get("class") == "frame"]
    areas = [shapeArea(s) for s in shapes if s.tag in (f"{SPACE}rect", f"{SPACE}path")]
    areas = areas[1:] if len(areas) > 1 and areas[0][1] < areas[1][1] else areas
    return areas[0]


def shapeArea(shape):
    """The rectangle around a shape."""
    if shape.tag == f"{SPACE}rect":
        x, y, w, h = (float(shape.get(name)) for name in ("x", "y", "width", "height"))
        return x, y, x + w, y + h
    return bounds(pathPoints(shape.get("d")))


def pathPoints(text):
    """The corners of a path; round corners as sharp ones."""
    points = []
    for _, rest in re.findall(r"([MLQ])([^MLQVZ]*)", text):
        numbers = list(map(float, rest.split()))
        points.append(tuple(numbers[:2]))
    return points


def textArea(text):
    """A text and the rectangle that it fills."""
    size, content = SIZES[text.get("class")], "".join(text.itertext())
    width = textWidth(content, size, text.get("class") == "name") / 1.13
    x, y = float(text.get("x")), float(text.get("y"))
    left = x - width / 2 if text.get("text-anchor") == "middle" else x
    return content, (left, y - 0.75 * size, left + width, y + 0.2 * size)


def meet(a, b):
    """Whether two rectangles share some area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def bounds(points):
    """The rectangle around points."""
    return (*map(min, zip(*points)), *map(max, zip(*points)))


def within(a, b):
    """Whether a rectangle lies in another."""
    return a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] and a[3] <= b[3]


def crosses(line, area):
    """Whether a line has a part inside of an area."""
    left, top, right, bottom = area
    return any(
        max(min(a[0], b[0]), left + 0.5) < min(max(a[0], b[0]), right - 0.5) + 1e-9
        and max(min(a[1], b[1]), top + 0.5) < min(max(a[1], b[1]), bottom - 0.5) + 1e-9
        for a, b in zip(line, line[1:])
    )
