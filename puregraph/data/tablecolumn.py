"""One column of a table from any source: its values, and a mask of its gaps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import DataError
from puregraph.data.csvfile import delimiterHint, readCsv
from puregraph.graph.lookup import few

GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*")
FLOAT32 = "a number up to 3.4e38, which float32 can hold"
MAX_LISTED_COLUMNS = 20  # most column names in a message
MISSING = ("NA", "N/A", "n/a", "na", "NaN", "nan", "null", "NULL", "None", "none", "?", "-", "--", ".")


class TableColumn(NamedTuple):
    """The values of a column as an array, and a mask of its gaps.

    >>> column = TableColumn("age", np.array(["30", "", "41"]), np.array([False, True, False]))
    >>> column.numbers()
    array([30., nan, 41.])
    """

    name: str
    values: np.ndarray
    gaps: np.ndarray

    def refuse(self, wrong: np.ndarray, wanted: str, hint: str = "") -> None:
        """Refuse the first row that is wrong.

        Raises    DataError naming column, row and value
        """
        if wrong.any():
            i = int(wrong.argmax())
            got = "a gap" if self.gaps[i] else repr(plainValue(self.values[i]))
            raise DataError(f"column '{self.name}', row {i + 1}: wanted {wanted}, got {got}{hint}")

    def numbers(self) -> np.ndarray:
        """The values as float64, NaN where there is a gap.

        Raises    DataError for a value that is not a finite number
        """
        if self.values.dtype.kind in "mM":  # their unit may differ between tables
            raise DataError(
                f"column '{self.name}': wanted numbers, got {self.values.dtype}: convert it, for example to days, "
                f"(table['{self.name}'] - FIRST) / np.timedelta64(1, 'D'), or the month as a category"
            )
        if self.values.dtype.kind == "c":
            raise DataError(
                f"column '{self.name}': wanted numbers, got {self.values.dtype}: give the real and the imaginary part "
                "as two columns"
            )
        floats = np.full(len(self.values), np.nan)
        there = self.values[~self.gaps]
        try:
            floats[~self.gaps] = there.astype(np.float64)
        except OverflowError:
            self.refuse(self.where(lambda value: not isFloat32(value)), FLOAT32)
        except (ValueError, TypeError):
            wrong = self.where(lambda value: not isNumber(value))
            first = self.values[int(wrong.argmax())]
            hint = f"; readCsv(path, gaps=('', {first!r})) takes that for a gap" if first in MISSING else ""
            if isinstance(first, str):
                hint = commaHint(first) or hint
            self.refuse(wrong, "a number", hint)
        self.refuse(~self.gaps & ~np.isfinite(floats), "a finite number")
        return floats

    def float32(self, numbers: np.ndarray) -> np.ndarray:
        """Convert numbers of this column, scaled or not, to float32.

        Raises    DataError for one that is beyond the range of float32, and would become infinite
        """
        with np.errstate(over="ignore"):
            floats = numbers.astype(np.float32)
        self.refuse(np.isinf(floats), FLOAT32)
        return floats

    def texts(self) -> np.ndarray:
        """The values as text, so that the 3 of a file, the 3 and the 3.0 of a DataFrame are one category."""
        return np.array(
            ["" if gap else textOf(value) for gap, value in zip(self.gaps, self.values, strict=True)], object
        )

    def where(self, test: Callable[[Any], bool]) -> np.ndarray:
        """Return the mask of values, other than gaps, that pass a test."""
        return np.array([not gap and test(value) for gap, value in zip(self.gaps, self.values, strict=True)], bool)


def tableFrom(table: Any) -> Any:
    """Return a table with columns by name: read from a CSV file, or the given dict or DataFrame.

    Raises    DataError for an object without columns
    """
    if isinstance(table, (str, os.PathLike)):
        return readCsv(table)
    if not isinstance(table, dict) and not hasattr(table, "columns"):
        raise DataError(
            f"table: wanted the path of a CSV file, a dict of columns or a DataFrame, got {type(table).__name__}"
        )
    return table


def columnFrom(table: Any, name: str) -> TableColumn:
    """Return the column of that name.

    Raises    DataError if there is none, or it has more than one axis
    """
    columns = table if isinstance(table, dict) else table.columns
    if name not in columns:
        names = list(map(str, columns))
        hint = delimiterHint(names[0]) if len(names) == 1 else ""
        raise DataError(f"TableReader: wanted a column {name!r}, the table has {few(names, MAX_LISTED_COLUMNS)}{hint}")
    column = table[name]
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.ndim != 1:
        raise DataError(f"column '{name}': wanted one value for each row, got shape {tuple(values.shape)}")
    if values.dtype.kind in "iubSU":
        gaps = np.zeros(len(values), bool)
    elif values.dtype.kind == "f":
        gaps = np.isnan(values)
    else:
        gaps = np.array([isGap(value) for value in values], bool)
    return TableColumn(name, values, gaps)


def isGap(value: object) -> bool:
    """True for a missing value: None, NaN, or pandas' NA, which is not equal to itself either."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def isNumber(value: Any) -> bool:
    """True for a number, or the text of one."""
    try:
        float(value)
    except OverflowError:
        return True
    except (ValueError, TypeError):
        return False
    return True


def commaHint(text: str) -> str:
    """Advise on commas in a number: digit grouping, a decimal comma, or either."""
    isGrouped, isDecimal = GROUPED.fullmatch(text), text.count(",") == 1 and isNumber(text.replace(",", "."))
    thousands, decimal = "pandas.read_csv(path, thousands=',')", "pandas.read_csv(path, decimal=',')"
    if isGrouped and isDecimal:
        return f"; {thousands} reads a comma that groups digits, {decimal} one before a fraction"
    if isGrouped:
        return f"; {thousands} reads commas that group digits"
    return f"; {decimal} reads numbers with a comma" if isDecimal else ""


def isFloat32(value: Any) -> bool:
    """True for a number in the range of float32, or the text of one."""
    try:
        return abs(float(value)) <= float(np.finfo(np.float32).max)
    except (ValueError, TypeError, OverflowError):
        return False


def textOf(value: object) -> str:
    """A category as text; a whole number without the .0 that gaps in its column give it."""
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def plainValue(value: object) -> Any:
    """Convert a numpy number to a Python number."""
    return value.item() if isinstance(value, np.generic) else value
