"""Shaped: the native work of a nest, shaped once for all nests that differ only in where their numbers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from puregraph.compile.passes.fusion import renamed
from puregraph.formula.loopnest import Line, LoopNest, Operand, Reduce, Shape, ordered, reduceSets, varying
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.ops.nestcode import works

MANY = 256  # kinds of nests that are remembered


class MemorySlot(NamedTuple):
    """Stands for memory: of the operand of a name among the loads or stores of a nest, or what it needs besides."""

    among: str
    name: Any


Outline = tuple[tuple[str, str, tuple[int, ...]], ...]


class Template(NamedTuple):
    """The steps of a nest with Spots for its memory, the sizes of what they need besides, and `lateIn` of it."""

    works: list[KernelCall]
    sizes: list[int]
    late: list[int]


def shaped(nest: LoopNest, scratch: Callable[[int], Any]) -> tuple[list[KernelCall], list[int]]:
    """The steps that compute a nest, and `lateIn` of it.

    `scratch` gives memory for so many numbers of its kind, for parts of folds.
    """
    found = template(nest.space, outline(nest.loads), nest.lines, outline(nest.stores), nest.kind, nest.last)
    memory: dict[Any, Any] = {("loads", n): o.what for n, o in nest.loads.items()}
    memory |= {("stores", n): o.what for n, o in nest.stores.items()}
    memory |= {("scratch", i): scratch(size) for i, size in enumerate(found.sizes)}
    made = [
        w._replace(slots={n: memory[what] if type(what) is MemorySlot else what for n, what in w.slots.items()})
        for w in found.works
    ]
    return made, found.late


def outline(operands: Mapping[str, Operand]) -> Outline:
    """All of operands but where they are."""
    return tuple([(n, o.kind, o.strides) for n, o in operands.items()])


@lru_cache(maxsize=MANY)
def template(
    space: tuple[int, ...], loads: Outline, lines: tuple[Line, ...], stores: Outline, kind: str, last: int | None
) -> Template:
    """What there is of a nest without its memory."""
    sizes: list[int] = []

    def scratch(size: int) -> MemorySlot:
        sizes.append(size)
        return MemorySlot("scratch", len(sizes) - 1)

    reads = {n: Operand(k, MemorySlot("loads", n), strides) for n, k, strides in loads}
    makes = {n: Operand(k, MemorySlot("stores", n), strides) for n, k, strides in stores}
    nest = LoopNest(space, reads, lines, makes, kind, last=last)
    return Template(works(canonical(nest), scratch), sizes, lateIn(nest))


def canonical(nest: LoopNest) -> LoopNest:
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
        if isinstance(line, Reduce):
            line = line._replace(of=name(line.of))
        else:
            line = renamed(line, {x: name(x) for x in line.names})
        names[n] = f"y{len(lines)}"
        lines.append((names[n], line))
    stores = {name(n): o for n, o in nest.stores.items()}
    return nest._replace(loads=loads, lines=tuple(lines), stores=stores)


def lateIn(nest: LoopNest) -> list[int]:
    """The places of loads of which a number is read only where results are made that lie as they do.

    If there are folds, these are loads that are read after the folds over some axes, along which they do not vary; or
    before as well, if it takes a nest of its own to finish these; and of those that vary, all, if nothing that does is
    made before the last fold.
    """
    nest = ordered(nest)  # a fold over axes of length one is none, and nothing waits for it
    inner = len(nest.space) - 1
    sets, late = reduceSets(nest), set(nest.loads)
    if sets:
        late = set()
        for axes in sets:
            varies, isApart = varying(nest, axes), len(sets) > 1 and inner not in axes
            early = {n for name, x in nest.lines if varies[name] or isinstance(x, Reduce) for n in readBy(x)}
            late |= {n for n in nest.loads if not varies[n] and (isApart or n not in early)}
        if len(sets) == 1 and isMadeLast(nest, sets[0]):
            late |= {n for n in nest.loads if varies[n]}
    return [
        i
        for i, (n, o) in enumerate(nest.loads.items())
        if n in late and not any(isTurned(o, s) for s in nest.stores.values())
    ]


def isMadeLast(nest: LoopNest, axes: frozenset[int]) -> bool:
    """Whether there are results that vary along folded axes, all of them made after the last fold."""
    shape = Shape(nest, axes)
    return {shape.phase[n] for n in nest.stores if shape.spread[n]} == {shape.count - 1} != {0}


def isTurned(x: Operand, y: Operand) -> bool:
    """Whether two operands that lie alike in memory run along other axes."""
    return x.strides != y.strides and sorted(x.strides) == sorted(y.strides)


def readBy(line: Any) -> tuple[str, ...]:
    """What a line reads."""
    return (line.of,) if isinstance(line, Reduce) else line.names
