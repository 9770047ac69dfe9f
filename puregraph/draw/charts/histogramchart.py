"""HistogramChart: the distributions of the values of several arrays, with a line and a histogram for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError
from puregraph.draw.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Mapping

BARS = " ▁▂▃▄▅▆▇█"  # by height; an empty bin is blank
PICTURE_BINS = 40  # bins of a picture
HEAD = ("", "mean", "deviation", "least", "greatest", "histogram")


class HistogramChart(Chart):
    """Mean, standard deviation, minimum, maximum and histogram of arrays of any shape, by name.

    Values that are not finite are counted, and otherwise ignored.

    Raises    DataError if there is no value at all
    """

    def __init__(self, arrays: Mapping[str, object]):
        self.arrays = {name: np.asarray(device.toHost(x), np.float64).ravel() for name, x in arrays.items()}
        self.arrays = {name: x for name, x in self.arrays.items() if x.size}
        if not self.arrays:
            raise DataError("a histogram: wanted at least one value, got none")

    def text(self) -> str:
        rows = [HEAD, *((name, *line(x)) for name, x in self.arrays.items())]
        wide = [max(map(len, column)) for column in zip(*rows)]
        edges = [str.ljust, *[str.rjust] * 4, str.ljust]
        return "\n".join("  ".join(f(x, w) for f, x, w in zip(edges, row, wide)).rstrip() for row in rows)

    def drawOn(self, figure: Any) -> None:
        columns = min(2, len(self.arrays))
        rows = -(-len(self.arrays) // columns)
        figure.set_size_inches(3.6 * columns, 1.4 * rows + 0.2)
        every = figure.subplots(rows, columns, squeeze=False).flat
        for axes, (name, values) in zip(every, self.arrays.items()):
            finite = values[np.isfinite(values)]
            axes.hist(finite, bins=PICTURE_BINS)
            axes.set_title(f"{name}{notFinite(values)}", loc="left", fontsize="small")
            axes.tick_params(labelsize="x-small")
            axes.set_yticks([])
        for axes in list(figure.axes)[len(self.arrays) :]:
            axes.axis("off")


def line(values: np.ndarray) -> tuple[str, ...]:
    """Mean, deviation, minimum, maximum and histogram of an array, as text."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "", "", "", "", notFinite(values).strip()
    counts = np.histogram(finite, bins=16)[0]
    bars = "".join(BARS[int(np.ceil(count / counts.max() * (len(BARS) - 1)))] for count in counts)
    figures = finite.mean(), finite.std(), finite.min(), finite.max()
    return (*(f"{x:.3g}" for x in figures), bars + notFinite(values))


def notFinite(values: np.ndarray) -> str:
    """Report the number of values that are not finite; empty if there are none."""
    count = int((~np.isfinite(values)).sum())
    return f"  ({count} not finite)" if count else ""
