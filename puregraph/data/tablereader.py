"""TableReader: convert the columns of a table to arrays for a network: numbers, codes of categories, classes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import FilePath, Flag, Text, Texts, choice, takes
from puregraph.core.errors import CheckpointError, DataError, GraphWarning, plural
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.foreign import ForeignAttributes
from puregraph.core.storage.atomicwrite import whole
from puregraph.core.storage.jsoncodec import loads
from puregraph.data.arrays import checkLengths, isArray
from puregraph.data.tablecolumn import TableColumn, columnFrom, isFloat32, isNumber, tableFrom
from puregraph.graph.lookup import few

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath

FILLS: dict[str, Callable[[np.ndarray], Any]] = {"mean": np.nanmean, "median": np.nanmedian, "zero": lambda column: 0.0}
ARGUMENTS = ("numbers", "categories", "classes", "fill", "scale", "quantities")
FITTED = ("vocabulary", "fills", "means", "deviations", "gapped")
MAX_UNIQUE_ROWS = 50  # rows up to which every row may have its own category
MAX_UNCHECKED_CLASSES = 20  # classes; numbers with more distinct values are checked before they count as classes


class TableReader(ForeignAttributes):
    """Converts the columns of a table to arrays, in the same way for the training table and for later ones.

        reader = TableReader(numbers=["age", "income"], categories=["city"], classes="bought", fill="median")
        reader.fit("train.csv")
        trainer.train(reader.data("train.csv"), reader.target("train.csv"))

    A table is the path of a CSV file, a dict of columns, or a DataFrame of pandas or polars. `fit` stores the
    categories, the classes, and the values that replace gaps; later tables do not change them.

    `numbers`     columns that become one array of float32; with `scale` less their mean, over their standard deviation
    `categories`  columns that become an array of codes each: 1, 2, ... numbers by their size, then texts; 0 is a gap,
                  or a category that `fit` has not seen, with a GraphWarning. There are `sizes["city"]` codes, for
                  `Embedder(sizes["city"], 8)`
    `classes`     the column that is the target: classes 0, 1, ... in the same order, kept in `names`
    `quantities`  columns of numbers that are the target, as they are, instead of classes
    `fill`        the value for gaps in numbers: the "mean" or the "median" of their column, or "zero". Without it, gaps
                  and unknown categories are refused. A gap among the classes is always refused

    Shapes    data {"numbers": (n, len(numbers)), category: (n,)}; target (n,) of classes, (n, k) of k quantities
    Raises    DataError naming the column, and the row whose value does not fit, counted from 1 below the names
    """

    @takes(
        numbers=Texts,
        categories=Texts,
        classes=Text | None,
        fill=choice(*FILLS) | None,
        scale=Flag,
        quantities=Texts,
    )
    def __init__(
        self,
        numbers: Any = (),
        categories: Any = (),
        classes: str | None = None,
        fill: str | None = None,
        scale: bool = False,
        quantities: Any = (),
    ):
        columnNames = (numbers, categories, quantities)
        self.numbers, self.categories, self.quantities = ([x] if isinstance(x, str) else list(x) for x in columnNames)
        self.classes, self.fill, self.scale = classes, fill, scale
        every = [*self.numbers, *self.categories, *([] if classes is None else [classes]), *self.quantities]
        if classes is not None and self.quantities:
            raise DataError("TableReader: wanted classes or quantities as the target, got both: make a reader for each")
        twice = next((name for name, uses in Counter(every).items() if uses > 1), None)
        if not every or twice is not None:
            raise DataError(f"TableReader: wanted each column once, got {f'{twice!r} twice' if twice else 'none'}")
        if self.numbers and "numbers" in self.categories:
            raise DataError(
                "TableReader: a category cannot be called 'numbers', which is the array of the numbers: rename it"
            )
        self.vocabulary: dict[str, list[str]] = {}
        self.fills: list[float] = []
        self.means: list[float] = []
        self.deviations: list[float] = []
        self.gapped: list[str] = []  # categories that had code 0 in the data of fit

    def __repr__(self) -> str:
        parts = {"numbers": self.numbers, "categories": self.categories, "classes": self.classes}
        parts["quantities"] = self.quantities
        said = [f"{name}={value!r}" for name, value in parts.items() if value]
        return f"TableReader({', '.join(said)})"

    @property
    def sizes(self) -> dict[str, int]:
        """The number of codes of each category, including code 0 for unknown values."""
        return {name: len(self.known(name)) + 1 for name in self.categories}

    @property
    def names(self) -> list[str]:
        """The classes, in the order of their numbers."""
        return self.known(self.classes) if self.classes is not None else []

    def fit(self, table: Any) -> TableReader:
        """Learn categories, classes, means and the values for gaps from this table."""
        table = self.tableOf(table)
        vocabulary, gapped = {}, []
        for name in [*self.categories, *([] if self.classes is None else [self.classes])]:
            column = columnFrom(table, name)
            vocabulary[name] = sorted(set(column.texts()[~column.gaps].tolist()), key=inOrder)
            gapped += [name] * bool(column.gaps.any())
            if (
                name in self.categories
                and len(column.gaps) >= MAX_UNIQUE_ROWS
                and len(vocabulary[name]) > len(column.gaps) / 2
            ):
                warnUser(
                    f"column '{name}': {len(vocabulary[name])} categories in {len(column.gaps)} rows, from which "
                    "nothing can be learnt: leave out a column that numbers the rows, and give quantities as numbers=",
                    GraphWarning,
                )
            if name == self.classes:
                refuseQuantity(column, vocabulary[name])
        fills, means, deviations = [], [], []
        for name in self.numbers:
            column = columnFrom(table, name)
            numbers = column.numbers()
            if column.gaps.all():
                raise DataError(f"column '{name}': wanted at least one number, got only gaps")
            column.float32(numbers)
            isConstant = np.nanmin(numbers) == np.nanmax(numbers)  # its deviation may be a rounding error
            fills.append(float(FILLS[self.fill or "zero"](numbers)))
            means.append(float(np.nanmin(numbers) if isConstant else np.nanmean(numbers)))
            deviations.append(1.0 if isConstant else float(np.nanstd(numbers)))
        self.vocabulary, self.fills, self.means, self.deviations = vocabulary, fills, means, deviations
        self.gapped = gapped
        return self

    def data(self, table: Any) -> dict[str, np.ndarray]:
        """Return the inputs by name, in the dtypes that networks need: all numbers in one array, codes by category."""
        table = self.tableOf(table)
        arrays = {}
        if self.numbers:
            self.checkFitted()
            arrays["numbers"] = np.stack([self.filled(table, i) for i in range(len(self.numbers))], axis=1)
        for name in self.categories:
            column = columnFrom(table, name)
            arrays[name] = self.codes(column, self.fill is None) + 1
            self.warnOfUnknown(column, (arrays[name] == 0) & ~column.gaps)
        return arrays

    def target(self, table: Any) -> np.ndarray:
        """The class of each row, from 0 on; or its quantities."""
        if self.quantities:
            table, columns = self.tableOf(table), []
            for name in self.quantities:
                column = columnFrom(table, name)
                columns.append(column.float32(column.numbers()))
                column.refuse(column.gaps, "a number", ": leave out rows without a target")
            return np.stack(columns, axis=1)
        if self.classes is None:
            raise DataError(
                "TableReader: wanted the column of the target, as in TableReader(..., classes='bought'), or "
                "TableReader(..., quantities='price')"
            )
        return self.codes(columnFrom(self.tableOf(table), self.classes), True)

    def tableOf(self, table: Any) -> Any:
        """Convert a table to columns by name. The columns of a dict that are read must have the same length."""
        table = tableFrom(table)
        if isinstance(table, dict):
            names = [*self.numbers, *self.categories, *self.quantities, *([self.classes] if self.classes else [])]
            wanted = {name: table[name] for name in names if name in table}
            columns = {name: x for name, x in wanted.items() if isinstance(x, (list, tuple)) or isArray(x)}
            if columns:
                checkLengths(columns, "table")
        return table

    def filled(self, table: Any, i: int) -> np.ndarray:
        """Return a column of numbers, with gaps filled."""
        column = columnFrom(table, self.numbers[i])
        numbers = column.numbers()
        if self.fill is None:
            column.refuse(column.gaps, "a number", "; fill='mean', 'median' or 'zero' takes gaps")
        numbers = np.where(column.gaps, self.fills[i], numbers)
        if self.scale:
            numbers = (numbers - self.means[i]) / self.deviations[i]
        return column.float32(numbers)

    def codes(self, column: TableColumn, strict: bool) -> np.ndarray:
        """Return the index of each value in the vocabulary; -1 for unknown values, or an error if `strict`."""
        known = self.known(column.name)
        numbers = {text: i for i, text in enumerate(known)}
        texts = column.texts().tolist()
        indices = np.array([-1 if gap else numbers.get(text, -1) for gap, text in zip(column.gaps, texts)], np.int64)
        if strict:
            some = ", ".join(known[:5]) + (f", ... ({len(known)} of them)" if len(known) > 5 else "")
            hint = "" if column.name == self.classes else "; with fill= it gets the code 0"
            column.refuse(indices < 0, f"one of {some}", hint)
        return indices

    def warnOfUnknown(self, column: TableColumn, isUnknown: np.ndarray) -> None:
        """Warn of the categories that became code 0, and if no training sample had that code."""
        if not isUnknown.any():
            return
        some, known = sorted(set(column.texts()[isUnknown].tolist()), key=inOrder), self.known(column.name)
        unlearnt = (
            "" if column.name in self.gapped else ", for which a network that learnt from that has learnt nothing"
        )
        warnUser(
            f"column '{column.name}': {isUnknown.sum()} of {len(isUnknown)} rows have a category not seen by fit() "
            f"({few(some)}; known are {few(known)}): they get the code 0{unlearnt}",
            GraphWarning,
        )

    def known(self, name: str) -> list[str]:
        """The vocabulary of a column."""
        self.checkFitted()
        return self.vocabulary[name]

    def checkFitted(self) -> None:
        if not self.vocabulary and not self.fills:
            raise DataError("TableReader: it is not fitted yet: call fit(table) with the table to train on")

    @takes(path=FilePath)
    def save(self, path: StrPath) -> None:
        """Write what was fitted, as JSON, for `TableReader.load` where the network is used."""
        self.checkFitted()
        with whole(path) as file:
            file.write(json.dumps({key: getattr(self, key) for key in ARGUMENTS + FITTED}, indent=1).encode())

    @classmethod
    def load(cls, path: StrPath) -> TableReader:
        """Load a reader from a file of `save`.

        Raises    DataError if the file is something else, naming the column and entry that no `fit` produces
        """
        try:
            with open(path, "rb") as file:
                saved = loads(file.read())
            reader = cls(**{key: saved[key] for key in ARGUMENTS})
            checkSettings(reader, saved)
            for key in FITTED:
                setattr(reader, key, saved[key])
        except (OSError, ValueError, KeyError, TypeError, CheckpointError) as error:
            got = f"{type(error).__name__}: {error!s:.200}"  # the repr of a UnicodeDecodeError has the whole file
            raise DataError(f"{path}: wanted a file of TableReader.save, got one that cannot be read: {got}") from error
        return reader


def checkSettings(reader: TableReader, settings: dict[str, Any]) -> None:
    """Refuse settings that `fit` of this reader cannot produce.

    Raises    ValueError naming the column and the entry
    """
    coded = [*reader.categories, *([] if reader.classes is None else [reader.classes])]
    vocabulary, gapped = settings["vocabulary"], settings["gapped"]
    if type(vocabulary) is not dict or set(vocabulary) != set(coded):
        raise ValueError(
            f"vocabulary: wanted the columns {few(coded, MAX_UNCHECKED_CLASSES) or 'none'}, got {vocabulary!r:.80}"
        )
    if type(gapped) is not list or not all(type(name) is str and name in vocabulary for name in gapped):
        raise ValueError(
            f"gapped: wanted some of the columns {few(coded, MAX_UNCHECKED_CLASSES) or 'none'}, got {gapped!r:.80}"
        )
    for name, entries in vocabulary.items():
        if type(entries) is not list:
            raise ValueError(f"vocabulary, column '{name}': wanted a list of texts, got {entries!r:.80}")
        known: set[str] = set()
        for i, entry in enumerate(entries, 1):
            if type(entry) is not str or entry in known:
                raise ValueError(f"vocabulary, column '{name}', entry {i}: wanted a new text, got {entry!r:.80}")
            known.add(entry)
    for key in ("fills", "means", "deviations"):
        if type(settings[key]) is not list or len(settings[key]) != len(reader.numbers):
            raise ValueError(f"{key}: wanted {plural(len(reader.numbers), 'number')}, got {settings[key]!r:.80}")
        for name, value in zip(reader.numbers, settings[key], strict=True):
            isPositive = key != "deviations" or isFloat32(value) and value > 0
            if type(value) not in (int, float) or not isFloat32(value) or not isPositive:
                wanted = "a number above 0" if key == "deviations" else "a finite number"
                raise ValueError(f"{key}, column '{name}': wanted {wanted}, got {value!r:.80}")


def refuseQuantity(column: TableColumn, classes: list[str]) -> None:
    """Refuse numbers that are no classes: fractions, or hardly one twice.

    Raises    DataError
    """
    if len(classes) <= MAX_UNCHECKED_CLASSES or not all(map(isNumber, classes)):
        return
    fractions = [text for text in classes if not float(text).is_integer()]
    if fractions or 2 * len(classes) > len(column.values):
        some = (fractions or classes)[0]
        raise DataError(
            f"column '{column.name}': wanted classes, got {len(classes)} different numbers, such as {some}: "
            f"a number is predicted with quantities='{column.name}' and a cost such as MSE()"
        )


def inOrder(text: str) -> tuple[bool, float, str]:
    """The order of categories: numbers by their size, then texts."""
    number = float(text) if isNumber(text) else np.nan
    return (True, 0.0, text) if np.isnan(number) else (False, number, text)  # NaN is in no order
