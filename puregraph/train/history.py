"""History: one row of figures per epoch."""

from __future__ import annotations

from typing import Any

from puregraph.core.errors import DataError
from puregraph.core.foreign import ForeignAttributes
from puregraph.core.late import Late
from puregraph.train.callbacks.lines import duration, number, rate


class History(ForeignAttributes, list):
    """A list of dicts, one per epoch: `epoch`, `step`, `loss`, metrics, `val ...`, `rate`, `seconds`.

    `history["loss"]` is a column, `history[-1]` the last row.
    """

    _repr_html_ = Late("puregraph.draw.notebook", "historyHtml")
    plot = Late("puregraph.draw.charts.plots", "plotHistory")

    def __getitem__(self, index: Any) -> Any:
        """A row by its number, or a column by its name.

        Raises    DataError for a name that no row has
        """
        if not isinstance(index, str):
            return super().__getitem__(index)
        return self.column(index)

    def __str__(self) -> str:
        """Return the table, for `print`; `repr` returns the list."""
        return self.table() or "no epoch yet"

    def column(self, name: str) -> list[Any]:
        """Return a figure of every epoch; None for rows without it.

        Raises    DataError for a name that is in no row
        """
        if name not in self.names():
            raise DataError(f"history: wanted one of {', '.join(self.names()) or 'no figure yet'}, got {name!r}")
        return [row.get(name) for row in self]

    def names(self) -> list[str]:
        """The names of all figures, in the order of their first appearance."""
        return list(dict.fromkeys(name for row in self for name in row))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The names of all figures, and the rows, as texts."""
        names = self.names()
        titles = ["time" if name == "seconds" else name for name in names]
        return titles, [[shown(name, row.get(name)) for name in names] for row in self]

    def table(self) -> str:
        """The rows under their names, as text."""
        titles, rows = self.cells()
        lines = [titles, *rows]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, wide, strict=True)) for line in lines)


def shown(name: str, value: Any) -> str:
    """A figure of a row as text."""
    if value is None:
        return ""
    return duration(value) if name == "seconds" else rate(value) if name == "rate" else number(value)
