"""MatrixChart: a matrix of numbers, as a table and as a picture whose shades are their share of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.errors import ArgumentError
from puregraph.draw.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NUMBERED_ROWS = 40  # rows whose numbers are written into the picture

CORNER = "actual / predicted"


class MatrixChart(Chart):
    """Counts or fractions (classes, classes), a row for each actual class and a column for each predicted one.

    Raises    ArgumentError unless there is a name for each class
    """

    def __init__(self, counts: np.ndarray, names: Sequence[str] | None = None):
        self.counts = counts
        self.names = [str(name) for name in (range(len(counts)) if names is None else names)]
        if len(self.names) != len(counts):
            raise ArgumentError(f"names: wanted one for each of {len(counts)} classes, got {len(self.names)}")

    def text(self) -> str:
        rows = [
            [CORNER, *self.names],
            *([name, *map(written, row)] for name, row in zip(self.names, self.counts.tolist())),
        ]
        wide = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(text.rjust(width) for text, width in zip(row, wide)) for row in rows)

    def drawOn(self, figure: Any) -> None:
        count = len(self.counts)
        side = min(max(4.0, 0.5 * count + 1.5), 16.0)
        figure.set_size_inches(side, side)
        axes = figure.subplots()
        sums = self.counts.sum(axis=1, keepdims=True)
        shares = self.counts / np.where(sums > 0, sums, 1)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xlabel("predicted")
        axes.set_ylabel("actual")
        axes.set_xticks(range(count), self.names, rotation=90 if max(map(len, self.names)) > 3 else 0)
        axes.set_yticks(range(count), self.names)
        for (i, j), value in np.ndenumerate(self.counts) if count <= MAX_NUMBERED_ROWS else ():
            if value:
                axes.text(
                    j, i, written(value), ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black"
                )


def written(value: Any) -> str:
    """A count as it is, a fraction or a weighted count with three digits."""
    return str(value) if isinstance(value, (int, np.integer)) else f"{value:.3g}"
