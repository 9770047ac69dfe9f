"""Fuse: neighbouring pointwise calls and reductions of a step become groups, each one pass over memory.

Calls are taken in order. One that reads what an open group makes joins it where that is possible, else the group is
closed, which puts it into the list of steps at that point. A group is a space of indices with formulas and folds over
it (`nest`); what others read of it is stored, all else lives in registers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.value import Call, Value
from puregraph.evaluator import Evaluator
from puregraph.formula import Formula, formulaOf
from puregraph.kernels.scatter import putClass, takeClass
from puregraph.native.nest import CHUNK, PART
from puregraph.nest import Fold
from puregraph.standin import astype
from puregraph.table import TABLE
from puregraph.terms import Term, leaf, rebuild, term

Axes = tuple[int | None, ...]
PATIENCE = 6  # calls after which a group that nobody joined is closed
AHEAD = 40  # how many calls further on may be taken before their turn
MOST = 28  # operands and results of one group: what registers can hold
EXACT = 1 << 24  # whole numbers below this are floats without loss
UFUNCS = {row.numpy: name for name, row in TABLE.items() if isinstance(row.numpy, np.ufunc)}
UFUNCS |= {np.square: "square", np.reciprocal: "reciprocal", np.bitwise_and: "and", np.bitwise_or: "or"}
UFUNCS |= {np.invert: "not", np.abs: "abs", np.true_divide: "/"}
FOLDS = {np.sum: "sum", np.mean: "mean", np.max: "max", np.min: "min", np.add.reduce: "sum"}
FOLDS |= {np.prod: "prod", np.any: "max", np.all: "min"}
FOLDS |= {np.maximum.reduce: "max", np.minimum.reduce: "min", np.amax: "max", np.amin: "min"}
TRUTHS = (np.any, np.all)
BARRIERS = ("host", "rule", "store", "object")  # what has effects, or reads what no Value tells
KINDS = {"float32": "f32", "bool": "bool", "int64": "i64", "int32": "i32"}
LONE = {**KINDS, "float64": "f64"}  # of what is one number


@cache
def named(dtype: Any) -> str:
    """The name of a dtype, which numpy puts together anew each time."""
    return dtype.name


class Group:
    """A space, and what is computed over it: `lines` for `nest.Nest`, by names that `made` and `loads` give Values.

    `axes` says for each made Value which axis of the space each of its own axes runs along (None: length one).
    """

    def __init__(self, space: tuple[int, ...], begun: int):
        self.space, self.last = space, begun
        self.lines: list[tuple[str, Any]] = []
        self.loads: dict[str, tuple[Value, Axes]] = {}
        self.made: dict[int, Value] = {}
        self.axes: dict[int, Axes] = {}
        self.folded: dict[
            int, frozenset[int]
        ] = {}  # by number: over which axes a Value, or what it is made of, is folded
        self.calls: list[Call] = []
        self.inner: int | None = None

    def __repr__(self) -> str:
        return f"<group over {self.space}: {'; '.join(f'{n} = {x}' for n, x in self.lines)}>"

    @property
    def folds(self) -> list[frozenset[int]]:
        return list(dict.fromkeys(x.axes for _, x in self.lines if isinstance(x, Fold)))

    def place(self, value: Value) -> tuple[Value, Axes] | None:
        """The made Value that this one is or is a view of, and the axes of the space that its own run along."""
        if value.number in self.made:
            return value, self.axes[value.number]
        root = value.root
        if root.number not in self.made or value.offset:
            return None
        own, used = self.axes[root.number], set()
        found: list[int | None] = []
        for n, s in zip(value.shape, value.strides):
            match = [i for i, (m, t) in enumerate(zip(root.shape, root.strides)) if m == n and t == s and i not in used]
            if n == 1 or s == 0:
                found.append(None)
            elif match:
                used.add(match[0])
                found.append(own[match[0]])
            else:
                return None
        wanted = {i for i, n in enumerate(root.shape) if n > 1}
        return (root, tuple(found)) if wanted == used else None

    def spread(self, axes: frozenset[int]) -> int:
        return math.prod(self.space[a] for a in axes)

    def isShort(self, axes: frozenset[int]) -> bool:
        """Whether what is folded over these axes is known while the same place is still at hand."""
        long = self.spread(axes)
        if self.inner in axes:
            return long <= 4 * CHUNK or math.prod(self.space) >= 64 * long
        return long <= 2 * PART


class Reading(NamedTuple):
    """A call as lines of a nest over a space of its own.

    `given` has the Values that it reads, by name, each with the axes of the space that its own run along; `lines` are
    those before the results, which are Values with a formula or Fold each, and again their axes. A fold that is divided
    by `count` at its end is a mean.
    """

    space: tuple[int, ...]
    given: dict[str, tuple[Value, Axes]]
    lines: list[tuple[str, Formula]]
    results: list[tuple[Value, Any, Axes]]
    count: int = 0


def aligned(value: Value, rank: int) -> Axes:
    """The axes that an operand's run along where it broadcasts."""
    first = rank - value.ndim
    return tuple([None if n == 1 else first + i for i, n in enumerate(value.shape)])


def nameOf(value: Value) -> str:
    """What a value is called in the formulas of a group."""
    return f"v{value.number}"


def reading(call: Call) -> Reading | None:
    """A call as formulas or a fold; None if it is neither, or not of numbers that native code computes with."""
    found = None
    if call.kind == "pointwise":
        found = pointwise(call, formulas(call))
    elif call.kind == "reduce":
        found = folding(call)
    elif call.kind == "fill" and isinstance(call.arguments[0], (int, float)):
        found = pointwise(call, [(call.outs[0], formulaOf(leaf(float(call.arguments[0]))))])
    elif call.function is takeClass or call.function is putClass:
        found = byClass(call)
    if found is None:
        return None
    values = [v for v, _ in found.given.values()]
    results = [y for y, _, _ in found.results]
    made = (*KINDS,) if call.kind == "reduce" else ("float32", "bool")
    if any(named(y.dtype) not in made or 0 in y.shape for y in results):
        return None
    if any(named(x.dtype) not in (LONE if x.size == 1 else KINDS) or x.role == "object" for x in values):
        return None
    if any(x.dtype.kind == "i" and max(x.shape, default=0) >= EXACT for x in values):
        return None
    return found if values or results[0].dtype == np.float32 else None


def pointwise(call: Call, results: list[tuple[Value, Formula]] | None) -> Reading | None:
    """Formulas over the space of their results, which must be one."""
    if not results or len({y.shape for y, _ in results}) > 1:
        return None
    space = results[0][0].shape
    given = {nameOf(x): (x, aligned(x, len(space))) for x in call.values()}
    return Reading(space, given, [], [(y, f, aligned(y, len(space))) for y, f in results])


def byClass(call: Call) -> Reading | None:
    """One number of each row, or put into each row, by its class."""
    x, labels = call.arguments[:2]
    (y,) = call.outs
    if call.function is takeClass:
        own = tuple([a for a in range(x.ndim) if a != 1])
        line = Formula("where(axis1 == k, x, 0)").put(k=nameOf(labels), x=nameOf(x))
        name = f"{nameOf(y)}p"
        given = {nameOf(x): (x, aligned(x, x.ndim)), nameOf(labels): (labels, own)}
        return Reading(x.shape, given, [(name, line)], [(y, Fold("sum", name, frozenset([1])), own)])
    own = tuple([a for a in range(y.ndim) if a != 1])
    line = Formula("where(axis1 == k, x, 0)").put(k=nameOf(labels), x=nameOf(x))
    return Reading(y.shape, {nameOf(x): (x, own), nameOf(labels): (labels, own)}, [], [(y, line, aligned(y, y.ndim))])


def part(a: Any) -> Term | None:
    """An argument of a call as a part of a formula; None if it is no number."""
    if type(a) is Value:
        isKnown = a.role == "constant" and a.shape == () and a.dtype.kind in "fiub"
        return leaf(float(a.source)) if isKnown else leaf(nameOf(a))
    if isinstance(a, (bool, int, float, np.integer, np.floating, np.bool_)) and not math.isnan(a):
        return leaf(float(a))
    return None


def formulas(call: Call) -> list[tuple[Value, Formula]] | None:
    """The results of a pointwise call, each with its formula."""
    function = call.function
    parts = [part(a) for a in call.arguments]
    if isinstance(function, Evaluator):
        if None in parts:
            return None
        known = dict(zip(map(leaf, function.names), parts))
        return [(y, formulaOf(rebuild(t, known, term))) for y, t in zip(call.outs, function.terms)]
    if call.options.keys() - {"copy"} or len(call.outs) != 1:
        return None
    (y,) = call.outs
    if function is astype:
        x = call.arguments[0]
        isCast = type(x) is Value and (y.dtype != bool or x.dtype == bool)
        return [(y, formulaOf(parts[0]))] if isCast else None
    op = "where" if function is np.where else UFUNCS.get(function)
    if op is None or None in parts or len(parts) != len(TABLE[op].pulls):
        return None
    if op in ("and", "or", "not") and any(type(a) is Value and a.dtype != bool for a in call.arguments):
        return None
    return [(y, formulaOf(term(op, *parts)))]


def folding(call: Call) -> Reading | None:
    """A reduction as a fold, and for a mean the division by how many there are."""
    how = FOLDS.get(call.function)
    if how is None or call.options.keys() - {"axis", "keepdims"} or len(call.arguments) > 2:
        return None
    x, y = call.arguments[0], call.outs[0]
    if type(x) is not Value or 0 in x.shape or not x.shape or not isFolded(call.function, x, y):
        return None
    axis = call.arguments[1] if len(call.arguments) > 1 else call.options.get("axis")
    chosen = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = frozenset(a % x.ndim for a in chosen)
    whole = range(x.ndim)
    own = tuple([None if a in axes else a for a in whole] if y.ndim == x.ndim else [a for a in whole if a not in axes])
    count = math.prod(x.shape[a] for a in axes) if how == "mean" else 0
    name, lines = nameOf(x), []
    if x.dtype == bool:
        name, lines = f"{nameOf(y)}p", [(f"{nameOf(y)}p", formulaOf(term("where", leaf(name), leaf(1.0), leaf(0.0))))]
    fold = Fold("sum" if count else how, name, axes)
    return Reading(x.shape, {nameOf(x): (x, aligned(x, x.ndim))}, lines, [(y, fold, own)], count)


def isFolded(function: Any, x: Value, y: Value) -> bool:
    """Whether numbers of these dtypes can be folded: float32, or truths that are joined or counted."""
    if x.dtype == bool:
        return function in TRUTHS if y.dtype == bool else function is np.sum and y.dtype == np.int64 and x.size < EXACT
    return x.dtype == y.dtype == np.float32 and function not in TRUTHS


class Fuser:
    """Takes the calls of a step in order and gives the steps that they become, calls and groups.

    Before a group is closed, calls further on that fit into it and need nothing that is still to come are taken too.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls = list(calls)
        self.steps: list[Any] = []
        self.open: list[Group] = []
        self.count = 0
        self.taken: set[int] = set()
        self.known: set[int] = set()
        self.heavy: set[int] = set()
        self.readings: dict[int, Reading | None] = {}
        self.barriers = [*(i for i, call in enumerate(self.calls) if call.kind in BARRIERS), len(self.calls)]
        self.readers: dict[int, list[int]] = {}
        for i, call in enumerate(self.calls):
            for v in call.values():
                self.readers.setdefault(v.root.number, []).append(i)

    def run(self) -> list[Any]:
        for i in range(len(self.calls)):
            if i not in self.taken:
                self.count = i
                self.take(i)
        for group in list(self.open):
            self.close(group)
        return self.steps

    def done(self, i: int) -> None:
        """Note that a call has its place."""
        self.taken.add(i)
        self.known.update(y.root.number for y in self.calls[i].outs if y is not None)

    def read(self, i: int) -> Reading | None:
        if i not in self.readings:
            self.readings[i] = reading(self.calls[i])
        return self.readings[i]

    def take(self, i: int) -> None:
        call = self.calls[i]
        if call.kind == "view":
            self.steps.append(call)
            self.done(i)
            return
        read = self.read(i)
        if read is None:
            isBarrier = call.kind in BARRIERS
            for group in [g for g in self.open if isBarrier or any(v.root.number in g.made for v in call.values())]:
                self.close(group)
            if i in self.taken:
                return
            self.steps.append(call)
            if call.kind in ("product", "kernel"):
                self.heavy.update(y.number for y in call.outs if y is not None)
            self.done(i)
        else:
            self.place(i, read, call)
        for group in [g for g in self.open if self.count - g.last > PATIENCE]:
            self.close(group)

    def place(self, i: int, read: Reading, call: Call) -> None:
        """Put a call into the group that makes what it reads, one that reads the same, or a new one."""
        sources = [g for g in self.open if any(v.root.number in g.made for v, _ in read.given.values())]
        sources.sort(key=lambda g: math.prod(g.space))
        for group in sources[:-1]:
            self.close(group)
        if i in self.taken:
            return
        if sources:
            if self.join(sources[-1], read, call):
                self.done(i)
                return
            self.close(sources[-1])
            if i in self.taken:
                return
        else:
            for group in reversed(self.open):
                if self.shares(group, read) and self.join(group, read, call):
                    self.done(i)
                    return
        group = Group(read.space, self.count)
        if self.join(group, read, call):
            self.open.append(group)
        else:
            self.steps.append(call)
        self.done(i)

    def close(self, group: Group) -> None:
        """Take what is further on and fits, then put the group into the list."""
        self.open.remove(group)
        isTail = any(v.number in self.heavy and v.shape == group.space for v, _ in group.loads.values())
        end = self.barriers[bisect_left(self.barriers, self.count)]
        end = min(end, self.count + AHEAD)
        tried: set[int] = set()
        while True:
            ahead = sorted({r for n in group.made for r in self.readers.get(n, ())} - self.taken - tried)
            i = next((r for r in ahead if r < end), None)
            if i is None:
                break
            tried.add(i)
            call, read = self.calls[i], None
            if call.kind == "view":
                if self.ready(call, group):
                    self.steps.append(call)
                    self.done(i)
                    tried.clear()
                continue
            if isTail and call.kind == "reduce" and not group.folds:
                continue
            read = self.read(i)
            if read is not None and self.ready(call, group) and self.isLast(i) and self.join(group, read, call):
                self.done(i)
                tried.clear()
        self.steps.append(group)

    def ready(self, call: Call, group: Group) -> bool:
        """Whether all that a call reads is there, or in this group."""
        for v in call.values():
            root = v.root
            if root.number not in group.made and root.role == "made" and root.number not in self.known:
                return False
            if any(root.number in g.made for g in self.open):
                return False
        return True

    def isLast(self, i: int) -> bool:
        """Whether all others have read what an update writes over."""
        call = self.calls[i]
        if call.place.phase != "update":
            return True
        old = [v.root.number for v in call.values() if v.root.role in ("param", "state")]
        return all(r in self.taken for n in old for r in self.readers[n] if r < i)

    def shares(self, group: Group, read: Reading) -> bool:
        """Whether a group reads the same memory over the same space."""
        known = {v.number for v, _ in group.loads.values() if v.size == math.prod(group.space)}
        return read.space == group.space and any(v.number in known for v, _ in read.given.values())

    def join(self, group: Group, read: Reading, call: Call) -> bool:
        """Add a call to a group, if it fits."""
        places = {n: group.place(v) for n, (v, _) in read.given.items()}
        if any(p is None and v.root.number in group.made for (v, _), p in zip(read.given.values(), places.values())):
            return False
        axes = axesOf(group, read, places)
        if axes is None:
            return False
        over = frozenset[int]().union(*[group.folded[p[0].number] for p in places.values() if p])
        if over & {a for a in axes if a is not None} and not group.isShort(over):
            return False

        def move(own: Axes) -> Axes:
            return tuple([None if a is None else axes[a] for a in own])

        loads = {n: (v, move(own)) for n, (v, own) in read.given.items() if places[n] is None}
        if len(group.loads | loads) + len(group.made) + len(read.results) > MOST:
            return False
        names = {n: nameOf(p[0]) for n, p in places.items() if p and nameOf(p[0]) != n}
        names |= {f"axis{a}": f"axis{b}" for a, b in enumerate(axes) if a != b and b is not None}
        lines = [(n, renamed(line, names)) for n, line in read.lines]
        made = []
        for y, line, own in read.results:
            if isinstance(line, Fold):
                chosen = frozenset(a for a in (axes[i] for i in line.axes) if a is not None)
                fold = Fold(line.how, names.get(line.of, line.of), chosen)
                if not self.fits(group, fold, read, axes):
                    return False
                after = ("/", float(read.count)) if read.count else (">", 0.0) if y.dtype == bool else None
                total = f"{nameOf(y)}s" if after else nameOf(y)
                lines.append((total, fold))
                if after:
                    lines.append((nameOf(y), formulaOf(term(after[0], leaf(total), leaf(after[1])))))
                made.append((y, move(own), over | chosen))
            else:
                lines.append((nameOf(y), renamed(line, names)))
                made.append((y, move(own), over))
        group.lines += lines
        group.loads |= loads
        for y, own, folded in made:
            group.made[y.number], group.axes[y.number], group.folded[y.number] = y, own, folded
        group.calls.append(call)
        group.last = self.count
        return True

    def fits(self, group: Group, fold: Fold, read: Reading, axes: Axes) -> bool:
        """Whether a group may have this fold beside those that it has: of all that the space holds, over its rows or
        its columns."""
        rest = frozenset(a for a, n in enumerate(group.space) if n > 1)
        if not fold.axes or not rest <= set(axes):
            return False
        if group.inner is None:
            group.inner = innerAxis(group, read)
        sets = [s & rest for s in group.folds if s & rest != fold.axes & rest]
        if not sets:
            return True
        rows, columns = (sets[0], fold.axes & rest) if group.inner in sets[0] else (fold.axes & rest, sets[0])
        isWhole = rows | columns == rest and not rows & columns
        isLast = not any(group.folded[n] & columns for n, axes in group.axes.items() if rest <= set(axes))
        return len(set(sets)) == 1 and group.inner in rows and isWhole and isLast and group.spread(rows) <= CHUNK


def renamed(line: Formula, names: dict[str, str]) -> Formula:
    """The formula with some of its names replaced, all at once."""
    chosen = {leaf(n): leaf(names[n]) for n in line.names if n in names}
    return formulaOf(rebuild(line.term, chosen, term)) if chosen else line


def innerAxis(group: Group, read: Reading) -> int:
    """The axis along which the largest operand is contiguous."""
    operands = [*group.loads.values(), *((v, group.axes[n]) for n, v in group.made.items())]
    if not operands:
        operands = list(read.given.values())
    value, axes = max(operands, key=lambda o: o[0].size)
    steps = [(s, -a) for s, n, a in zip(value.strides, value.shape, axes) if a is not None and n > 1 and s]
    return -min(steps)[1] if steps else len(group.space) - 1


def axesOf(group: Group, read: Reading, places: dict[str, Any]) -> Axes | None:
    """Which axis of the group's space each axis of a call's space runs along; None if that cannot be told."""
    rank = len(read.space)
    if not group.calls:
        return tuple(range(rank))
    found: list[int | None] = [None] * rank
    for name, place in places.items():
        for spot, a in zip(read.given[name][1], place[1] if place else ()):
            if spot is not None and a is not None:
                if found[spot] not in (None, a):
                    return None
                found[spot] = a
    if read.space == group.space and all(a is None or a == i for i, a in enumerate(found)):
        return tuple(range(rank))
    for n, a in zip(read.space, found):
        if n > 1 and (a is None or group.space[a] != n):
            return None
    chosen = [a for a in found if a is not None]
    return tuple(found) if len(set(chosen)) == len(chosen) else None
