"""Nest: pointwise formulas and reductions over one space of indices, as one pass over memory.

    Nest(
        space=(n, c),
        loads={"x": Operand("f32", x, (c, 1))},
        lines=(("m", Fold("max", "x", {1})), ("u", Formula("exp(x - m)")), ("s", Fold("sum", "u", {1})),
               ("y", Formula("u / s"))),
        stores={"y": Operand("f32", y, (c, 1))},
    )

is a softmax: each row is read from memory once. A line is a formula of what stands above it, or a Fold of it over some
axes. Operands have a stride in numbers for each axis; 0 repeats them. Of the axes one is taken in vectors, that along
which memory is contiguous; which of the others are done by different tasks follows from what is folded:

*rows*     the contiguous axis is folded, or nothing is: a task does some rows, each in phases, one after each fold
*columns*  other axes are folded: a task does a block of columns; sums stay in registers while the rows go by

A fold over many numbers with few results is done in parts that a second nest folds, in a fixed order: results never
depend on how many threads there are. A nest may fold over the rows and, at its end, over the columns too (the gradient
of a normalisation and of its scale): each task keeps sums over its own rows beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

from puregraph.formula import Formula
from puregraph.native import machine, maths
from puregraph.native.code import Code, Pointer, Type, Value, Variable
from puregraph.native.work import Work
from puregraph.terms import walk

PART = 512  # rows that one sum runs over before it is written down
CHUNK = 16384  # numbers that a task takes of what is only mapped
ROWS = 8192  # numbers that make the rows of a task worth it
WIDE = 4  # vectors of columns in a block
NEAR = 1 << 14  # numbers of a row that are kept near while it is done in phases
STARTS = {"sum": 0.0, "max": float("-inf"), "min": float("inf"), "prod": 1.0}
STORED = {"f32": "f32", "f64": "f64", "i64": "i64", "i32": "i32", "bool": "i8"}


class Operand(NamedTuple):
    """Numbers in memory: their kind, where they are, and how many of them lie between neighbours along each axis."""

    kind: str
    what: Any
    strides: tuple[int, ...]


class Fold(NamedTuple):
    """sum, max, min or prod of a line or operand over some axes."""

    how: str
    of: str
    axes: frozenset[int]


Line = tuple[str, "Formula | Fold"]


class Nest(NamedTuple):
    """Lines over a space. A name "axis0" is the index along axis 0.

    `ragged` is (axis, whole): axis 0 counts pieces of that axis, and the last one has only what is left of `whole`.
    `beside` is how many rows a task does, where it keeps folds over them; such folds are stored task by task.
    `last` is the axis to be taken in vectors; None: that along which the largest operand is contiguous.
    """

    space: tuple[int, ...]
    loads: Mapping[str, Operand]
    lines: tuple[Line, ...]
    stores: Mapping[str, Operand]
    kind: str = "f32"
    ragged: tuple[int, int] | None = None
    beside: int = 0
    last: int | None = None


def works(nest: Nest, scratch: Callable[[int], Any]) -> list[Work]:
    """The steps that compute a nest; `scratch` gives memory for so many numbers of its kind, for parts of folds.

    Raises    ValueError for folds that do not fit in one nest
    """
    nest = collapsed(ordered(nest))
    inner = len(nest.space) - 1
    sets = foldSets(nest)
    if len(sets) > 2:
        raise ValueError(f"folds over {len(sets)} sets of axes do not fit in one nest")
    if not sets:
        cut = chunked(nest, 0, CHUNK) if inner == 0 and nest.space[0] > CHUNK else nest
        return [rowWork(cut, frozenset([len(cut.space) - 1]))]
    axes = next((each for each in sets if inner in each), sets[0])
    long = prod(nest.space[a] for a in axes)
    if len(sets) == 2:
        one, two = besides(nest, axes, scratch)
        return [rowWork(one, axes), *works(two, scratch)]
    if inner in axes and (long <= 4 * CHUNK or prod(nest.space) >= 64 * long):
        return [rowWork(nest, axes)]
    if inner not in axes and long <= 2 * PART:
        return [columnWork(nest, axes)]
    one, two = parted(nest, axes, CHUNK if inner in axes else PART, scratch)
    return [
        rowWork(one, foldSets(one)[0]) if inner in axes else columnWork(one, foldSets(one)[0]),
        *works(two, scratch),
    ]


def foldSets(nest: Nest) -> list[frozenset[int]]:
    """The sets of axes that are folded, each once."""
    return list(dict.fromkeys(x.axes for _, x in nest.lines if isinstance(x, Fold)))


# Shaping ------------------------------------------------------------------------------------------------------------


def ordered(nest: Nest) -> Nest:
    """The axes in the order in which the largest operand lies in memory, those of length one left out."""
    if not nest.space:
        return ordered(rearranged(nest._replace(space=(1,), loads=lone(nest.loads), stores=lone(nest.stores)), [[0]]))
    operands = [*nest.stores.values(), *nest.loads.values()]
    largest = max(operands, key=lambda o: prod(n for n, s in zip(nest.space, o.strides) if s)).strides
    keep = [a for a, n in enumerate(nest.space) if n != 1] or [0]
    order = sorted(keep, key=lambda a: (a == nest.last, largest[a] == 0, -abs(largest[a]), a))
    return rearranged(nest._replace(last=None), [[a] for a in order])


def lone(operands: Mapping[str, Operand]) -> dict[str, Operand]:
    """Operands of a space without axes, for one of length one."""
    return {k: o._replace(strides=(0,)) for k, o in operands.items()}


def collapsed(nest: Nest) -> Nest:
    """Neighbouring axes as one, where that is all the same to every operand and fold."""
    named = {int(n[4:]) for _, x in nest.lines if isinstance(x, Formula) for n in x.names if isAxis(n)}
    operands = [*nest.loads.values(), *nest.stores.values()]
    groups = [[0]]
    for a in range(1, len(nest.space)):
        before = a - 1
        same = all(o.strides[before] == o.strides[a] * nest.space[a] for o in operands)
        if same and not named & {a, before} and all((a in s) == (before in s) for s in foldSets(nest)):
            groups[-1].append(a)
        else:
            groups.append([a])
    return rearranged(nest, groups)


def rearranged(nest: Nest, groups: list[list[int]]) -> Nest:
    """The nest with new axes, each made of some of its own; an axis in no group has length one and goes."""
    place = {a: i for i, group in enumerate(groups) for a in group}

    def line(x: Formula | Fold) -> Formula | Fold:
        if isinstance(x, Fold):
            axes = frozenset(place[a] for a in x.axes if a in place)
            return x._replace(axes=axes) if axes else Formula(x.of)
        indices = [n for n in x.names if isAxis(n)]
        return x.put(**{n: f"axis{place[int(n[4:])]}" if int(n[4:]) in place else 0 for n in indices}) if indices else x

    def move(o: Operand) -> Operand:
        return o._replace(strides=tuple(o.strides[group[-1]] for group in groups))

    return nest._replace(
        space=tuple(prod(nest.space[a] for a in group) for group in groups),
        loads={k: move(o) for k, o in nest.loads.items()},
        stores={k: move(o) for k, o in nest.stores.items()},
        lines=tuple((n, line(x)) for n, x in nest.lines),
    )


def isAxis(name: str) -> bool:
    """Whether a name stands for the index along an axis."""
    return name.startswith("axis") and name[4:].isdigit()


def chunked(nest: Nest, axis: int, size: int) -> Nest:
    """The nest with an axis cut into pieces: axis 0 is now the number of the piece."""
    whole = nest.space[axis]
    pieces = -(-whole // size)

    def cut(o: Operand) -> Operand:
        return o._replace(strides=(o.strides[axis] * size, *o.strides))

    def line(x: Formula | Fold) -> Formula | Fold:
        if isinstance(x, Fold):
            return x._replace(axes=frozenset(a + 1 for a in x.axes))
        moved = {n: f"axis{int(n[4:]) + 1}" for n in x.names if isAxis(n) and int(n[4:]) != axis}
        moved |= {f"axis{axis}": f"(axis0 * {size} + axis{axis + 1})"} if f"axis{axis}" in x.names else {}
        return x.put(**moved) if moved else x

    return nest._replace(
        space=(pieces, *(size if a == axis else n for a, n in enumerate(nest.space))),
        loads={k: cut(o) for k, o in nest.loads.items()},
        stores={k: cut(o) for k, o in nest.stores.items()},
        lines=tuple((n, line(x)) for n, x in nest.lines),
        ragged=(axis + 1, whole) if whole % size else None,
    )


def varying(nest: Nest, axes: frozenset[int]) -> dict[str, bool]:
    """For each name, whether it varies along the axes."""
    found = {k: any(o.strides[a] for a in axes) for k, o in nest.loads.items()}
    for name, x in nest.lines:
        if isinstance(x, Fold):
            found[name] = found[x.of] and not axes <= x.axes
        else:
            found[name] = any(found.get(n, isAxis(n) and int(n[4:]) in axes) for n in x.names)
    return found


def needed(nest: Nest, names: Iterable[str], known: Iterable[str] = ()) -> tuple[dict[str, Operand], tuple[Line, ...]]:
    """What must be loaded and computed for some names, when others are known."""
    wanted, known = set(names), set(known)
    lines = []
    for name, x in reversed(nest.lines):
        if name in wanted and name not in known:
            wanted |= {x.of} if isinstance(x, Fold) else set(x.names)
            lines.append((name, x))
    return {k: o for k, o in nest.loads.items() if k in wanted}, tuple(reversed(lines))


def compact(nest: Nest, lead: int, kept: Iterable[int], scratch: Callable[[int], Any]) -> tuple[Operand, int]:
    """Memory for `lead` times a number at each place of the kept axes, and how many places there are."""
    strides, step = [0] * len(nest.space), 1
    for a in sorted(kept, reverse=True):
        strides[a], step = step, step * nest.space[a]
    return Operand(nest.kind, scratch(lead * step), tuple(strides)), step


def parted(nest: Nest, axes: frozenset[int], size: int, scratch: Callable[[int], Any]) -> tuple[Nest, Nest]:
    """A nest that folds pieces of the first of the axes, and one that folds what these gave."""
    axis = min(axes)
    step = max(1, size * nest.space[axis] // prod(nest.space[a] for a in axes))
    folds = {n: x for n, x in nest.lines if isinstance(x, Fold)}
    varies = varying(nest, axes)
    kept = [a for a in range(len(nest.space)) if a not in axes]
    first = [n for n in nest.stores if varies[n]]
    loads, lines = needed(nest, [*folds, *first])
    if any(isinstance(x, Formula) and set(x.names) & folds.keys() for _, x in lines):
        raise ValueError("what follows a long fold does not fit in one nest with it")
    cut = chunked(nest._replace(loads=loads, lines=lines, stores={n: nest.stores[n] for n in first}), axis, step)
    return joined(nest, cut, folds, kept, cut.space[0], 0, scratch)


def besides(nest: Nest, rows: frozenset[int], scratch: Callable[[int], Any]) -> tuple[Nest, Nest]:
    """A nest over rows that keeps, for the rows of each task, what is folded over them; and one that folds that."""
    outer = frozenset(range(len(nest.space))) - rows
    folds = {n: x for n, x in nest.lines if isinstance(x, Fold) and x.axes != rows}
    if any(x.axes != outer for x in folds.values()):
        raise ValueError(f"folds over {sorted(rows)} and other axes than the rest do not fit in one nest")
    after = {n for n, known in varying(nest, outer).items() if not known}
    lines = needed(nest, [*folds, *(n for n in nest.stores if n not in after)])
    count = prod(nest.space[a] for a in outer)
    block = rowsEach(count, prod(nest.space[a] for a in rows))
    one = nest._replace(loads=lines[0], lines=lines[1], stores={n: o for n, o in nest.stores.items() if n not in after})
    one = one._replace(beside=block)
    lead = nest._replace(space=(-(-count // block), *nest.space))
    return joined(nest, one, folds, sorted(rows), lead.space[0], None, scratch)


def joined(
    nest: Nest, one: Nest, folds: dict[str, Fold], kept: list[int], pieces: int, front: int | None, scratch: Any
) -> tuple[Nest, Nest]:
    """The nest with parts of its folds stored, and the nest that folds the parts and goes on from there."""
    parts, seconds = {}, {}
    for n in folds:
        operand, count = compact(nest, pieces, kept, scratch)
        parts[n] = operand if front is None else operand._replace(strides=(count, *operand.strides))
        seconds[f"{n}Part"] = operand._replace(strides=(count, *operand.strides))
    later = [n for n in nest.stores if n not in one.stores]
    loads, lines = needed(nest, later, folds)

    def wide(o: Operand) -> Operand:
        return o._replace(strides=(0, *o.strides))

    def moved(x: Any) -> Any:
        names = {n: f"axis{int(n[4:]) + 1}" for n in x.names if isAxis(n)}
        return x.put(**names) if names else x

    two = Nest(
        (pieces, *(n if a in kept else 1 for a, n in enumerate(nest.space))),
        {**{k: wide(o) for k, o in loads.items()}, **seconds},
        (
            *((n, Fold(x.how, f"{n}Part", frozenset([0]))) for n, x in folds.items()),
            *((n, moved(x)) for n, x in lines),
        ),
        {n: wide(nest.stores[n]) for n in later},
        nest.kind,
    )
    return one._replace(stores={**one.stores, **parts}), two


def rowsEach(rows: int, cols: int) -> int:
    """How many rows make a task."""
    return max(1, min(rows, -(-ROWS // max(cols, 1))))


# Writing ------------------------------------------------------------------------------------------------------------

HEAVY = frozenset("exp exp2 expm1 log log1p log2 log10 tanh sigmoid erf erfc pow sin cos tan sinh cosh".split())


class Shape:
    """What the code of a nest depends on: everything but sizes, strides and addresses."""

    def __init__(self, nest: Nest, axes: frozenset[int]):
        self.nest, self.axes = nest, axes
        self.inner = len(nest.space) - 1
        self.loops = sorted(axes)
        self.outer = [a for a in range(len(nest.space)) if a not in axes]
        self.varies = varying(nest, axes)
        self.spread = {n: self.varies[n] or any(o.strides[a] for a in axes) for n, o in nest.stores.items()}
        self.phase = dict.fromkeys(nest.loads, 0)
        self.lines = dict(nest.lines)
        for name, x in nest.lines:
            before = self.phase[x.of] + (x.axes == axes) if isinstance(x, Fold) else None
            names = () if isinstance(x, Fold) else x.names
            self.phase[name] = max([self.phase.get(n, 0) for n in names], default=0) if before is None else before
        self.count = 1 + max([self.phase[n] for n in (*self.lines, *nest.stores)], default=0)
        self.beside = {n: x for n, x in nest.lines if isinstance(x, Fold) and x.axes != axes}
        self.folds = {n: x for n, x in nest.lines if isinstance(x, Fold) and x.axes == axes}
        self.operands = {
            **{f"l_{k}": o for k, o in nest.loads.items()},
            **{f"s_{k}": o for k, o in nest.stores.items()},
        }

    @property
    def key(self) -> str:
        """All of it as text."""
        operands = [
            (k, o.kind, tuple(1 if s == 1 and a == self.inner else bool(s) * 2 for a, s in enumerate(o.strides)))
            for k, o in self.operands.items()
        ]
        lines = [(n, x if isinstance(x, Fold) else str(x)) for n, x in self.nest.lines]
        text = [(n, (x.how, x.of, sorted(x.axes)) if isinstance(x, Fold) else x) for n, x in lines]
        ragged = self.nest.ragged and self.nest.ragged[0]
        return repr(
            (self.nest.kind, len(self.nest.space), sorted(self.axes), operands, text, ragged, bool(self.nest.beside))
        )

    def slots(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for k, o in self.operands.items():
            found[k] = o.what
            found |= {f"{k}_{a}": s for a, s in enumerate(o.strides) if s and not (s == 1 and a == self.inner)}
        found |= {f"n_{a}": n for a, n in enumerate(self.nest.space)}
        if self.nest.ragged:
            found["whole"] = self.nest.ragged[1]
        return found

    def at(self, phase: int) -> tuple[list[str], list[str], list[str]]:
        """The folds, the folds kept beside, and the stores of a phase of the rows."""
        stores = [n for n in self.nest.stores if self.spread[n] and n not in self.beside and self.phase[n] == phase]
        folds = [n for n, x in self.folds.items() if self.phase[x.of] == phase]
        return folds, [n for n, x in self.beside.items() if self.phase[x.of] == phase], stores


class Writer:
    """Writes the code of a nest."""

    def __init__(self, code: Code, shape: Shape):
        self.code, self.shape, self.nest = code, shape, shape.nest
        self.lanes = machine.lanes(8 if self.nest.kind == "f64" else 4)
        self.pointers: dict[str, Pointer] = {}
        self.strides: dict[tuple[str, int], Value | int] = {}
        for k, o in shape.operands.items():
            self.pointers[k] = code.pointer(k, STORED[o.kind])
            for a, s in enumerate(o.strides):
                if s:
                    self.strides[k, a] = 1 if s == 1 and a == shape.inner else code.integer(f"{k}_{a}")
        self.extents = [code.integer(f"n_{a}") for a in range(len(self.nest.space))]
        self.whole = code.integer("whole") if self.nest.ragged else None

    def offset(self, operand: str, indices: Mapping[int, Value]) -> Value | int:
        """How far a place is from the operand's start."""
        total: Value | int = 0
        for a, i in indices.items():
            if (operand, a) in self.strides:
                step = self.strides[operand, a]
                move = i if isinstance(step, int) else i * step
                total = move if isinstance(total, int) and total == 0 else total + move
        return total

    def extent(self, axis: int, indices: Mapping[int, Value]) -> Value:
        """The length of an axis, at these indices of those before it."""
        if self.nest.ragged and self.nest.ragged[0] == axis and self.whole is not None:
            return self.code.least(self.extents[axis], self.whole - indices[0] * self.extents[axis])
        return self.extents[axis]

    def read(self, name: str, indices: Mapping[int, Value], lanes: int, mask: Value | None) -> Value:
        """An operand at a place, or at `lanes` places along the last axis."""
        code, key = self.code, f"l_{name}"
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 0):
            found = pointer.load()
        elif isinstance(step, int):
            found = pointer.load(0, lanes, mask)
        else:
            found = pointer.gather(code.steps(lanes) * step, mask)
        kind = self.nest.loads[name].kind
        return found != 0 if kind == "bool" else code.convert(found, self.nest.kind)

    def write(self, name: str, value: Value, indices: Mapping[int, Value], lanes: int, mask: Value | None) -> None:
        code, key = self.code, f"s_{name}"
        stored = STORED[self.nest.stores[name].kind]
        if value.kind == "i1":
            value = code.convert(value, stored, signed=False)
        value = code.splat(code.convert(value, stored), lanes)
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 1):
            pointer.store(0, value, mask)
        elif isinstance(step, int):
            pointer.store(0, code.lane(value, 0))
        else:
            for i in range(lanes):
                if mask is None:
                    pointer.store(step * i, code.lane(value, i))
                else:
                    with code.when(code.lane(mask, i)):
                        pointer.store(step * i, code.lane(value, i))

    def join(self, how: str, a: Value, b: Value) -> Value:
        if how in ("max", "min"):
            return maths.EMIT["maximum" if how == "max" else "minimum"](self.code, a, b)
        return a + b if how == "sum" else a * b

    def start(self, how: str, lanes: int) -> Value:
        return self.code.constant(STARTS[how], Type(self.nest.kind, lanes))

    def dependencies(self, names: Iterable[str]) -> list[str]:
        """What does not vary along the loops, of what these names are made of."""
        shape, found, stack = self.shape, dict[str, None](), [*names]
        seen = set()
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in shape.varies and not shape.varies[name]:
                found[name] = None
            elif name in shape.lines:
                x = shape.lines[name]
                stack += [x.of] if isinstance(x, Fold) else x.names
        return list(found)


class Scope:
    """The values of a nest at one place, each computed once, when it is first asked for."""

    def __init__(
        self, writer: Writer, indices: Mapping[int, Value], lanes: int, mask: Value | None, outer: Scope | None
    ):
        self.writer, self.indices, self.lanes, self.mask, self.outer = writer, indices, lanes, mask, outer
        self.values: dict[str, Value] = {}

    def get(self, name: str) -> Value:
        if self.outer is not None and not self.writer.shape.varies.get(name, True):
            return self.outer.get(name)
        if name not in self.values:
            self.values[name] = self.make(name)
        return self.values[name]

    def make(self, name: str) -> Value:
        writer = self.writer
        code, kind = writer.code, writer.nest.kind
        if name in writer.nest.loads:
            return writer.read(name, self.indices, self.lanes, self.mask)
        if isAxis(name):
            axis = int(name[4:])
            index = self.indices[axis]
            if axis == writer.shape.inner and self.lanes > 1:
                index = code.steps(self.lanes) + index
            return code.convert(index, kind)
        line = writer.shape.lines[name]
        if isinstance(line, Fold):
            raise ValueError(f"{name} is wanted before it is complete")
        return maths.emit(code, line, {n: self.get(n) for n in line.names})


def rowWork(nest: Nest, axes: frozenset[int]) -> Work:
    """Rows of the folded axes, the last one in vectors: tasks are blocks of rows."""
    shape = Shape(nest, axes)
    rows = prod(nest.space[a] for a in shape.outer)
    length = prod(nest.space[a] for a in shape.loops)
    block = nest.beside or rowsEach(rows, length)
    near = 1 << max(length - 1, 15).bit_length() if len(shape.loops) == 1 and length <= NEAR else 0

    def write(code: Code) -> None:
        writeRows(Writer(code, shape), near)

    slots = {**shape.slots(), "rows": rows, "block": block}
    kept = near if saved(shape) else 0
    return Work(title(shape), f"rows {kept} {shape.key}", write, slots, -(-rows // block))


def saved(shape: Shape) -> list[str]:
    """What is costly to compute and wanted in later phases too."""
    found = []
    for name, x in shape.lines.items():
        if isinstance(x, Formula) and shape.varies[name] and HEAVY & {t.op for t in walk(x.term)}:
            readers = [n for n, y in shape.lines.items() if (y.of == name if isinstance(y, Fold) else name in y.names)]
            if any(shape.phase[n] - isinstance(shape.lines[n], Fold) > shape.phase[name] for n in readers):
                found.append(name)
    return found


def writeRows(writer: Writer, near: int) -> None:
    """Folds along the last axis: each task takes some rows, and sums a row in the lanes of a few vectors."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    rows, block = code.integer("rows"), code.integer("block")
    kept = {n: code.room(nest.kind, near + lanes) for n in saved(shape)} if near else {}
    unroll = 4 if len(shape.lines) <= 6 else 2
    first = code.task * block

    def inside(indices: dict[int, Value], body: Callable[[dict[int, Value], Value | None, int], None]) -> None:
        """The body along all folded axes: vectors along the last one, several at a time."""
        *outer, last = shape.loops

        def enter(depth: int, here: dict[int, Value]) -> None:
            if depth < len(outer):
                with code.loop(0, writer.extent(outer[depth], here)) as i:
                    enter(depth + 1, {**here, outer[depth]: i})
                return
            count = writer.extent(last, here)
            main = count // (lanes * unroll) * (lanes * unroll)
            with code.loop(0, main, lanes * unroll, unroll=1) as i:
                for u in range(unroll):
                    body({**here, last: i + u * lanes}, None, u)
            with code.loop(main, count, lanes, unroll=1) as i:
                body({**here, last: i}, code.mask(count - i, lanes), 0)

        enter(0, indices)

    def part(name: str, indices: dict[int, Value]) -> Pointer:
        key = f"s_{name}"
        size = prodOf([writer.extents[a] for a in shape.loops])
        return writer.pointers[key].at(code.task * size + writer.offset(key, {a: indices[a] for a in shape.loops}))

    def bodyOf(
        p: int, outer: Scope, sums: dict[str, list[Variable]], beside: list[str], stores: list[str]
    ) -> Callable[[dict[int, Value], Value | None, int], None]:
        """What a phase does at a vector: results are written, folds go on."""

        def body(at: dict[int, Value], mask: Value | None, u: int) -> None:
            scope = Scope(writer, at, lanes, mask, outer)
            column = at[shape.inner]
            for n, room in kept.items():
                if shape.phase[n] < p:
                    scope.values[n] = room.load(column, lanes)
            made = [scope.get(n) for n in stores]  # all, before any is written: to where an operand lies, perhaps
            for n, value in zip(stores, made):
                writer.write(n, value, at, lanes, mask)
            for n in sums:
                fold = shape.folds[n]
                value = code.splat(scope.get(fold.of), lanes)
                if mask is not None:
                    value = code.select(mask, value, writer.start(fold.how, lanes))
                sums[n][u].value = writer.join(fold.how, sums[n][u].value, value)
            for n in beside:
                fold, place = shape.beside[n], part(n, at)
                value = code.splat(scope.get(fold.of), lanes)
                place.store(0, writer.join(fold.how, place.load(0, lanes, mask), value), mask)
            for n, room in kept.items():
                if shape.phase[n] == p and n in scope.values:
                    room.store(column, scope.values[n])

        return body

    for name, x in shape.beside.items():
        inside({}, lambda at, mask, u, n=name, h=x.how: part(n, at).store(0, writer.start(h, lanes), mask))
    with code.loop(first, code.least(rows, first + block), unroll=1) as row:
        indices: dict[int, Value] = {}
        left = row
        for a in reversed(shape.outer):
            isFirst = a == shape.outer[0]
            indices[a] = left if isFirst else left % writer.extents[a]
            left = left if isFirst else left // writer.extents[a]
        outer = Scope(writer, indices, 1, None, None)
        for p in range(shape.count):
            folds, beside, stores = shape.at(p)
            if not (folds or beside or stores):
                continue
            wanted = [*[shape.lines[n].of for n in (*folds, *beside)], *stores]  # type: ignore[union-attr]
            for n in writer.dependencies(wanted):
                outer.get(n)
            sums = {n: [code.variable(writer.start(shape.folds[n].how, lanes)) for _ in range(unroll)] for n in folds}

            inside(indices, bodyOf(p, outer, sums, beside, stores))
            for n in folds:
                how, parts = shape.folds[n].how, [v.value for v in sums[n]]
                while len(parts) > 1:
                    parts = [writer.join(how, a, b) for a, b in zip(parts[::2], parts[1::2])]
                outer.values[n] = code.fold(parts[0], partial(writer.join, how))
        for n in nest.stores:
            if not shape.spread[n] and n not in shape.beside:
                writer.write(n, outer.get(n), indices, 1, None)


def prodOf(values: list[Value]) -> Value:
    """The product of values."""
    total = values[0]
    for v in values[1:]:
        total = total * v
    return total


def columnWork(nest: Nest, axes: frozenset[int]) -> Work:
    """Columns along the last axis, over rows that are folded: tasks are blocks of columns."""
    shape = Shape(nest, axes)
    lanes = machine.lanes(8 if nest.kind == "f64" else 4)
    columns = nest.space[-1]
    wide = min(WIDE, 1 << max(-(-columns // lanes) - 1, 0).bit_length())
    exact = columns % (wide * lanes) == 0
    blocks = -(-columns // (wide * lanes))
    others = prod(nest.space[a] for a in shape.outer[:-1])

    def write(code: Code) -> None:
        writeColumns(Writer(code, shape), wide, exact)

    slots = {**shape.slots(), "blocks": blocks}
    return Work(title(shape), f"columns {wide} {exact} {shape.key}", write, slots, blocks * others)


def writeColumns(writer: Writer, wide: int, exact: bool) -> None:
    """Folds along other axes than the last: each task takes some columns, a sum in each lane."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    blocks = code.integer("blocks")
    first = code.task % blocks * (wide * lanes)
    left, indices = code.task // blocks, dict[int, Value]()
    for a in reversed(shape.outer[:-1]):
        isFirst = a == shape.outer[0]
        indices[a] = left if isFirst else left % writer.extents[a]
        left = left if isFirst else left // writer.extents[a]
    columns = [first + w * lanes for w in range(wide)]
    masks = [None if exact else code.mask(writer.extents[shape.inner] - c, lanes) for c in columns]
    outers = [Scope(writer, {**indices, shape.inner: c}, lanes, m, None) for c, m in zip(columns, masks)]
    for p in range(shape.count):
        folds, _, stores = shape.at(p)
        if not (folds or stores):
            continue
        for n in writer.dependencies([*[shape.folds[n].of for n in folds], *stores]):
            for outer in outers:
                outer.get(n)
        sums = {n: [code.variable(writer.start(shape.folds[n].how, lanes)) for _ in range(wide)] for n in folds}

        def enter(
            depth: int, here: dict[int, Value], folds: Any = folds, stores: Any = stores, sums: Any = sums
        ) -> None:
            if depth < len(shape.loops):
                with code.loop(0, writer.extent(shape.loops[depth], here)) as i:
                    enter(depth + 1, {**here, shape.loops[depth]: i})
                return
            for w in range(wide):
                at = {**here, shape.inner: columns[w]}
                scope = Scope(writer, at, lanes, masks[w], outers[w])
                for n in stores:
                    writer.write(n, scope.get(n), at, lanes, masks[w])
                for n in folds:
                    fold = shape.folds[n]
                    value = code.splat(scope.get(fold.of), lanes)
                    sums[n][w].value = writer.join(fold.how, sums[n][w].value, value)

        enter(0, indices)
        for n in folds:
            for w in range(wide):
                outers[w].values[n] = sums[n][w].value
    for n in nest.stores:
        if not shape.spread[n]:
            for outer, mask in zip(outers, masks):
                writer.write(n, outer.get(n), outer.indices, lanes, mask)


def title(shape: Shape) -> str:
    """What the nest computes, for a table."""
    lines = shape.nest.lines
    if len(lines) == 1 and isinstance(lines[0][1], Formula):
        return str(lines[0][1])
    return "; ".join(f"{n} = {x.how} {x.of}" if isinstance(x, Fold) else f"{n} = {x}" for n, x in lines)
