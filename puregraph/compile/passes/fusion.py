"""Fuse: neighbouring pointwise calls and reductions of a step become groups, each one pass over memory.

Calls are taken in order. One that reads what an open group makes joins it where that is possible, else the group is
closed, which puts it into the list of steps at that point. A group is a space of indices with formulas and folds over
it (`nest`); what others read of it is stored, all else lives in registers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.ir.value import Call, Value, fill
from puregraph.core.tracer import astype
from puregraph.formula import Formula
from puregraph.formula.expr import REMEMBERED, Term, leaf, rebuild, term
from puregraph.formula.formula import formulaOf, formulasOf
from puregraph.formula.interpreter import Interpreter
from puregraph.formula.loopnest import Reduce
from puregraph.formula.optable import TABLE
from puregraph.kernels.scatter import putClass, takeClass
from puregraph.native.ops.nestcode import CHUNK, isColumn

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
FLOAT, BOOL = np.dtype(np.float32), np.dtype(bool)
KINDS = {FLOAT: "f32", BOOL: "bool", np.dtype(np.int64): "i64", np.dtype(np.int32): "i32"}
LONE = {**KINDS, np.dtype(np.float64): "f64"}  # of what is one number


class Group:
    """A space, and what is computed over it: `lines` for `LoopNest`, by names that `names` and `loads` give Values.

    Names only count what comes in, so that groups that do the same have the same lines.
    `axes` says for each made Value which axis of the space each of its own axes runs along (None: length one).
    """

    kind = "f32"  # what it computes in

    def __init__(self, space: tuple[int, ...], begun: int):
        self.space, self.size, self.last = space, math.prod(space), begun
        self.lines: list[tuple[str, Any]] = []
        self.loads: dict[str, tuple[Value, Axes]] = {}
        self.known: dict[tuple[int, Axes], str] = {}  # the names of loads, by number and axes
        self.made: dict[int, Value] = {}
        self.names: dict[int, str] = {}  # of made Values, by number
        self.axes: dict[int, Axes] = {}
        self.folded: dict[int, frozenset[int]] = {}  # over which axes a made Value, or what it is made of, is folded
        self.folds: list[frozenset[int]] = []  # over which axes there are folds, each once
        self.calls: list[Call] = []
        self.inner: int | None = None

    def __repr__(self) -> str:
        return f"<group over {self.space}: {'; '.join(f'{n} = {x}' for n, x in self.lines)}>"

    def load(self, value: Value, axes: Axes) -> str:
        """The name of a Value that is read along these axes."""
        name = self.known.setdefault((value.number, axes), f"x{len(self.known)}")
        self.loads[name] = value, axes
        return name

    def add(self, line: Any) -> str:
        """The name of one more line."""
        if isinstance(line, Reduce) and line.axes not in self.folds:
            self.folds.append(line.axes)
        name = f"y{len(self.lines)}"
        self.lines.append((name, line))
        return name

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

    def beside(self) -> frozenset[int]:
        """The axes of folds that are complete when all rows are done; nothing made of them then runs along them."""
        long = frozenset(a for a, n in enumerate(self.space) if n > 1)
        sets = {s & long for s in self.folds if s & long}
        return next((s for s in sets if self.inner not in s), frozenset()) if len(sets) > 1 else frozenset()

    def isShort(self, axes: frozenset[int]) -> bool:
        """Whether what is folded over these axes is known while the same place is still at hand."""
        long = self.spread(axes)
        if self.inner in axes:
            return long <= 4 * CHUNK or self.size >= 64 * long
        return isColumn(long, self.size)


class NestLines(NamedTuple):
    """A call as lines of a nest over a space of its own.

    `given` has the Values that it reads, by the names that its lines have for them, each with the axes of the space
    that its own run along; `lines` are those before the results, which are Values with a formula or Reduce each, and
    again their axes. A fold that is divided by `count` at its end is a mean.
    """

    space: tuple[int, ...]
    given: dict[str, tuple[Value, Axes]]
    lines: list[tuple[str, Formula]]
    results: list[tuple[Value, Any, Axes]]
    count: int = 0


def aligned(value: Value, rank: int) -> Axes:
    """The axes that an operand's run along where it broadcasts."""
    first = rank - len(value.shape)
    return tuple([None if n == 1 else first + i for i, n in enumerate(value.shape)])


def reading(call: Call) -> NestLines | None:
    """A call as formulas or a fold; None if it is neither, or not of numbers that native code computes with."""
    found = described(call, isFolded)
    if found is None:
        return None
    values = [v for v, _ in found.given.values()]
    results = [y for y, _, _ in found.results]
    makes = isFoldMade if call.kind == "reduce" else isMade
    if not (all(map(isRead, values)) and all(map(makes, results))):
        return None
    return found if values or results[0].dtype == FLOAT else None


def described(call: Call, isFolded: Callable[[Any, Value, Value], bool]) -> NestLines | None:
    """A call as formulas or a fold, whatever its numbers are."""
    if call.kind == "pointwise" or call.kind == "fill":
        return pointwise(call)
    if call.kind == "reduce":
        return folding(call, isFolded)
    return byClass(call) if call.function is takeClass or call.function is putClass else None


def isRead(x: Value) -> bool:
    """Whether native code reads such numbers."""
    isExact = x.dtype.kind != "i" or max(x.shape, default=0) < EXACT
    return x.dtype in (LONE if x.size == 1 else KINDS) and x.role != "object" and isExact


def isMade(y: Value) -> bool:
    """Whether native code makes such numbers."""
    return (y.dtype == FLOAT or y.dtype == BOOL) and y.size > 0


def isFoldMade(y: Value) -> bool:
    """Whether native code makes such numbers as a fold."""
    return y.dtype in KINDS and y.size > 0


def pointwise(call: Call) -> NestLines | None:
    """Formulas over the space of their results, which must be one."""
    found = formulas(call)
    if found is None or len({y.shape for y in call.outs}) > 1:
        return None
    space, rank = call.outs[0].shape, len(call.outs[0].shape)
    given = {n: (x, aligned(x, rank)) for n, x in found[0].items()}
    return NestLines(space, given, [], [(y, f, aligned(y, rank)) for y, f in zip(call.outs, found[1])])


def byClass(call: Call) -> NestLines | None:
    """One number of each row, or put into each row, by its class."""
    x, labels = call.arguments[:2]
    (y,) = call.outs
    line = Formula("where(axis1 == k, x, 0)")
    if call.function is takeClass:
        own = tuple([a for a in range(x.ndim) if a != 1])
        given = {"x": (x, aligned(x, x.ndim)), "k": (labels, own)}
        return NestLines(x.shape, given, [("p", line)], [(y, Reduce("sum", "p", frozenset([1])), own)])
    own = tuple([a for a in range(y.ndim) if a != 1])
    return NestLines(y.shape, {"x": (x, own), "k": (labels, own)}, [], [(y, line, aligned(y, y.ndim))])


def formulas(call: Call) -> tuple[dict[str, Value], list[Formula]] | None:
    """The Values that a pointwise call reads, by name, and the formulas of its results; None if it has none."""
    written = formulasFor(call)
    if written is None:
        return None
    names, found = written
    given, numbers = {}, {}
    for name, a in zip(names, call.arguments):
        number = numberOf(a)
        if number is not None:
            numbers[name] = leaf(number)
        elif type(a) is Value:
            given[name] = a
        else:
            return None
    return given, [filled(f, numbers) for f in found] if numbers else found


def formulasFor(call: Call) -> tuple[Sequence[str], list[Formula]] | None:
    """The formulas of a pointwise call's results, and the names of its arguments in them."""
    function, options = call.function, call.options
    if isinstance(function, Interpreter):
        return function.names, formulasOf(function)
    if options.keys() - {"copy"} or len(call.outs) != 1:
        return None
    if function is fill:
        return "a", [Formula("a")]
    if function is astype:
        (y,), x = call.outs, call.arguments[0]
        isCast = type(x) is Value and (y.dtype != BOOL or x.dtype == BOOL)
        return ("a", [Formula("a")]) if isCast else None
    op = "where" if function is np.where else UFUNCS.get(function)
    if op is None or len(call.arguments) != len(TABLE[op].pulls):
        return None
    if op in ("and", "or", "not") and any(type(a) is Value and a.dtype != BOOL for a in call.arguments):
        return None
    return operation(op)


@cache
def operation(op: str) -> tuple[str, list[Formula]]:
    """The formula of a function of the table, and the names of its arguments."""
    names = "abc"[: len(TABLE[op].pulls)]
    return names, [formulaOf(term(op, *map(leaf, names)))]


def numberOf(a: Any) -> float | None:
    """The number that an argument always is; None if it may be another, or is nan."""
    if type(a) is Value:
        isKnown = a.role == "constant" and a.shape == () and a.dtype.kind in "fiub"
        return float(a.source) if isKnown else None
    if isinstance(a, (bool, int, float, np.integer, np.floating, np.bool_)) and not math.isnan(a):
        return float(a)
    return None


def folding(call: Call, isFolded: Callable[[Any, Value, Value], bool]) -> NestLines | None:
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
    name, lines = "x", []
    if x.dtype == BOOL:
        name, lines = "p", [("p", Formula("where(x, 1.0, 0.0)"))]
    fold = Reduce("sum" if count else how, name, axes)
    return NestLines(x.shape, {"x": (x, aligned(x, x.ndim))}, lines, [(y, fold, own)], count)


def isFolded(function: Any, x: Value, y: Value) -> bool:
    """Whether numbers of these dtypes can be folded: float32, or truths that are joined or counted."""
    if x.dtype == BOOL:
        return function in TRUTHS if y.dtype == BOOL else function is np.sum and y.dtype == np.int64 and x.size < EXACT
    return x.dtype == y.dtype == FLOAT and function not in TRUTHS


class Fuser:
    """Takes the calls of a step in order and gives the steps that they become, calls and groups.

    Before a group is closed, calls further on that fit into it and need nothing that is still to come are taken too.
    """

    reading = staticmethod(reading)

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls = list(calls)
        self.reads = [[v.root for v in call.values()] for call in self.calls]
        self.steps: list[Any] = []
        self.open: list[Group] = []
        self.makers: dict[int, Group] = {}  # which of these makes a Value
        self.count = 0
        self.taken: set[int] = set()
        self.known: set[int] = set()
        self.heavy: set[int] = set()
        self.readings: dict[int, NestLines | None] = {}
        self.barriers = [*(i for i, call in enumerate(self.calls) if call.kind in BARRIERS), len(self.calls)]
        self.readers: dict[int, list[int]] = {}
        for i, roots in enumerate(self.reads):
            for v in roots:
                self.readers.setdefault(v.number, []).append(i)

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

    def read(self, i: int) -> NestLines | None:
        if i not in self.readings:
            self.readings[i] = self.reading(self.calls[i])
        return self.readings[i]

    def take(self, i: int) -> None:
        call = self.calls[i]
        if call.kind == "view":
            self.steps.append(call)
            self.done(i)
            return
        read = self.read(i)
        if read is None:
            for group in list(self.open) if call.kind in BARRIERS else self.sources(i):
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

    def sources(self, i: int) -> list[Group]:
        """The open groups that make what a call reads, in the order in which they were opened."""
        found = {id(g): g for v in self.reads[i] if (g := self.makers.get(v.number))}
        return list(found.values()) if len(found) < 2 else [g for g in self.open if id(g) in found]

    def place(self, i: int, read: NestLines, call: Call) -> None:
        """Put a call into the group that makes what it reads, one that reads the same, or a new one."""
        sources = sorted(self.sources(i), key=lambda g: g.size)
        for group in sources[:-1]:
            self.close(group)
        if i in self.taken:
            return
        if sources:
            if self.enter(sources[-1], i, read):
                return
            self.close(sources[-1])
            if i in self.taken:
                return
        else:
            for group in reversed(self.open):
                if self.shares(group, read) and self.enter(group, i, read):
                    return
        group = Group(read.space, self.count)
        if self.enter(group, i, read):
            self.open.append(group)
        else:
            self.steps.append(call)
            self.done(i)

    def enter(self, group: Group, i: int, read: NestLines) -> bool:
        """Put a call into an open group, if it fits."""
        if not self.join(group, read, self.calls[i]):
            return False
        self.makers.update((y.number, group) for y, _, _ in read.results)
        self.done(i)
        return True

    def close(self, group: Group) -> None:
        """Take what is further on and fits, then put the group into the list."""
        self.open.remove(group)
        for number in group.made:
            del self.makers[number]
        isTail = any(v.number in self.heavy and v.shape == group.space for v, _ in group.loads.values())
        end = self.barriers[bisect_left(self.barriers, self.count)]
        end = min(end, self.count + AHEAD)
        tried: set[int] = set()
        while True:
            readers = {r for n in group.made for r in self.readers.get(n, ()) if r < end}
            ahead = readers - self.taken - tried
            if not ahead:
                break
            i = min(ahead)
            tried.add(i)
            call, read = self.calls[i], None
            if call.kind == "view":
                if self.ready(i, group):
                    self.steps.append(call)
                    self.done(i)
                    tried.clear()
                continue
            if isTail and call.kind == "reduce" and not group.folds:
                continue
            read = self.read(i)
            if read is not None and self.ready(i, group) and self.isLast(i) and self.join(group, read, call):
                self.done(i)
                tried.clear()
        self.steps.append(group)

    def ready(self, i: int, group: Group) -> bool:
        """Whether all that a call reads is there, or in this group."""
        for v in self.reads[i]:
            isThere = v.role != "made" or v.number in group.made or v.number in self.known
            if not isThere or v.number in self.makers:
                return False
        return True

    def isLast(self, i: int) -> bool:
        """Whether all others have read what an update writes over."""
        if self.calls[i].place.phase != "update":
            return True
        old = {v.number for v in self.reads[i] if v.role in ("param", "state")}
        if any(v.root.number in old for group in self.open for v, _ in group.loads.values()):
            return False  # what joined an open group has its place, but comes later
        return all(r in self.taken for n in old for r in self.readers[n] if r < i)

    def shares(self, group: Group, read: NestLines) -> bool:
        """Whether a group reads the same memory over the same space."""
        if read.space != group.space:
            return False
        whole = {v.number for v, _ in group.loads.values() if v.size == group.size}
        return any(v.number in whole for v, _ in read.given.values())

    def join(self, group: Group, read: NestLines, call: Call) -> bool:
        """Add a call to a group, if it fits."""
        places = {}
        for n, (v, _) in read.given.items():
            places[n] = group.place(v)
            if places[n] is None and v.root.number in group.made:
                return False
        axes = axesOf(group, read, places)
        if axes is None:
            return False
        over = frozenset[int]()
        if group.folds:
            over = over.union(*[group.folded[p[0].number] for p in places.values() if p])
        if not over.isdisjoint(axes) and not group.isShort(over):
            return False
        if over and over & (late := group.beside()) and not late.isdisjoint(axes):
            return False

        def move(own: Axes) -> Axes:
            return tuple([None if a is None else axes[a] for a in own])

        def chosen(fold: Reduce) -> frozenset[int]:
            return frozenset([a for a in (axes[i] for i in fold.axes) if a is not None])

        loads = {n: (v, move(own)) for n, (v, own) in read.given.items() if places[n] is None}
        new = {(v.number, own) for v, own in loads.values()} - group.known.keys()
        if len(group.loads) + len(new) + len(group.made) + len(read.results) > MOST:
            return False
        folds = [x for _, x, _ in read.results if isinstance(x, Reduce)]
        if not all(self.fits(group, chosen(x), read, axes) for x in folds):
            return False
        names: dict[str, Any] = {f"axis{a}": 0 if b is None else f"axis{b}" for a, b in enumerate(axes) if a != b}
        names |= {n: group.names[p[0].number] if p else group.load(*loads[n]) for n, p in places.items()}
        for n, line in read.lines:
            names[n] = group.add(renamed(line, names))
        for y, line, own in read.results:
            if isinstance(line, Reduce):
                folded = over | chosen(line)
                name = group.add(Reduce(line.how, names[line.of], chosen(line)))
                after = ("/", float(read.count)) if read.count else (">", 0.0) if y.dtype == BOOL else None
                if after:
                    name = group.add(formulaOf(term(after[0], leaf(name), leaf(after[1]))))
            else:
                folded, name = over, group.add(renamed(line, names))
            group.made[y.number], group.names[y.number] = y, name
            group.axes[y.number], group.folded[y.number] = move(own), folded
        group.calls.append(call)
        group.last = self.count
        return True

    def fits(self, group: Group, over: frozenset[int], read: NestLines, axes: Axes) -> bool:
        """Whether a group may have a fold over these axes beside those that it has: of all that the space holds, over
        its rows or its columns."""
        rest = frozenset(a for a, n in enumerate(group.space) if n > 1)
        if not over or not rest <= set(axes):
            return False
        if group.inner is None:
            group.inner = innerAxis(group, read)
        sets = [s & rest for s in group.folds if s & rest != over & rest]
        if not sets:
            return True
        rows, columns = (sets[0], over & rest) if group.inner in sets[0] else (over & rest, sets[0])
        isWhole = rows | columns == rest and not rows & columns
        isLast = not any(group.folded[n] & columns and columns & set(own) for n, own in group.axes.items())
        return len(set(sets)) == 1 and group.inner in rows and isWhole and isLast and group.spread(rows) <= CHUNK


def renamed(line: Formula, names: Mapping[str, Any]) -> Formula:
    """The formula with some of its names replaced by others, or by numbers, all at once."""
    return withNames(line, tuple([names.get(n, n) for n in line.names]))


@lru_cache(maxsize=REMEMBERED)
def withNames(line: Formula, names: tuple[Any, ...]) -> Formula:
    """The formula with these names in place of its own; one that is known is found at once."""
    return filled(line, dict(zip(line.names, map(leaf, names))))


def filled(line: Formula, parts: Mapping[str, Term]) -> Formula:
    """The formula with terms in place of some of its names."""
    return formulaOf(rebuild(line.term, {leaf(n): t for n, t in parts.items()}, term))


def innerAxis(group: Group, read: NestLines) -> int:
    """The axis along which the largest operand is contiguous."""
    operands = [*group.loads.values(), *((v, group.axes[n]) for n, v in group.made.items())]
    if not operands:
        operands = list(read.given.values())
    value, axes = max(operands, key=lambda o: o[0].size)
    steps = [(s, -a) for s, n, a in zip(value.strides, value.shape, axes) if a is not None and n > 1 and s]
    return -min(steps)[1] if steps else len(group.space) - 1


def axesOf(group: Group, read: NestLines, places: dict[str, Any]) -> Axes | None:
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
