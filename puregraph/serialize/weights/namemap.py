"""NameMap: pairs of names in a file and in a graph, used for loading and for saving.

names = NameMap(
    [
        ("layer{s}.{b}.conv{c}", "stage{s}.block{b+1}.conv{c}"),               # modules: all their arrays
        ("class_token", "token.W", squeeze(0)),                                # one array
        (("attn.q", "attn.k", "attn.v"), "attn.qkv"),                          # several that are one here
    ]
)
graph.load("model.safetensors", names=names)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from puregraph.core.errors import ArgumentError, quote
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder, leavesIn
from puregraph.graph.module import Module
from puregraph.serialize.weights.namepattern import Holes, NamePattern
from puregraph.serialize.weights.transforms import Transform, join, same, split

LAYOUTS = {  # by layout, the module whose function `layout` describes how other programs store a layer
    "torch": "puregraph.serialize.weights.maps.torchlayers",
    "keras": "puregraph.serialize.weights.maps.keras",
}
Texts = str | tuple[str, ...]
Names = Any  # a NameMap, a dict of Texts, the name of a ready map, or None


class ArrayGroup(NamedTuple):
    """Arrays of one layer that belong together.

    `arrays`  their names in the module
    `files`   suffixes of the layer's name in the file; empty for arrays that such files do not hold
    `how`     the transform from file to graph
    `others`  alternative suffixes, in files of another version
    """

    arrays: tuple[str, ...]
    files: tuple[str, ...]
    how: Transform = same
    others: tuple[tuple[str, ...], ...] = ()


Layout = Callable[[Module], list[ArrayGroup]]


class NameLink(NamedTuple):
    """Names of arrays in a file, and the paths of the corresponding arrays in a graph."""

    files: tuple[str, ...]
    paths: tuple[str, ...]
    how: Transform

    def __str__(self) -> str:
        change = "" if self.how is same else f"  {self.how}"
        return f"{', '.join(self.files)} -> {', '.join(self.paths)}{change}"


class NameRow:
    """One row of a map: names in the file, paths in the graph, and a change instead of the layout's."""

    def __init__(self, file: Texts, graph: Texts, how: Transform | None = None) -> None:
        self.files, self.graphs = ([NamePattern(text) for text in texts(names)] for names in (file, graph))
        self.how = how
        patterns = [*self.files, *self.graphs]
        holes = patterns[0].holes
        for pattern in patterns:
            if pattern.holes != holes:
                raise ArgumentError(
                    f"NameMap: {quote(patterns[0].text)} and {quote(pattern.text)} have other holes, so a name of one "
                    "does not give the other's; write one row for each name, or give all patterns the same holes"
                )
        numbered = set().union(*(pattern.numbered for pattern in patterns))
        for pattern in patterns:
            pattern.numbered = numbered

    def holes(self, path: str) -> Holes | None:
        """Return the texts in the holes if the row matches a path of the graph, else None."""
        return next((holes for graph in self.graphs if (holes := graph.match(path)) is not None), None)

    def __repr__(self) -> str:
        sides = [[pattern.text for pattern in side] for side in (self.files, self.graphs)]
        shown = [repr(side[0] if len(side) == 1 else tuple(side)).replace("'", '"') for side in sides]
        return f"({', '.join(shown)}{f', {self.how}' if self.how else ''})"


class NameMap:
    """Rows of (names in the file, paths in the graph), read in order, and the layout of the file's layers.

    A row names single arrays, or modules, and then is for all their arrays. `{i}` is a part of a name, `{i+1}` a
    number that is larger by one, `*` any part with dots. Several names for one path are concatenated, several paths for
    one name split. A third entry is a transform, which replaces the layout's. Other names pass as they are.

    `layout`    "torch" (a Linear is stored as (out, in), under `weight` and `bias`), "keras", or None: as in the graph
    `optional`  a prefix that the names in a file may have or lack
    `ignored`   patterns of names that a graph has no use for

    Raises    ArgumentError for patterns that cannot be read both ways

    >>> from puregraph.weights import NameMap
    >>> names = NameMap([("layers.{i}.dense", "fc{i+1}")])
    >>> for link in names.links(Sequential(Linear(4, 8, name="fc1"), Relu(), Linear(8, 2, name="fc2"))):
    ...     print(link)
    layers.0.dense.weight -> fc1.W  transpose
    layers.0.dense.bias -> fc1.b
    layers.1.dense.weight -> fc2.W  transpose
    layers.1.dense.bias -> fc2.b
    """

    def __init__(
        self,
        rows: Iterable[Any] | Mapping[Any, Any] = (),
        layout: str | None = "torch",
        optional: str = "",
        ignored: tuple[str, ...] = (),
    ) -> None:
        if layout is not None and layout not in LAYOUTS:
            raise ArgumentError(f"NameMap: wanted layout {', '.join(map(repr, LAYOUTS))} or None, got {layout!r:.60}")
        entries = rows.items() if isinstance(rows, Mapping) else rows
        self.rows = [row if isinstance(row, NameRow) else rowFrom(row) for row in entries]
        self.layout, self.optional, self.ignored = layout, optional, tuple(ignored)
        self.unused = [NamePattern(text) for text in self.ignored]

    def __add__(self, other: NameMap) -> NameMap:
        """The rows of this map, then those of another one."""
        optional = self.optional or other.optional
        return NameMap([*self.rows, *other.rows], self.layout, optional, (*self.ignored, *other.ignored))

    def ignores(self, name: str) -> bool:
        """True for a name in a file that a graph has no use for."""
        return any(pattern.match(name) is not None for pattern in self.unused)

    def links(self, graph: Graph, names: Collection[str] | None = None) -> list[NameLink]:
        """Return the link of every array of a graph that such a file holds.

        `names` are those in a file: rows whose names are not there are passed over. Without them a link has the names
        of the first row that fits, which are those that `save` writes.
        """
        known: dict[tuple[str, ...], NameLink] = {}
        present = {*graph.params, *graph.states}
        for owner, group in self.groups(graph):
            candidates = list(self.candidates(owner, group))
            candidates = [link for link in candidates if present.issuperset(link.paths)] or candidates
            if names is not None:
                variants = [v for link in candidates for v in self.variants(link)]
                candidates = [link for link in variants if all(name in names for name in link.files)] or candidates
            known.setdefault(candidates[0].paths, candidates[0])
        return list(known.values())

    def variants(self, link: NameLink) -> Iterator[NameLink]:
        """Yield a link with its names, then without the prefix `optional`, then with it."""
        yield link
        if self.optional:
            yield link._replace(files=tuple(name.removeprefix(self.optional) for name in link.files))
            yield link._replace(files=tuple(self.optional + name for name in link.files))

    def groups(self, graph: Graph) -> Iterator[tuple[str, ArrayGroup]]:
        """Every module of a graph by path, with each group of its arrays."""
        for step in graph.steps().items:
            for path, module in leavesIn(step.module, step.path):
                if not isinstance(module, GraphHolder):
                    for group in groupsOf(module, self.layout):
                        yield path, group

    def candidates(self, owner: str, group: ArrayGroup) -> Iterator[NameLink]:
        """Yield the links of a module's arrays by each matching row, in order; at last with unchanged names."""
        for row in self.rows:
            for array in group.arrays if len(group.arrays) == 1 else ():
                holes = row.holes(f"{owner}.{array}")
                if holes is not None:
                    yield rowLink(row, holes, [], group)
            holes = row.holes(owner)
            if holes is not None:
                for suffixes in (group.files, *group.others):
                    yield rowLink(row, holes, suffixes, group)
        for suffixes in (group.files, *group.others):
            yield NameLink(tuple(dotted(owner, suffix) for suffix in suffixes), pathsIn(owner, group), group.how)

    def __repr__(self) -> str:
        rows = "".join(f"\n        {row}," for row in self.rows)
        options = [f"layout={self.layout!r}"] if self.layout != "torch" else []
        options += [f"optional={self.optional!r}"] if self.optional else []
        options += [f"ignored={self.ignored!r}"] if self.ignored else []
        shown = "".join(f"\n    {option}," for option in options).replace("'", '"')
        return f"NameMap(\n    [{rows}\n    ],{shown}\n)" if rows else f"NameMap([]{shown and ',' + shown + chr(10)})"


def rowFrom(row: Any) -> NameRow:
    """A row from a tuple."""
    fits = isinstance(row, tuple) and len(row) in (2, 3) and (len(row) == 2 or isinstance(row[2], Transform))
    if not fits or not all(isinstance(text, str) for side in row[:2] for text in texts(side)):
        raise ArgumentError(
            f"NameMap: wanted rows of (name in the file, path in the graph) or (name, path, transform), got {row!r:.80}"
        )
    return NameRow(*row)


def rowLink(row: NameRow, holes: Holes, suffixes: Iterable[str], group: ArrayGroup) -> NameLink:
    """The link of a row: of modules, whose arrays have these suffixes in the file, or of single arrays."""
    owners, targets = ([pattern.fill(holes) for pattern in side] for side in (row.files, row.graphs))
    suffixes = tuple(suffixes)
    files = tuple(leveled(owner, suffix) for owner in owners for suffix in suffixes) if suffixes else tuple(owners)
    paths = tuple(path for owner in targets for path in pathsIn(owner, group)) if suffixes else tuple(targets)
    how = row.how or group.how
    if row.how is None and len(owners) > 1 and len(targets) == 1:
        how = join(-1) if how is same else how >> join(-1)
    elif row.how is None and len(targets) > 1:
        how = split(-1) if how is same else how >> split(-1)
    return NameLink(files, paths, how)


def groupsOf(module: Module, layout: str | None) -> list[ArrayGroup]:
    """Return the arrays of a module in groups as a layout stores them, and single arrays that it does not know."""
    groups = [] if layout is None else import_module(LAYOUTS[layout]).layout(module)
    known = {name for group in groups for name in group.arrays}
    others = [name for name in (*module.params, *module.states) if name not in known]
    return [group for group in groups if group.files] + [ArrayGroup((name,), (name,)) for name in others]


def pathsIn(owner: str, group: ArrayGroup) -> tuple[str, ...]:
    """The paths of a group's arrays."""
    return tuple(dotted(owner, array) for array in group.arrays)


def dotted(owner: str, suffix: str) -> str:
    """Join the name of a layer and a suffix."""
    suffix = suffix.replace("{l}", "l0")
    return f"{owner}{suffix}" if suffix.startswith("/") else f"{owner}.{suffix}" if owner else suffix


def leveled(owner: str, suffix: str) -> str:
    """Join the name of a layer and a suffix, where `lstm.l1` is the second layer inside the torch layer `lstm`,
    and `.l1` that of the state dict of the torch layer alone.
    """
    stem, dot, level = owner.rpartition(".")
    if "{l}" in suffix and dot and level[:1] == "l" and level[1:].isdigit():
        return dotted(stem, suffix.replace("{l}", level))
    return dotted(owner, suffix)


def texts(names: Texts) -> tuple[str, ...]:
    """One text or several as a tuple."""
    return tuple(names) if isinstance(names, (tuple, list)) else (names,)
