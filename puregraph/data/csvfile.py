"""CSV files as columns of text."""

from __future__ import annotations

import csv
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import FilePath, Text, Texts, takes
from puregraph.core.errors import DataError, plural

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath


@takes(path=FilePath, delimiter=Text, gaps=Texts, encoding=Text)
def readCsv(path: StrPath, delimiter: str = ",", gaps: Any = "", encoding: str = "utf-8-sig") -> dict[str, np.ndarray]:
    """Read a CSV file whose first line names the columns, as {column: fields}.

    Fields stay text; a `TableReader` converts them to numbers and codes. Blanks around a field are dropped. A field in
    `gaps`, such as `gaps=("", "NA", "?")`, becomes None; by default an empty field.

    Source    RFC 4180
    Raises    DataError naming the file, and the line with another number of fields, the repeated column, or the reading
              error

    >>> np.savetxt("people.csv", [["age", "city"], ["30", "Bern"], ["", "Oslo"]], fmt="%s", delimiter=",")
    >>> readCsv("people.csv")
    {'age': array(['30', None], dtype=object), 'city': array(['Bern', 'Oslo'], dtype=object)}
    """
    missing = {gaps} if isinstance(gaps, str) else set(gaps)
    try:
        with open(path, newline="", encoding=encoding) as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = checkedNames(path, next(reader, []))
            rows = [checkedRow(path, reader.line_num, row, names, missing) for row in reader if row]
    except (OSError, csv.Error, UnicodeError, LookupError, TypeError) as error:
        raise DataError(f"readCsv: wanted a CSV file, {path} cannot be read: {error}") from error
    if not rows:
        raise DataError(f"{path}: wanted rows below the names of the columns, got none")
    table = np.array(rows, object)
    return {name: table[:, i] for i, name in enumerate(names)}


def checkedNames(path: StrPath, row: list[str]) -> list[str]:
    """The names of the columns: at least one, each once, none empty."""
    names = [name.strip() for name in row]
    uses = Counter(names)
    for i, name in enumerate(names):
        if not name or uses[name] > 1:
            fault = f"'{name}' twice" if name else f"none for column {i + 1}"
            raise DataError(f"{path}, line 1: wanted a name for each column, got {fault}")
    if not names:
        raise DataError(f"{path}: wanted the names of the columns in line 1, got an empty file")
    return names


def checkedRow(path: StrPath, line: int, row: list[str], names: list[str], missing: set[str]) -> list[str | None]:
    """The fields of a row, as many as there are columns."""
    if len(row) != len(names):
        hint = delimiterHint(names[0]) if len(names) == 1 else ""
        raise DataError(f"{path}, line {line}: wanted {plural(len(names), 'field')}, got {len(row)}{hint}")
    fields = [field.strip() for field in row]
    return [None if field in missing else field for field in fields]


def delimiterHint(name: str) -> str:
    """Return a hint if the name of the only column contains another common delimiter."""
    delimiter = next((mark for mark in (";", "\t", "|") if mark in name), "")
    return f"; readCsv(path, delimiter={delimiter!r}) divides columns there" if delimiter else ""
