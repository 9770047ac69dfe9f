"""LoopNest: pointwise formulas and reductions over one space of indices, as one pass over memory.

    LoopNest(
        space=(n, c),
        loads={"x": Operand("f32", x, (c, 1))},
        lines=(("m", Reduce("max", "x", {1})), ("u", Formula("exp(x - m)")), ("s", Reduce("sum", "u", {1})),
               ("y", Formula("u / s"))),
        stores={"y": Operand("f32", y, (c, 1))},
    )

is a softmax: each row is read from memory once. A line is a formula of what stands above it, or a Reduce of it over
some axes. Operands have a stride in elements for each axis; 0 broadcasts them.

This module has the transformations that do not depend on the machine: axes are ordered and collapsed, and a reduction
of many elements to few results is split into parts, which a second nest reduces in a fixed order.
`native.nests.nestcode` and `cuda.nests` write the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from puregraph.core.opensize import isOpen
from puregraph.ops.formula.expr import leaf, rebuild, term, walk
from puregraph.ops.formula.formula import Formula, formulaOf

STARTS = {"sum": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
INTEGERS = {f"{name[0]}{bits}": np.dtype(f"{name}{bits}") for name in ("int", "uint") for bits in (8, 16, 32, 64)}
HEAVY = frozenset("exp exp2 expm1 log log1p log2 log10 tanh sigmoid erf erfc pow sin cos tan sinh cosh".split())


class Operand(NamedTuple):
    """Elements in memory: their kind, where they are, and the stride along each axis in elements."""

    kind: str
    what: Any
    strides: tuple[int, ...]


class Reduce(NamedTuple):
    """sum, max, min or prod of a line or operand over some axes."""

    how: str
    of: str
    axes: frozenset[int]


Line = tuple[str, "Formula | Reduce"]


class LoopNest(NamedTuple):
    """Lines of computation over an index space. A name "axis0" is the index along axis 0.

    `ragged` is (axis, whole): axis 0 counts blocks of that axis; the last block is shortened to the size `whole`.
    `beside` is the number of rows per task, if the task reduces over them; such reductions are stored per task.
    `last` is the axis to vectorize; None: the axis along which the largest operand is contiguous.
    """

    space: tuple[int, ...]
    loads: Mapping[str, Operand]
    lines: tuple[Line, ...]
    stores: Mapping[str, Operand]
    kind: str = "f32"
    ragged: tuple[int, int] | None = None
    beside: int = 0
    last: int | None = None


def startOf(how: str, kind: str) -> float:
    """The neutral element of a reduction."""
    if kind not in INTEGERS:
        return STARTS[how]
    ends = np.iinfo(INTEGERS[kind])
    return {"sum": 0, "prod": 1, "max": ends.min, "min": ends.max}[how]


def reduceSets(nest: LoopNest) -> list[frozenset[int]]:
    """The sets of axes that are reduced, each once."""
    return list(dict.fromkeys(x.axes for _, x in nest.lines if isinstance(x, Reduce)))


def ordered(nest: LoopNest) -> LoopNest:
    """Reorder the axes as the largest operand is stored, and drop axes of length one."""
    if all(n == 1 for n in nest.space):
        one = rearranged(nest, [])
        return one._replace(space=(1,), loads=lone(one.loads), stores=lone(one.stores), last=None)
    operands = [*nest.stores.values(), *nest.loads.values()]
    largest = max(operands, key=lambda o: prod(n for n, s in zip(nest.space, o.strides) if s)).strides
    keep = [a for a, n in enumerate(nest.space) if n != 1]
    order = sorted(keep, key=lambda a: (a == nest.last, largest[a] == 0, -abs(largest[a]), a))
    return rearranged(nest._replace(last=None), [[a] for a in order])


def lone(operands: Mapping[str, Operand]) -> dict[str, Operand]:
    """Operands of a space without axes as operands of the space (1,)."""
    return {k: o._replace(strides=(0,)) for k, o in operands.items()}


def collapsed(nest: LoopNest) -> LoopNest:
    """The nest with neighbouring axes merged where every operand and reduction allows it."""
    named = {int(n[4:]) for _, x in nest.lines if isinstance(x, Formula) for n in x.names if isAxis(n)}
    operands = [*nest.loads.values(), *nest.stores.values()]
    groups = [[0]]
    for a in range(1, len(nest.space)):
        before = a - 1
        same = all(o.strides[before] == o.strides[a] * nest.space[a] for o in operands)
        if same and not named & {a, before} and all((a in s) == (before in s) for s in reduceSets(nest)):
            groups[-1].append(a)
        else:
            groups.append([a])
    return rearranged(nest, groups)


def rearranged(nest: LoopNest, groups: list[list[int]]) -> LoopNest:
    """The nest with a new axis for each group of its axes; axes in no group have length one, and are dropped."""
    to = {a: i for i, group in enumerate(groups) for a in group}

    def line(x: Formula | Reduce) -> Formula | Reduce:
        if isinstance(x, Reduce):
            axes = frozenset(to[a] for a in x.axes if a in to)
            return x._replace(axes=axes) if axes else Formula(x.of)
        indices = [n for n in x.names if isAxis(n)]
        return x.put(**{n: f"axis{to[int(n[4:])]}" if int(n[4:]) in to else 0 for n in indices}) if indices else x

    def move(o: Operand) -> Operand:
        return o._replace(strides=tuple(o.strides[group[-1]] for group in groups))

    return nest._replace(
        space=tuple(prod(nest.space[a] for a in group) for group in groups),
        loads={k: move(o) for k, o in nest.loads.items()},
        stores={k: move(o) for k, o in nest.stores.items()},
        lines=tuple((n, line(x)) for n, x in nest.lines),
    )


def isAxis(name: str) -> bool:
    """True if a name is the index along an axis."""
    return name.startswith("axis") and name[4:].isdigit()


def chunked(nest: LoopNest, axis: int, size: int) -> LoopNest:
    """The nest with an axis cut into blocks: axis 0 is now the index of the block."""
    whole = nest.space[axis]
    blocks = -(-whole // size)

    def cut(o: Operand) -> Operand:
        return o._replace(strides=(o.strides[axis] * size, *o.strides))

    def line(x: Formula | Reduce) -> Formula | Reduce:
        if isinstance(x, Reduce):
            return x._replace(axes=frozenset(a + 1 for a in x.axes))
        moved = {n: f"axis{int(n[4:]) + 1}" for n in x.names if isAxis(n) and int(n[4:]) != axis}
        moved |= {f"axis{axis}": f"(axis0 * {size} + axis{axis + 1})"} if f"axis{axis}" in x.names else {}
        return x.put(**moved) if moved else x

    return nest._replace(
        space=(blocks, *(size if a == axis else n for a, n in enumerate(nest.space))),
        loads={k: cut(o) for k, o in nest.loads.items()},
        stores={k: cut(o) for k, o in nest.stores.items()},
        lines=tuple((n, line(x)) for n, x in nest.lines),
        ragged=(axis + 1, whole) if isOpen(whole) or whole % size else None,
    )


def varying(nest: LoopNest, axes: frozenset[int]) -> dict[str, bool]:
    """For each name, True if it varies along the axes."""
    varies = {k: any(o.strides[a] for a in axes) for k, o in nest.loads.items()}
    for name, x in nest.lines:
        if isinstance(x, Reduce):
            varies[name] = varies[x.of] and not axes <= x.axes
        else:
            varies[name] = any(varies.get(n, isAxis(n) and int(n[4:]) in axes) for n in x.names)
    return varies


def needed(
    nest: LoopNest, names: Iterable[str], known: Iterable[str] = ()
) -> tuple[dict[str, Operand], tuple[Line, ...]]:
    """The loads and lines needed to compute some names when others are known."""
    wanted, known = set(names), set(known)
    lines = []
    for name, x in reversed(nest.lines):
        if name in wanted and name not in known:
            wanted |= {x.of} if isinstance(x, Reduce) else set(x.names)
            lines.append((name, x))
    return {k: o for k, o in nest.loads.items() if k in wanted}, tuple(reversed(lines))


def compact(nest: LoopNest, lead: int, kept: Iterable[int], scratch: Callable[[int], Any]) -> tuple[Operand, int]:
    """An operand with memory for `lead` elements at each position of the kept axes, and the number of positions."""
    strides, step = [0] * len(nest.space), 1
    for a in sorted(kept, reverse=True):
        strides[a], step = step, step * nest.space[a]
    return Operand(nest.kind, scratch(lead * step), tuple(strides)), step


def parted(nest: LoopNest, axes: frozenset[int], size: int, scratch: Callable[[int], Any]) -> tuple[LoopNest, LoopNest]:
    """A nest that reduces blocks of the first of the axes, and one that reduces their results."""
    axis = min(axes)
    step = max(1, size * nest.space[axis] // prod(nest.space[a] for a in axes))
    reductions = {n: x for n, x in nest.lines if isinstance(x, Reduce)}
    varies = varying(nest, axes)
    kept = [a for a in range(len(nest.space)) if a not in axes]
    first = [n for n in nest.stores if varies[n]]
    loads, lines = needed(nest, [*reductions, *first])
    if any(isinstance(x, Formula) and set(x.names) & reductions.keys() for _, x in lines):
        raise ValueError("what follows a long reduction does not fit in one nest with it")
    cut = chunked(nest._replace(loads=loads, lines=lines, stores={n: nest.stores[n] for n in first}), axis, step)
    return joined(nest, cut, reductions, kept, cut.space[0], 0, scratch)


def besides(
    nest: LoopNest, rows: frozenset[int], block: int, scratch: Callable[[int], Any]
) -> tuple[LoopNest, LoopNest]:
    """A nest over rows that also stores reductions over each block of rows, and one that reduces these."""
    outer = frozenset(range(len(nest.space))) - rows
    reductions = {n: x for n, x in nest.lines if isinstance(x, Reduce) and x.axes != rows}
    if any(x.axes != outer for x in reductions.values()):
        raise ValueError(f"reductions over {sorted(rows)} and other axes than the rest do not fit in one nest")
    after = {n for n, known in varying(nest, outer).items() if not known} - reducedOver(nest, rows)
    lines = needed(nest, [*reductions, *(n for n in nest.stores if n not in after)])
    count = prod(nest.space[a] for a in outer)
    one = nest._replace(loads=lines[0], lines=lines[1], stores={n: o for n, o in nest.stores.items() if n not in after})
    one = one._replace(beside=block)
    lead = nest._replace(space=(-(-count // block), *nest.space))
    return joined(nest, one, reductions, sorted(rows), lead.space[0], None, scratch)


def reducedOver(nest: LoopNest, axes: frozenset[int]) -> set[str]:
    """The lines that need a reduction over these axes, and over no others."""
    reduced: set[str] = set()
    other: set[str] = set()
    for name, x in nest.lines:
        names = {x.of} if isinstance(x, Reduce) else set(x.names)
        if isinstance(x, Reduce) and x.axes != axes or not other.isdisjoint(names):
            other.add(name)
        elif isinstance(x, Reduce) or not reduced.isdisjoint(names):
            reduced.add(name)
    return reduced


def joined(
    nest: LoopNest,
    one: LoopNest,
    reductions: dict[str, Reduce],
    kept: list[int],
    blocks: int,
    front: int | None,
    scratch: Any,
) -> tuple[LoopNest, LoopNest]:
    """The nest that stores partial results of the reductions, and the nest that reduces these and computes the rest."""
    parts, seconds = {}, {}
    for n in reductions:
        operand, count = compact(nest, blocks, kept, scratch)
        parts[n] = operand if front is None else operand._replace(strides=(count, *operand.strides))
        seconds[f"{n}Part"] = operand._replace(strides=(count, *operand.strides))
    later = [n for n in nest.stores if n not in one.stores]
    loads, lines = needed(nest, later, reductions)

    def wide(o: Operand) -> Operand:
        return o._replace(strides=(0, *o.strides))

    def moved(x: Any) -> Formula:
        names = {n: f"axis{int(n[4:]) + 1}" for n in x.names if isAxis(n)}
        return x.put(**names) if names else x

    two = LoopNest(
        (blocks, *(n if a in kept else 1 for a, n in enumerate(nest.space))),
        {**{k: wide(o) for k, o in loads.items()}, **seconds},
        (
            *((n, Reduce(x.how, f"{n}Part", frozenset([0]))) for n, x in reductions.items()),
            *((n, moved(x)) for n, x in lines),
        ),
        {n: wide(nest.stores[n]) for n in later},
        nest.kind,
    )
    return one._replace(stores={**one.stores, **parts}), two


class ReducedNest:
    """Dependence analysis of a reduced nest: the values that vary along the reduced axes, and the phase of each."""

    def __init__(self, nest: LoopNest, axes: frozenset[int]):
        self.nest, self.axes = nest, axes
        self.inner = len(nest.space) - 1
        self.loops = sorted(axes)
        self.outer = [a for a in range(len(nest.space)) if a not in axes]
        self.varies = varying(nest, axes)
        self.spread = {n: self.varies[n] or any(o.strides[a] for a in axes) for n, o in nest.stores.items()}
        self.phase = dict.fromkeys(nest.loads, 0)
        self.lines = dict(nest.lines)
        for name, x in nest.lines:
            before = self.phase[x.of] + (x.axes == axes) if isinstance(x, Reduce) else None
            names = () if isinstance(x, Reduce) else x.names
            self.phase[name] = max([self.phase.get(n, 0) for n in names], default=0) if before is None else before
        self.count = 1 + max([self.phase[n] for n in (*self.lines, *nest.stores)], default=0)
        self.beside = {n: x for n, x in nest.lines if isinstance(x, Reduce) and x.axes != axes}
        self.reductions = {n: x for n, x in nest.lines if isinstance(x, Reduce) and x.axes == axes}
        self.operands = {
            **{f"l_{k}": o for k, o in nest.loads.items()},
            **{f"s_{k}": o for k, o in nest.stores.items()},
        }

    def at(self, phase: int) -> tuple[list[str], list[str], list[str]]:
        """Return the reductions of a phase of the rows, those over other axes, and the names that it stores."""
        stores = [n for n in self.nest.stores if self.spread[n] and n not in self.beside and self.phase[n] == phase]
        reductions = [n for n, x in self.reductions.items() if self.phase[x.of] == phase]
        return reductions, [n for n, x in self.beside.items() if self.phase[x.of] == phase], stores

    def wanted(self, phase: int) -> list[str]:
        """Return the names of the values that a row phase reduces or stores."""
        reductions, beside, stores = self.at(phase)
        return [self.lines[n].of for n in (*reductions, *beside)] + stores  # type: ignore[union-attr]

    def dependencies(self, names: Iterable[str]) -> list[str]:
        """The values that these names depend on and that do not vary along the loops."""
        invariant, stack = dict[str, None](), [*names]
        seen = set()
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self.varies and not self.varies[name]:
                invariant[name] = None
            elif name in self.lines:
                x = self.lines[name]
                stack += [x.of] if isinstance(x, Reduce) else x.names
        return list(invariant)


def saved(shape: ReducedNest) -> dict[str, int]:
    """Expensive values needed in several phases, each with the first phase, which computes it."""
    first: dict[str, int] = {}
    again: set[str] = set()
    for p in range(shape.count):
        stack, seen = shape.wanted(p), set[str]()
        while stack:
            name = stack.pop()
            if name in seen or name not in shape.lines or not shape.varies[name]:
                continue
            seen.add(name)
            x = shape.lines[name]
            if isinstance(x, Formula) and HEAVY & {t.op for t in walk(x.term)} and first.setdefault(name, p) < p:
                again.add(name)  # it has been computed, so its operands are not needed
            else:
                stack += [x.of] if isinstance(x, Reduce) else x.names
    return {n: p for n, p in first.items() if n in again}


def settled(line: Formula) -> Formula:
    """A formula with the traced numbers in place of open ones, to be read."""
    numbers = {t: leaf(t.value.number) for t in walk(line.term) if isOpen(t.value)}
    return formulaOf(rebuild(line.term, numbers, term)) if numbers else line


def title(nest: LoopNest) -> str:
    """The computation of the nest, for a table."""
    lines = [(n, x if isinstance(x, Reduce) else settled(x)) for n, x in nest.lines]
    if len(lines) == 1 and isinstance(lines[0][1], Formula):
        return str(lines[0][1])
    return "; ".join(f"{n} = {x.how} {x.of}" if isinstance(x, Reduce) else f"{n} = {x}" for n, x in lines)
