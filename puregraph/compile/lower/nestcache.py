"""Nest cache: build the kernel calls of a loop nest once for all nests that differ only in addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from puregraph.compile.passes.fusion import renamed
from puregraph.core.opensize import isOpen
from puregraph.ops.formula.loopnest import Line, LoopNest, Operand, Reduce, ReducedNest, ordered, reduceSets, varying
from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.nests.nestcode import nestCalls

MAX_CACHED_NESTS = 1024  # most nests in the cache


class MemorySlot(NamedTuple):
    """A placeholder for memory: a load or store of a nest by name, or scratch memory."""

    among: str
    name: Any


Outline = tuple[tuple[str, str, tuple[int, ...]], ...]


class Template(NamedTuple):
    """The kernel calls of a nest with MemorySlots as addresses, the sizes of its scratch memory, and its `lateIn`."""

    works: list[KernelCall]
    sizes: list[int]
    late: list[int]


def nestKernels(nest: LoopNest, scratch: Callable[[int], Any]) -> tuple[list[KernelCall], list[int]]:
    """The kernel calls of a nest, and its `lateIn`.

    `scratch` allocates memory for n numbers of four bytes, for partial reductions.
    """
    make = template.__wrapped__ if hasOpen(nest) else template
    cached = make(nest.space, outline(nest.loads), nest.lines, outline(nest.stores), nest.kind, nest.last)
    memory: dict[Any, Any] = {("loads", n): o.what for n, o in nest.loads.items()}
    memory |= {("stores", n): o.what for n, o in nest.stores.items()}
    width = SIZES[nest.kind] // 4
    memory |= {("scratch", i): scratch(size * width or size) for i, size in enumerate(cached.sizes)}
    made = [
        w._replace(slots={n: memory[what] if type(what) is MemorySlot else what for n, what in w.slots.items()})
        for w in cached.works
    ]
    return made, cached.late


def hasOpen(nest: LoopNest) -> bool:
    """True if some size or stride of a nest is open."""
    operands = (*nest.loads.values(), *nest.stores.values())
    return isOpen(nest.space) or any(isOpen(o.strides) for o in operands)


def outline(operands: Mapping[str, Operand]) -> Outline:
    """Operands without their addresses."""
    return tuple([(n, o.kind, o.strides) for n, o in operands.items()])


@lru_cache(maxsize=MAX_CACHED_NESTS)
def template(
    space: tuple[int, ...], loads: Outline, lines: tuple[Line, ...], stores: Outline, kind: str, last: int | None
) -> Template:
    """The template for a nest; the arguments, everything but its memory, are the cache key."""
    sizes: list[int] = []

    def scratch(size: int) -> MemorySlot:
        sizes.append(size)
        return MemorySlot("scratch", len(sizes) - 1)

    reads = {n: Operand(k, MemorySlot("loads", n), strides) for n, k, strides in loads}
    makes = {n: Operand(k, MemorySlot("stores", n), strides) for n, k, strides in stores}
    nest = LoopNest(space, reads, lines, makes, kind, last=last)
    return Template(nestCalls(canonical(nest), scratch), sizes, lateIn(nest))


def canonical(nest: LoopNest) -> LoopNest:
    """The nest with names numbered in order of use, so that equal formulas share code, and without unused lines."""
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
    """The indices of loads that a result of the same layout may overwrite: each element is read when it is computed.

    With reductions there are two kinds. A load that does not vary along the reduced axes counts if it is read only
    after the reduction, or if a separate nest finishes the reduction. Loads that vary count if all varying results
    are computed after the last reduction.
    """
    nest = ordered(nest)  # drops reductions over axes of length one, which nothing waits for
    inner = len(nest.space) - 1
    sets, late = reduceSets(nest), set(nest.loads)
    if sets:
        late = set()
        for axes in sets:
            varies, isSeparate = varying(nest, axes), len(sets) > 1 and inner not in axes
            early = {n for name, x in nest.lines if varies[name] or isinstance(x, Reduce) for n in readBy(x)}
            late |= {n for n in nest.loads if not varies[n] and (isSeparate or n not in early)}
        if len(sets) == 1 and isMadeLast(nest, sets[0]):
            late |= {n for n in nest.loads if varies[n]}
    return [
        i
        for i, (n, o) in enumerate(nest.loads.items())
        if n in late and not any(isTransposed(o, s) for s in nest.stores.values())
    ]


def isMadeLast(nest: LoopNest, axes: frozenset[int]) -> bool:
    """True if some results vary along reduced axes, and all of these are computed after the last reduction."""
    shape = ReducedNest(nest, axes)
    return {shape.phase[n] for n in nest.stores if shape.spread[n]} == {shape.count - 1} != {0}


def isTransposed(x: Operand, y: Operand) -> bool:
    """True if two operands have the same strides in a different axis order."""
    return x.strides != y.strides and sorted(x.strides) == sorted(y.strides)


def readBy(line: Any) -> tuple[str, ...]:
    """The names that a line reads."""
    return (line.of,) if isinstance(line, Reduce) else line.names
