"""CurveChart: curves over one axis, in a panel for each quantity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from puregraph.core.errors import DataError
from puregraph.draw.charts.chart import Chart

CURVE_COLUMNS, CURVE_ROWS = 60, 12  # size of the plane in characters
EDGE = 11  # width of the scale on the left, in characters
MARKS = "*o+x#@"


class Panel(NamedTuple):
    """Curves that share their scales: a title, and the points of each curve by name, as x and y."""

    title: str
    curves: dict[str, tuple[Sequence[float], Sequence[float]]]
    across: str = ""
    isLog: bool = False  # whether the horizontal axis is logarithmic

    def points(self) -> dict[str, list[tuple[float, float]]]:
        """The finite points of each curve; on a logarithmic axis with log10 x."""
        return {
            name: [
                (math.log10(x) if self.isLog else float(x), float(y))
                for x, y in zip(xs, ys)
                if y is not None and math.isfinite(y) and (x > 0 or not self.isLog)
            ]
            for name, (xs, ys) in self.curves.items()
        }


class CurveChart(Chart):
    """Panels one below the other.

    Raises    DataError if there is no point to draw
    """

    def __init__(self, panels: list[Panel]):
        self.panels = [panel for panel in panels if any(panel.points().values())]
        if not self.panels:
            raise DataError("a chart: wanted at least one finite figure, got none")

    def text(self) -> str:
        return "\n\n".join(map(panelText, self.panels))

    def drawOn(self, figure: Any) -> None:
        figure.set_size_inches(6.4, 2.6 * len(self.panels) + 0.4)
        for axes, panel in zip(figure.subplots(len(self.panels), 1, squeeze=False)[:, 0], self.panels):
            for name, (xs, ys) in panel.curves.items():
                values = [math.nan if y is None else y for y in ys]
                axes.plot(xs, values, label=name, marker="." if len(values) <= 40 else None)
            axes.set_title(panel.title, loc="left")
            axes.set_xlabel(panel.across)
            axes.grid(alpha=0.3)
            if panel.isLog:
                axes.set_xscale("log")
            else:
                axes.xaxis.get_major_locator().set_params(integer=True)  # for epochs and updates
            if len(panel.curves) > 1:
                axes.legend()


def panelText(panel: Panel) -> str:
    """The curves of a panel in characters, each with its own mark; the first curve covers the others."""
    points = panel.points()
    every = [point for curve in points.values() for point in curve]
    (left, right), (low, high) = (rangeOf([point[i] for point in every]) for i in (0, 1))
    cells = [[" "] * CURVE_COLUMNS for _ in range(CURVE_ROWS)]
    for mark, curve in reversed(list(zip(MARKS * len(points), points.values()))):
        for x, y in between(curve, (right - left) / CURVE_COLUMNS / 2):
            column = round((x - left) / ((right - left) or 1) * (CURVE_COLUMNS - 1))
            row = round((high - y) / (high - low) * (CURVE_ROWS - 1)) if high > low else CURVE_ROWS // 2
            cells[row][column] = mark
    names = [f"{mark} {name}" for mark, name in zip(MARKS * len(points), points)] if len(points) > 1 else []
    lines = ["  ".join([panel.title, *names]).rjust(EDGE + 2 + len("  ".join([panel.title, *names])))]
    marked = (0, CURVE_ROWS // 2, CURVE_ROWS - 1) if high > low else (CURVE_ROWS // 2,)
    digits = digitsFor(low, high)
    for row, line in enumerate(cells):
        scale = f"{high - (high - low) * row / (CURVE_ROWS - 1):.{digits}g}" if row in marked else ""
        lines.append(f"{scale:>{EDGE}} |{''.join(line)}".rstrip())
    ends = [f"{10**x if panel.isLog else x:.4g}" for x in (left, right)]
    gap = CURVE_COLUMNS - len(ends[0]) - len(ends[1])
    lines.append(f"{'':{EDGE}} +{'-' * CURVE_COLUMNS}")
    lines.append(f"{'':{EDGE}}  {ends[0]}{panel.across:^{gap}}{ends[1]}")
    return "\n".join(lines)


def digitsFor(low: float, high: float) -> int:
    """Return the number of digits that distinguish the ends of a scale from its middle, limited by the space."""
    middle = (low + high) / 2
    return next((n for n in range(4, 8) if len({f"{value:.{n}g}" for value in (low, middle, high)}) == 3), 4)


def rangeOf(values: list[float]) -> tuple[float, float]:
    """The least and the largest of some values."""
    return min(values), max(values)


def between(curve: list[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    """Return the points of a curve, and enough points on the lines between them to fill every column."""
    points = curve[:1]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        count = max(1, math.ceil(abs(x1 - x0) / step)) if step > 0 else 1
        points += [(x0 + (x1 - x0) * k / count, y0 + (y1 - y0) * k / count) for k in range(1, count + 1)]
    return points
