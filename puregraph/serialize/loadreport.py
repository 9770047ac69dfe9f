"""LoadReport: the arrays of a file that fit the arrays of a graph, and the reasons why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.errors import printable, quote, show
from puregraph.core.param import FixedState, Param, State, Stored
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest

MAX_LISTED = 10  # most arrays in a message


class ArraySource:
    """A file that arrays are loaded from. A reader says how its names and the graph's differ; here they do not.

    `expected`  the name in the file that was looked for, by path in the graph
    `unused`    arrays of the file without a path in the graph, by their names in the file
    `ignored`   names in the file that a graph has no use for
    """

    optimizer: Any = None
    partial = False  # True if such a file may lack counters and constants
    expected: dict[str, str] = {}
    unused: dict[str, Any] = {}
    ignored: list[str] = []

    def advice(self, graph: Graph, report: LoadReport) -> str:
        """Return lines of advice if graph and file hold different arrays."""
        return "\n  net.load(path, strict=False) loads what fits"


class Mismatch(NamedTuple):
    """An array of the graph and its counterpart in the file, which differs; a side without the array is empty."""

    name: str
    wanted: str
    given: str

    def __str__(self) -> str:
        return f"{quote(self.name)}: the graph has {self.wanted}, the file {self.given}"


class LoadReport(NamedTuple):
    """The outcome of each array: loaded; missing in the file; only in the file; or of another shape, dtype or kind.

    `ignored` names arrays of the file that no graph has a use for.
    """

    loaded: list[str]
    missing: list[Mismatch]
    extra: list[Mismatch]
    mismatched: list[Mismatch]
    ignored: list[str] = []

    @property
    def complete(self) -> bool:
        """True if graph and file hold the same arrays."""
        return not (self.missing or self.extra or self.mismatched)

    def __str__(self) -> str:
        rows = [f"  ignored    {listed(self.ignored)}"] if self.ignored else []
        for kind, mismatches in (("missing", self.missing), ("extra", self.extra), ("different", self.mismatched)):
            rows += [f"  {kind:9}  {m}" for m in mismatches[:MAX_LISTED]]
            rows += [f"  {kind:9}  and {len(mismatches) - MAX_LISTED} more"] if len(mismatches) > MAX_LISTED else []
        return "\n".join([f"{len(self.loaded)} arrays fit", *rows])


def match(source: Any, graph: Graph, targets: dict[str, Stored]) -> tuple[LoadReport, dict[str, str]]:
    """Match the arrays of a file and a graph: return a report, and the name in the file for each array of the graph.

    Both may share arrays between names. A shared array of the file may be two arrays in the graph, and two equal arrays
    of the file may be one in the graph.
    """
    report, chosen = LoadReport([], [], [], [], source.ignored), {}
    graphTies = graph.ties if targets else {}
    aliases: dict[str, list[str]] = {}
    for path, owner in graphTies.items():
        aliases.setdefault(owner, []).append(path)
    inFile = {path: path for path in source.arrays} | source.ties
    for path, stored in targets.items():
        paths = (path, *aliases[path]) if path in aliases else (path,)
        names = list(dict.fromkeys([inFile[n] for n in paths if n in inFile]))
        kind = "params" if isinstance(stored, Param) else "states"
        if not names:
            isOptional = stored.dtype.kind in "iu" or isinstance(stored, FixedState)
            if not (source.partial and kind == "states" and isOptional):
                near = source.unused or source.arrays if len(report.missing) < MAX_LISTED else {}
                reason = lacks(path, near, source.expected.get(path, path))
                report.missing.append(Mismatch(path, describeArray(stored), reason))
        elif source.kinds[names[0]] != kind or not source.fits(
            names[0], shapeIn(source, names[0], stored), stored.dtype
        ):
            note = "" if source.kinds[names[0]] == kind else f" as one of its {source.kinds[names[0]]}"
            stands = describeArray(source.arrays[names[0]]) + note
            report.mismatched.append(Mismatch(path, describeArray(stored), stands))
        else:
            differing = [n for n in names[1:] if not sameArray(source, names[0], n)]
            for name in differing:
                report.mismatched.append(Mismatch(name, f"it shared with '{path}'", "two arrays that differ"))
            if not differing:
                report.loaded.append(path)
                chosen[path] = names[0]
    known = {*targets, *graphTies}
    known |= {owner for alias, owner in source.ties.items() if alias in known}
    strangers = [(path, array) for path, array in source.arrays.items() if path not in known]
    for path, array in (*strangers, *source.unused.items()):
        near = targets if len(report.extra) < MAX_LISTED else {}
        report.extra.append(Mismatch(path, lacks(path, near), describeArray(array)))
    return report, chosen


def shapeIn(source: Any, name: str, stored: Stored) -> tuple[int, ...]:
    """The shape to read an array in: that of the file if the symbols of a state can take its sizes."""
    shape = tuple(source.arrays[name].shape)
    isOpen = isinstance(stored, State) and stored.declared is not None and stored.takes(shape)
    return shape if isOpen else stored.shape


def sameArray(source: Any, first: str, other: str) -> bool:
    """True if two arrays of the file are equal."""
    a, b = source.arrays[first], source.arrays[other]
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.array_equal(source.read(first, a.shape, a.dtype), source.read(other, b.shape, b.dtype)))


def describeArray(array: Any) -> str:
    """Describe shape and dtype, and the name or shape in the file if these differ."""
    dtype = array.dtype if isinstance(array.dtype, str) else np.dtype(array.dtype).name
    return f"{show(tuple(array.shape))} {printable(dtype)}{getattr(array, 'note', '')}"


def lacks(name: str, known: Mapping[str, object], expected: str | None = None) -> str:
    """Return a text that says that a name is missing, with similar names."""
    wanted = name if expected is None else expected
    near = [f"{quote(n)} {describeArray(known[n])}" for n in nearest(wanted, list(known), 2)] if known else []
    missing = "nothing of that name" if wanted == name else f"no {quote(wanted)}"
    return f"{missing} (near: {', '.join(near)})" if near else missing


def listed(paths: list[str]) -> str:
    """Some paths, quoted."""
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return ", ".join(map(quote, paths[:MAX_LISTED])) + more
