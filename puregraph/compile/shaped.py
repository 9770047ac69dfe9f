"""Shaped: the native work of a nest, shaped once for all nests that differ only in where their numbers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from puregraph.compile.fuse import renamed
from puregraph.native.nest import works
from puregraph.native.work import Work
from puregraph.nest import Fold, Line, Nest, Operand

MANY = 1024  # kinds of nests that are remembered


class Spot(NamedTuple):
    """Stands for memory: of the operand of a name among the loads or stores of a nest, or what it needs besides."""

    among: str
    name: Any


Outline = tuple[tuple[str, str, tuple[int, ...]], ...]


def shaped(nest: Nest, scratch: Callable[[int], Any]) -> list[Work]:
    """The steps that compute a nest; `scratch` gives memory for so many numbers of its kind, for parts of folds."""
    loads, stores = outline(nest.loads), outline(nest.stores)
    found, sizes = template(nest.space, loads, nest.lines, stores, nest.kind, nest.last)
    memory: dict[Any, Any] = {("loads", n): o.what for n, o in nest.loads.items()}
    memory |= {("stores", n): o.what for n, o in nest.stores.items()}
    memory |= {("scratch", i): scratch(size) for i, size in enumerate(sizes)}
    return [
        w._replace(slots={n: memory[what] if type(what) is Spot else what for n, what in w.slots.items()})
        for w in found
    ]


def outline(operands: Mapping[str, Operand]) -> Outline:
    """All of operands but where they are."""
    return tuple([(n, o.kind, o.strides) for n, o in operands.items()])


@lru_cache(maxsize=MANY)
def template(
    space: tuple[int, ...], loads: Outline, lines: tuple[Line, ...], stores: Outline, kind: str, last: int | None
) -> tuple[list[Work], list[int]]:
    """The steps of a nest with Spots for its memory, and the sizes of what they need besides."""
    sizes: list[int] = []

    def scratch(size: int) -> Spot:
        sizes.append(size)
        return Spot("scratch", len(sizes) - 1)

    reads = {n: Operand(k, Spot("loads", n), strides) for n, k, strides in loads}
    makes = {n: Operand(k, Spot("stores", n), strides) for n, k, strides in stores}
    return works(canonical(Nest(space, reads, lines, makes, kind, last=last)), scratch), sizes


def canonical(nest: Nest) -> Nest:
    """The nest with names by order of use, so that equal formulas have one code; without what it does not use."""
    names: dict[str, str] = {}
    loads: dict[str, Any] = {}
    lines: list[Line] = []

    def name(n: str) -> str:
        if n in nest.loads and n not in names:
            names[n] = f"x{len(loads)}"
            loads[names[n]] = nest.loads[n]
        return names.get(n, n)

    for n, line in nest.lines:
        if isinstance(line, Fold):
            line = line._replace(of=name(line.of))
        else:
            line = renamed(line, {x: name(x) for x in line.names})
        names[n] = f"y{len(lines)}"
        lines.append((names[n], line))
    stores = {name(n): o for n, o in nest.stores.items()}
    return nest._replace(loads=loads, lines=tuple(lines), stores=stores)
