"""Labels: find a free area beside an edge for its text, clear of boxes, lines and other texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

CELL = 96.0
LONG_LINE_CELLS = 6  # a longer line, in cells, is stored by row or column
LABEL_STEP = 13.0
GAP = 4.0
Corners = tuple[float, float, float, float]  # left, top, right, bottom
Points = list[tuple[float, float]]


class LabelFinder:
    """The areas that labels must not cover, by cells of a grid; each new label is added.

    A long line is stored once per row or column, because it may cross thousands of cells.
    """

    def __init__(
        self, boxes: Iterable[Corners], titles: Iterable[Corners], frames: Iterable[Corners], lines: list[Points]
    ):
        self.cells: dict[tuple[int, int], list[Corners]] = defaultdict(list)
        self.rows: dict[int, list[Corners]] = defaultdict(list)
        self.columns: dict[int, list[Corners]] = defaultdict(list)
        for area in (*boxes, *titles):
            self.add(area)
        for left, top, right, bottom in frames:
            corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
            self.addLine(corners)
        for line in lines:
            self.addLine(line)

    def addLine(self, line: Points) -> None:
        """Add a line that labels must not cover."""
        for (x1, y1), (x2, y2) in zip(line, line[1:]):
            self.add((min(x1, x2) - 1, min(y1, y2) - 1, max(x1, x2) + 1, max(y1, y2) + 1))

    def add(self, area: Corners) -> None:
        """Add an area that labels must not cover."""
        columns, rows = cellsOf(area)
        if len(columns) > LONG_LINE_CELLS:
            for row in rows:
                self.rows[row].append(area)
        elif len(rows) > LONG_LINE_CELLS:
            for column in columns:
                self.columns[column].append(area)
        else:
            for column in columns:
                for row in rows:
                    self.cells[column, row].append(area)

    def isFree(self, area: Corners) -> bool:
        """True if an area is empty."""
        columns, rows = cellsOf(area)
        near = [self.cells.get((column, row), ()) for column in columns for row in rows]
        near += [self.rows.get(row, ()) for row in rows]
        near += [self.columns.get(column, ()) for column in columns]
        left, top, right, bottom = area
        for areas in near:
            for a, b, c, d in areas:
                if a < right and left < c and b < bottom and top < d:
                    return False
        return True

    def find(self, width: float, height: float, lines: list[tuple[int, Points]]) -> tuple[int, Corners] | None:
        """Find a free area beside the first possible line, close to its start; returns (number of the line, area)."""
        for number, line in lines:
            for left, top in candidates(line, width, height):
                if left >= 0 and self.isFree((left, top, left + width, top + height)):
                    area = (round(left, 1), round(top, 1), round(left + width, 1), round(top + height, 1))
                    self.add(area)
                    return number, area
        return None


def candidates(line: Points, width: float, height: float) -> Iterator[tuple[float, float]]:
    """Corners of areas beside a line, from its start on: right and left of vertical parts, above and below others."""
    for (x1, y1), (x2, y2) in zip(line, line[1:]):
        if abs(x1 - x2) < abs(y1 - y2):
            low, high = min(y1, y2), max(y1, y2)
            offsets = steps(low + 2, high - height - 1)
            for top in offsets if y1 <= y2 else reversed(offsets):
                yield x1 + GAP, top
                yield x1 - GAP - width, top
        else:
            low, high = min(x1, x2), max(x1, x2)
            for left in steps(low + 2, high - width - 2) or [low]:
                yield left, y1 - height - 2
                yield left, y1 + 2


def steps(low: float, high: float) -> list[float]:
    """Positions from low to high, at most 40 of them."""
    if high < low:
        return []
    count = min(int((high - low) / LABEL_STEP), 40)
    return [low + (high - low) * i / max(count, 1) for i in range(count + 1)]


def cellsOf(area: Corners) -> tuple[range, range]:
    """The columns and rows of grid cells that an area covers."""
    left, top, right, bottom = area
    columns = range(int(left // CELL), int(right // CELL) + 1)
    return columns, range(int(top // CELL), int(bottom // CELL) + 1)
