"""Nests as native code: of the axes one is taken in vectors, that along which memory is contiguous.

Which of the others are done by different tasks follows from what is folded:

*rows*     the contiguous axis is folded, or nothing is: a task does some rows, each in phases, one after each fold
*columns*  other axes are folded: a task does a block of columns; sums stay in registers while the rows go by

Results never depend on how many threads there are. A nest may fold over the rows and, at its end, over the columns too
(the gradient of a normalisation and of its scale): each task keeps sums over its own rows beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isqrt, prod
from typing import Any

from puregraph.formula import Formula
from puregraph.formula.loopnest import (
    STARTS,
    LoopNest,
    Reduce,
    Shape,
    besides,
    chunked,
    collapsed,
    isAxis,
    ordered,
    parted,
    reduceSets,
    saved,
    title,
)
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.math import emit

FEW = 32  # rows, or
LITTLE, TALL = 1 << 16, 1 << 11  # numbers in at most so many, that are summed down their columns at once, not in parts
PART, PARTS = 512, 8  # at most so many rows, and about so many tasks
CHUNK = 16384  # numbers that a task takes of what is only mapped
CHAIN = 16  # at least so many rows are summed one after the other; a sum of sums is as long, so that errors stay small
ROWS = 8192  # numbers that make the rows of a task worth it
WIDE = 4  # vectors of columns in a block
UNROLL = 4  # vectors of a row that are summed side by side
NEAR = 1 << 14  # numbers of a row that are kept near while it is done in phases
Sums = dict[str, list[IRVariable]]  # by the name of a fold, one for each vector
Body = Callable[
    [dict[int, IRValue], "IRValue | None", Sums, int], None
]  # at indices, under a mask, in which of the vectors
STORED = {"f32": "f32", "f64": "f64", "i64": "i64", "i32": "i32", "bool": "i8"}


def works(nest: LoopNest, scratch: Callable[[int], Any]) -> list[KernelCall]:
    """The steps that compute a nest; `scratch` gives memory for so many numbers of its kind, for parts of folds.

    Raises    ValueError for folds that do not fit in one nest
    """
    nest = collapsed(ordered(nest))
    inner = len(nest.space) - 1
    sets = reduceSets(nest)
    if len(sets) > 2:
        raise ValueError(f"folds over {len(sets)} sets of axes do not fit in one nest")
    if not sets:
        cut = chunked(nest, 0, CHUNK) if inner == 0 and nest.space[0] > CHUNK else nest
        return [rowWork(cut, frozenset([len(cut.space) - 1]))]
    axes = next((each for each in sets if inner in each), sets[0])
    long = prod(nest.space[a] for a in axes)
    if len(sets) == 2:
        one, two = besides(nest, axes, blockOf(nest, axes), scratch)
        return [rowWork(one, axes), *works(two, scratch)]
    if inner in axes and (long <= 4 * CHUNK or prod(nest.space) >= 64 * long):
        return [rowWork(nest, axes)]
    if inner not in axes and isColumn(long, prod(nest.space)):
        return [columnWork(nest, axes)]
    one, two = parted(nest, axes, CHUNK if inner in axes else min(PART, -(-long // PARTS)), scratch)
    return [
        rowWork(one, reduceSets(one)[0]) if inner in axes else columnWork(one, reduceSets(one)[0]),
        *works(two, scratch),
    ]


def isColumn(rows: int, numbers: int) -> bool:
    """Whether a task sums whole columns. It so meets what all others have made before, so that is for little."""
    return rows <= FEW or (rows <= TALL and numbers <= LITTLE)


def rowsEach(rows: int, cols: int) -> int:
    """How many rows make a task."""
    return max(1, min(rows, -(-ROWS // max(cols, 1))))


def blockOf(nest: LoopNest, axes: frozenset[int]) -> int:
    """How many rows make a task of a nest that folds these axes."""
    length = prod(nest.space[a] for a in axes)
    return rowsEach(prod(nest.space) // max(length, 1), length)


def keyOf(shape: Shape) -> str:
    """What the code of a nest depends on, as text: everything but sizes, strides and addresses."""
    operands = [
        (k, o.kind, tuple(1 if s == 1 and a == shape.inner else bool(s) * 2 for a, s in enumerate(o.strides)))
        for k, o in shape.operands.items()
    ]
    lines = [(n, x if isinstance(x, Reduce) else str(x)) for n, x in shape.nest.lines]
    text = [(n, (x.how, x.of, sorted(x.axes)) if isinstance(x, Reduce) else x) for n, x in lines]
    ragged = shape.nest.ragged and shape.nest.ragged[0]
    return repr(
        (shape.nest.kind, len(shape.nest.space), sorted(shape.axes), operands, text, ragged, bool(shape.nest.beside))
    )


def slotsOf(shape: Shape) -> dict[str, Any]:
    """What the slots of the code hold."""
    found: dict[str, Any] = {}
    for k, o in shape.operands.items():
        found[k] = o.what
        found |= {f"{k}_{a}": s for a, s in enumerate(o.strides) if s and not (s == 1 and a == shape.inner)}
    found |= {f"n_{a}": n for a, n in enumerate(shape.nest.space)}
    if shape.nest.ragged:
        found["whole"] = shape.nest.ragged[1]
    return found


class NestCode:
    """Writes the code of a nest."""

    def __init__(self, code: IRBuilder, shape: Shape):
        self.code, self.shape, self.nest = code, shape, shape.nest
        self.lanes = jit.lanes(8 if self.nest.kind == "f64" else 4)
        self.pointers: dict[str, IRPointer] = {}
        self.strides: dict[tuple[str, int], IRValue | int] = {}
        for k, o in shape.operands.items():
            self.pointers[k] = code.pointer(k, STORED[o.kind])
            for a, s in enumerate(o.strides):
                if s:
                    self.strides[k, a] = 1 if s == 1 and a == shape.inner else code.integer(f"{k}_{a}")
        self.extents = [code.integer(f"n_{a}") for a in range(len(self.nest.space))]
        self.whole = code.integer("whole") if self.nest.ragged else None

    def offset(self, operand: str, indices: Mapping[int, IRValue]) -> IRValue | int:
        """How far a place is from the operand's start."""
        total: IRValue | int = 0
        for a, i in indices.items():
            if (operand, a) in self.strides:
                step = self.strides[operand, a]
                move = i if isinstance(step, int) else i * step
                total = move if isinstance(total, int) and total == 0 else total + move
        return total

    def extent(self, axis: int, indices: Mapping[int, IRValue]) -> IRValue:
        """The length of an axis, at these indices of those before it."""
        if self.nest.ragged and self.nest.ragged[0] == axis and self.whole is not None:
            return self.code.min(self.extents[axis], self.whole - indices[0] * self.extents[axis])
        return self.extents[axis]

    def read(self, name: str, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None) -> IRValue:
        """An operand at a place, or at `lanes` places along the last axis."""
        code, key = self.code, f"l_{name}"
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 0):
            found = pointer.load()
        elif isinstance(step, int):
            found = pointer.load(0, lanes, mask)
        else:
            found = pointer.gather(code.iota(lanes) * step, mask)
        kind = self.nest.loads[name].kind
        return found != 0 if kind == "bool" else code.convert(found, self.nest.kind)

    def write(
        self, name: str, value: IRValue, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None
    ) -> None:
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
            pointer.store(0, code.extract(value, 0))
        else:
            for i in range(lanes):
                if mask is None:
                    pointer.store(step * i, code.extract(value, i))
                else:
                    with code.when(code.extract(mask, i)):
                        pointer.store(step * i, code.extract(value, i))

    def join(self, how: str, a: IRValue, b: IRValue) -> IRValue:
        if how in ("max", "min"):
            return emit.EMIT["maximum" if how == "max" else "minimum"](self.code, a, b)
        return a + b if how == "sum" else a * b

    def start(self, how: str, lanes: int) -> IRValue:
        return self.code.constant(STARTS[how], IRType(self.nest.kind, lanes))

    def sums(self, folds: Iterable[str], count: int) -> Sums:
        """For each of the folds so many vectors, with nothing in them yet."""
        return {
            n: [self.code.variable(self.start(self.shape.folds[n].how, self.lanes)) for _ in range(count)]
            for n in folds
        }

    def add(self, sums: Sums, more: Sums) -> None:
        for n, totals in sums.items():
            for total, part in zip(totals, more[n]):
                total.value = self.join(self.shape.folds[n].how, total.value, part.value)


class Scope:
    """The values of a nest at one place, each computed once, when it is first asked for."""

    def __init__(
        self, writer: NestCode, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None, outer: Scope | None
    ):
        self.writer, self.indices, self.lanes, self.mask, self.outer = writer, indices, lanes, mask, outer
        self.values: dict[str, IRValue] = {}

    def get(self, name: str) -> IRValue:
        if self.outer is not None and not self.writer.shape.varies.get(name, True):
            return self.outer.get(name)
        if name not in self.values:
            self.values[name] = self.make(name)
        return self.values[name]

    def make(self, name: str) -> IRValue:
        writer = self.writer
        code, kind = writer.code, writer.nest.kind
        if name in writer.nest.loads:
            return writer.read(name, self.indices, self.lanes, self.mask)
        if isAxis(name):
            axis = int(name[4:])
            index = self.indices[axis]
            if axis == writer.shape.inner and self.lanes > 1:
                index = code.iota(self.lanes) + index
            return code.convert(index, kind)
        line = writer.shape.lines[name]
        if isinstance(line, Reduce):
            raise ValueError(f"{name} is wanted before it is complete")
        return emit.emit(code, line, {n: self.get(n) for n in line.names})

    def joined(self, fold: Reduce, total: IRValue, start: IRValue | None = None) -> IRValue:
        """A total of a fold with what is here; `start` stands in lanes that are off. A product is added to a sum
        without being rounded before."""
        writer, line = self.writer, self.writer.shape.lines.get(fold.of)
        code = writer.code
        if fold.how == "sum" and start is None and isinstance(line, Formula) and fold.of not in self.values:
            factors = emit.factorsOf(code, line, {n: self.get(n) for n in line.names})
            if factors is not None:
                return code.call("fmuladd", *(code.splat(x, self.lanes) for x in factors), total)
        value = code.splat(self.get(fold.of), self.lanes)
        if start is not None:
            value = code.select(self.mask, value, start)
        return writer.join(fold.how, total, value)


def rowWork(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Rows of the folded axes, the last one in vectors: tasks are blocks of rows."""
    shape = Shape(nest, axes)
    rows = prod(nest.space[a] for a in shape.outer)
    length = prod(nest.space[a] for a in shape.loops)
    block = nest.beside or rowsEach(rows, length)
    near = 1 << max(length - 1, 15).bit_length() if len(shape.loops) == 1 and length <= NEAR else 0
    cut, chain = chainOf(shape)

    def write(code: IRBuilder) -> None:
        writeRows(NestCode(code, shape), near, cut)

    slots = {**slotsOf(shape), "rows": rows, "block": block, **({} if cut is None else {"chain": chain})}
    kept = near if saved(shape) else 0
    return KernelCall(title(shape.nest), f"rows {kept} {cut} {keyOf(shape)}", write, slots, -(-rows // block))


def chainOf(shape: Shape) -> tuple[int | None, int]:
    """Which folded axis of a row is cut into chains, and how long these are; None where a row is one short chain.

    A chain is as long as there are chains, so that the sum of a chain and the sum of all chains round as often.
    """
    lanes = jit.lanes(8 if shape.nest.kind == "f64" else 4)
    *outer, last = ((a, shape.nest.space[a]) for a in shape.loops)
    steps = [*outer, (last[0], -(-last[1] // (lanes * UNROLL)))]
    length, inside = prod(n for _, n in steps), 1
    root = isqrt(length)
    if shape.folds and length > 2 * CHAIN:
        for axis, n in reversed(steps):
            if inside * n >= root:
                return axis, max(1, root // inside)
            inside *= n
    return None, 0


def writeRows(writer: NestCode, near: int, cut: int | None) -> None:
    """Folds along the last axis: each task takes some rows, and sums a row, or a run of it, in a few vectors."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    rows, block = code.integer("rows"), code.integer("block")
    begun = saved(shape) if near else {}
    kept = {n: code.scratch(nest.kind, near + lanes) for n in begun}
    unroll = UNROLL if len(shape.lines) <= 6 else UNROLL // 2
    first = code.task * block

    def inside(indices: dict[int, IRValue], sums: Sums, body: Body) -> None:
        """The body along all folded axes: vectors along the last one, several at a time."""
        *outer, last = shape.loops

        def enter(depth: int, here: dict[int, IRValue], sums: Sums) -> None:
            axis = shape.loops[depth]
            count = writer.extent(axis, here)
            step = lanes * unroll if depth == len(outer) else 1
            main = count // step * step

            def go(first: IRValue | int, stop: IRValue, sums: Sums) -> None:
                with code.loop(first, stop, step, unroll=1 if depth == len(outer) else None) as i:
                    if depth < len(outer):
                        enter(depth + 1, {**here, axis: i}, sums)
                        return
                    for u in range(unroll):
                        body({**here, axis: i + u * lanes}, None, sums, u)

            if axis == cut and sums:
                run = code.integer("chain") * step
                with code.loop(0, main, run, unroll=1) as head:
                    some = writer.sums(sums, unroll)
                    go(head, code.min(main, head + run), some)
                    writer.add(sums, some)
            else:
                go(0, main, sums)
            if step > 1:
                with code.loop(main, count, lanes, unroll=1) as i:
                    body({**here, axis: i}, code.mask(count - i, lanes), sums, 0)

        enter(0, indices, sums)

    def part(name: str, indices: dict[int, IRValue]) -> IRPointer:
        key = f"s_{name}"
        size = prodOf([writer.extents[a] for a in shape.loops])
        return writer.pointers[key].at(code.task * size + writer.offset(key, {a: indices[a] for a in shape.loops}))

    def bodyOf(p: int, outer: Scope, beside: list[str], stores: list[str]) -> Body:
        """What a phase does at a vector: results are written, folds go on."""

        def body(at: dict[int, IRValue], mask: IRValue | None, sums: Sums, u: int) -> None:
            scope = Scope(writer, at, lanes, mask, outer)
            column = at[shape.inner]
            for n, room in kept.items():
                if begun[n] < p:
                    scope.values[n] = room.load(column, lanes)
                elif begun[n] == p:
                    scope.get(n)
            made = [scope.get(n) for n in stores]  # all, before any is written: to where an operand lies, perhaps
            for n, value in zip(stores, made):
                writer.write(n, value, at, lanes, mask)
            for n in sums:
                fold = shape.folds[n]
                start = None if mask is None else writer.start(fold.how, lanes)
                sums[n][u].value = scope.joined(fold, sums[n][u].value, start)
            for n in beside:
                fold, place = shape.beside[n], part(n, at)
                value = code.splat(scope.get(fold.of), lanes)
                place.store(0, writer.join(fold.how, place.load(0, lanes, mask), value), mask)
            for n, room in kept.items():
                if begun[n] == p:
                    room.store(column, scope.values[n])

        return body

    for name, x in shape.beside.items():
        inside({}, {}, lambda at, mask, _, u, n=name, h=x.how: part(n, at).store(0, writer.start(h, lanes), mask))
    with code.loop(first, code.min(rows, first + block), unroll=1) as row:
        indices: dict[int, IRValue] = {}
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
            for n in shape.dependencies(shape.wanted(p)):
                outer.get(n)
            sums = writer.sums(folds, unroll)
            inside(indices, sums, bodyOf(p, outer, beside, stores))
            for n in folds:
                how, parts = shape.folds[n].how, [v.value for v in sums[n]]
                while len(parts) > 1:
                    parts = [writer.join(how, a, b) for a, b in zip(parts[::2], parts[1::2])]
                outer.values[n] = code.reduce(parts[0], partial(writer.join, how))
        ends = [n for n in nest.stores if not shape.spread[n] and n not in shape.beside]
        for n, value in [(n, outer.get(n)) for n in ends]:  # all, before any is written
            writer.write(n, value, indices, 1, None)


def prodOf(values: list[IRValue]) -> IRValue:
    """The product of values."""
    total = values[0]
    for v in values[1:]:
        total = total * v
    return total


def columnWork(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Columns along the last axis, over rows that are folded: tasks are blocks of columns."""
    shape = Shape(nest, axes)
    lanes = jit.lanes(8 if nest.kind == "f64" else 4)
    columns = nest.space[-1]
    wide = min(WIDE, 1 << max(-(-columns // lanes) - 1, 0).bit_length())
    exact = columns % (wide * lanes) == 0
    blocks = -(-columns // (wide * lanes))
    others = prod(nest.space[a] for a in shape.outer[:-1])

    def write(code: IRBuilder) -> None:
        writeColumns(NestCode(code, shape), wide, exact)

    slots = {**slotsOf(shape), "blocks": blocks, "chain": max(CHAIN, isqrt(nest.space[shape.loops[-1]]))}
    return KernelCall(title(shape.nest), f"columns {wide} {exact} {keyOf(shape)}", write, slots, blocks * others)


def writeColumns(writer: NestCode, wide: int, exact: bool) -> None:
    """Folds along other axes than the last: each task takes some columns, a sum in each lane."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    blocks, chain = code.integer("blocks"), code.integer("chain")
    first = code.task % blocks * (wide * lanes)
    left, indices = code.task // blocks, dict[int, IRValue]()
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
        for n in shape.dependencies([*[shape.folds[n].of for n in folds], *stores]):
            for outer in outers:
                outer.get(n)

        def enter(depth: int, here: dict[int, IRValue], sums: Sums) -> None:
            axis = shape.loops[depth]
            extent = writer.extent(axis, here)
            if depth < len(shape.loops) - 1:
                with code.loop(0, extent) as i:
                    enter(depth + 1, {**here, axis: i}, sums)
                return
            with code.loop(0, extent, chain, unroll=1) as head:
                some = writer.sums(sums, wide)
                with code.loop(head, code.min(extent, head + chain)) as i:
                    visit({**here, axis: i}, some)
                writer.add(sums, some)

        def visit(here: dict[int, IRValue], sums: Sums, folds: Any = folds, stores: Any = stores) -> None:
            for w in range(wide):
                at = {**here, shape.inner: columns[w]}
                scope = Scope(writer, at, lanes, masks[w], outers[w])
                for n, value in [(n, scope.get(n)) for n in stores]:  # all, before any is written
                    writer.write(n, value, at, lanes, masks[w])
                for n in folds:
                    fold = shape.folds[n]
                    sums[n][w].value = scope.joined(fold, sums[n][w].value)

        sums = writer.sums(folds, wide)
        enter(0, indices, sums)
        for n in folds:
            for w in range(wide):
                outers[w].values[n] = sums[n][w].value
    ends = [n for n in nest.stores if not shape.spread[n]]
    for outer, mask in zip(outers, masks):
        for n, value in [(n, outer.get(n)) for n in ends]:
            writer.write(n, value, outer.indices, lanes, mask)
