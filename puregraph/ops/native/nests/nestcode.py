"""Loop nests as native code: the vectorised axis is the one along which memory is contiguous.

The reductions decide which of the other axes are split into tasks:

*rows*     the contiguous axis is reduced, or none is: a task has some rows, each in phases, one after each reduction
*columns*  other axes are reduced: a task has a block of columns; sums stay in registers over all rows

Results never depend on the number of threads. A nest may reduce the columns of each row and, at its end, the rows too
(the gradient of a normalisation and of its scale): each task stores partial sums over its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isqrt, prod
from typing import Any

import numpy as np

from puregraph.core.opensize import decided, floating, isOpen, largest, smallest
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import (
    INTEGERS,
    LoopNest,
    Reduce,
    ReducedNest,
    besides,
    chunked,
    collapsed,
    isAxis,
    ordered,
    parted,
    reduceSets,
    saved,
    startOf,
    title,
)
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.math import emit

MAX_UNSPLIT_ROWS = 32  # columns of up to this many rows are summed at once, not in parts,
LITTLE, TALL = 1 << 16, 1 << 11  # as are those of up to LITTLE elements in up to TALL rows
PART_ROWS, MIN_PARTS = 512, 8  # maximum rows of a part, and the minimum number of parts
NEST_TASK_ELEMENTS = 16384  # elements of a task without reductions
MIN_CHAIN_ROWS = 16  # fewest rows that are summed sequentially; with as many chains, rounding errors stay small
MIN_ROW_TASK_ELEMENTS = 8192  # fewest elements of the rows of a task
BLOCK_VECTORS = 4  # vectors of columns in a block
UNROLL = 4  # accumulators of a row
SCRATCH_ROW_ELEMENTS = 1 << 14  # elements of a row up to which values are stored in scratch memory between phases
Sums = dict[str, list[IRVariable]]  # the accumulators of each reduction, one for each vector
Body = Callable[[dict[int, IRValue], "IRValue | None", Sums, int], None]  # (indices, mask, sums, vector number)
STORED = {"f32": "f32", "f64": "f64", "bool": "i8", **{kind: kind for kind in INTEGERS}}


def lanesOf(nest: LoopNest) -> int:
    """The elements of a vector register of the kind that a nest computes in."""
    return jit.lanes(8 if nest.kind in ("f64", "i64", "u64") else 4)


def nestCalls(nest: LoopNest, scratch: Callable[[int], Any]) -> list[KernelCall]:
    """The kernel calls that compute a nest; `scratch(count)` gives memory of its kind for partial results.

    Raises    ValueError for reductions that do not fit in one nest
    """
    nest = collapsed(ordered(nest))
    inner = len(nest.space) - 1
    sets = reduceSets(nest)
    if len(sets) > 2:
        raise ValueError(f"reductions over {len(sets)} sets of axes do not fit in one nest")
    if not sets:
        isLong = isOpen(nest.space[0]) or nest.space[0] > NEST_TASK_ELEMENTS
        cut = chunked(nest, 0, NEST_TASK_ELEMENTS) if inner == 0 and isLong else nest
        return [rowCall(cut, frozenset([len(cut.space) - 1]))]
    axes = next((reduced for reduced in sets if inner in reduced), sets[0])
    long = prod(nest.space[a] for a in axes)
    if len(sets) == 2:
        first, second = besides(nest, axes, rowBlock(nest, axes), scratch)
        return [rowCall(first, axes), *nestCalls(second, scratch)]
    if inner in axes and (long <= 4 * NEST_TASK_ELEMENTS or prod(nest.space) >= 64 * long):
        return [rowCall(nest, axes)]
    if inner not in axes and isColumn(long, prod(nest.space)):
        return [columnCall(nest, axes)]
    rows = NEST_TASK_ELEMENTS if inner in axes else min(PART_ROWS, -(-long // MIN_PARTS))
    first, second = parted(nest, axes, rows, scratch)
    return [
        rowCall(first, reduceSets(first)[0]) if inner in axes else columnCall(first, reduceSets(first)[0]),
        *nestCalls(second, scratch),
    ]


def isColumn(rows: int, elements: int) -> bool:
    """True if a task sums whole columns: it then reads data written by other cores, which pays off only for small
    sizes."""
    return rows <= MAX_UNSPLIT_ROWS or (rows <= TALL and elements <= LITTLE)


def rowsPerTask(rows: int, cols: int) -> int:
    """The number of rows in a task."""
    return largest(1, smallest(rows, -(-MIN_ROW_TASK_ELEMENTS // largest(cols, 1))))


def rowBlock(nest: LoopNest, axes: frozenset[int]) -> int:
    """The number of rows in a task, for a nest that reduces these axes."""
    length = prod(nest.space[a] for a in axes)
    return rowsPerTask(prod(nest.space) // max(length, 1), length)


def scaled(shape: ReducedNest) -> dict[str, tuple[Formula, float]]:
    """For each line that is a name times or over a number, such as a mean: the line with a factor, and the factor.

    Such numbers often follow from sizes, so they are arguments. In float32 a division is a product, see `emit.quick`.
    Lines that are reduced keep their numbers: a sum of products is computed by fma.
    """
    reduced = {x.of for _, x in shape.nest.lines if isinstance(x, Reduce)}
    lines: dict[str, tuple[Formula, float]] = {}
    for name, line in shape.nest.lines:
        if isinstance(line, Reduce) or name in reduced or shape.nest.kind not in ("f32", "f64"):
            continue
        op, args = line.term.op, line.term.args
        if op not in ("*", "/") or args[0].op != "name" or args[1].op != "number":
            continue
        value = floating(args[1].value)
        if not 2.0**-100 < abs(value) < 2.0**100:
            continue
        if op == "/" and shape.nest.kind == "f32":
            op, value = "*", 1 / value
        of = args[0].value
        lines[name] = Formula(f"{of} {op} {of}Factor"), value
    return lines


def keyOf(shape: ReducedNest) -> str:
    """The key of a nest's code, as text: everything but sizes, strides, factors and addresses."""
    operands = [
        (k, o.kind, tuple(1 if s == 1 and a == shape.inner else bool(s) * 2 for a, s in enumerate(o.strides)))
        for k, o in shape.operands.items()
    ]
    factors = scaled(shape)
    lines = [
        (n, x if isinstance(x, Reduce) else str(factors[n][0] if n in factors else x)) for n, x in shape.nest.lines
    ]
    text = [(n, (x.how, x.of, sorted(x.axes)) if isinstance(x, Reduce) else x) for n, x in lines]
    ragged = shape.nest.ragged and shape.nest.ragged[0]
    return repr(
        (shape.nest.kind, len(shape.nest.space), sorted(shape.axes), operands, text, ragged, bool(shape.nest.beside))
    )


def slotsOf(shape: ReducedNest) -> dict[str, Any]:
    """The arguments of the kernel."""
    slots: dict[str, Any] = {}
    for k, o in shape.operands.items():
        slots[k] = o.what
        slots |= {f"{k}_{a}": s for a, s in enumerate(o.strides) if s and not (s == 1 and a == shape.inner)}
    slots |= {f"n_{a}": n for a, n in enumerate(shape.nest.space)}
    slots |= {f"factor_{n}": bitsOf(factor) for n, (_, factor) in scaled(shape).items()}
    if shape.nest.ragged:
        slots["whole"] = shape.nest.ragged[1]
    return slots


@decided
def bitsOf(value: float) -> int:
    """The bits of a float64 as an integer, for a slot."""
    return int(np.float64(value).view(np.int64))


class NestCode:
    """Writes the code of a nest."""

    def __init__(self, code: IRBuilder, shape: ReducedNest):
        self.code, self.shape, self.nest = code, shape, shape.nest
        self.lanes = lanesOf(self.nest)
        self.pointers: dict[str, IRPointer] = {}
        self.strides: dict[tuple[str, int], IRValue | int] = {}
        for k, o in shape.operands.items():
            self.pointers[k] = code.pointer(k, STORED[o.kind])
            for a, s in enumerate(o.strides):
                if s:
                    self.strides[k, a] = 1 if s == 1 and a == shape.inner else code.integer(f"{k}_{a}")
        self.extents = [code.integer(f"n_{a}") for a in range(len(self.nest.space))]
        self.whole = code.integer("whole") if self.nest.ragged else None
        self.scaled = {
            n: (line, code.convert(code.slot(f"factor_{n}", "f64"), self.nest.kind))
            for n, (line, _) in scaled(shape).items()
        }

    def offset(self, operand: str, indices: Mapping[int, IRValue]) -> IRValue | int:
        """The offset of an element from the operand's start."""
        total: IRValue | int = 0
        for a, i in indices.items():
            if (operand, a) in self.strides:
                step = self.strides[operand, a]
                move = i if isinstance(step, int) else i * step
                total = move if isinstance(total, int) and total == 0 else total + move
        return total

    def indicesOf(self, index: IRValue, axes: Sequence[int]) -> dict[int, IRValue]:
        """A flat index of outer axes as an index of each."""
        indices = dict[int, IRValue]()
        for a in reversed(axes):
            isFirst = a == self.shape.outer[0]
            indices[a] = index if isFirst else index % self.extents[a]
            index = index if isFirst else index // self.extents[a]
        return indices

    def extent(self, axis: int, indices: Mapping[int, IRValue]) -> IRValue:
        """The length of an axis, at these indices of those before it."""
        if self.nest.ragged and self.nest.ragged[0] == axis and self.whole is not None:
            return self.code.min(self.extents[axis], self.whole - indices[0] * self.extents[axis])
        return self.extents[axis]

    def read(self, name: str, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None) -> IRValue:
        """An element of an operand, or `lanes` elements along the last axis."""
        code, key = self.code, f"l_{name}"
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 0):
            element = pointer.load()
        elif isinstance(step, int):
            element = pointer.load(0, lanes, mask)
        else:
            element = pointer.gather(code.iota(lanes) * step, mask)
        kind = self.nest.loads[name].kind
        return element != 0 if kind == "bool" else code.convert(element, self.nest.kind)

    def write(
        self, name: str, value: IRValue, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None
    ) -> None:
        """Store a result, converted to its kind."""
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
            table = emit.WHOLE if self.nest.kind in INTEGERS else emit.EMIT
            return table["maximum" if how == "max" else "minimum"](self.code, a, b)
        return a + b if how == "sum" else a * b

    def start(self, how: str, lanes: int) -> IRValue:
        return self.code.constant(startOf(how, self.nest.kind), IRType(self.nest.kind, lanes))

    def sums(self, reductions: Iterable[str], count: int) -> Sums:
        """New accumulators: `count` vectors of each reduction."""
        return {
            n: [self.code.variable(self.start(self.shape.reductions[n].how, self.lanes)) for _ in range(count)]
            for n in reductions
        }

    def add(self, sums: Sums, more: Sums) -> None:
        for n, totals in sums.items():
            for total, part in zip(totals, more[n]):
                total.value = self.join(self.shape.reductions[n].how, total.value, part.value)


class Scope:
    """The values of a nest at one index or vector of indices, each computed once, when it is first needed."""

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
        values = {n: self.get(n) for n in line.names}
        if name in writer.scaled:
            line, factor = writer.scaled[name]
            values |= {n: factor for n in line.names if n not in values}
        return emit.emitIntegers(code, line, values, kind) if kind in INTEGERS else emit.emit(code, line, values, kind)

    def joined(self, reduction: Reduce, total: IRValue, start: IRValue | None = None) -> IRValue:
        """An accumulator joined with the value here; `start` fills lanes that are off. A product is added by an fma."""
        writer, line = self.writer, self.writer.shape.lines.get(reduction.of)
        code = writer.code
        isSum = reduction.how == "sum" and start is None and writer.nest.kind not in INTEGERS
        if isSum and isinstance(line, Formula) and reduction.of not in self.values:
            values = {n: self.get(n) for n in line.names}
            factors = emit.factorsOf(code, line, values, writer.nest.kind)
            if factors is not None:
                return code.call("fmuladd", *(code.splat(x, self.lanes) for x in factors), total)
        value = code.splat(self.get(reduction.of), self.lanes)
        if start is not None and self.mask is not None:
            value = code.select(self.mask, value, start)
        return writer.join(reduction.how, total, value)


def rowCall(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Reductions along the contiguous axis: tasks are blocks of rows."""
    shape = ReducedNest(nest, axes)
    rows = prod(nest.space[a] for a in shape.outer)
    length = prod(nest.space[a] for a in shape.loops)
    block = nest.beside or rowsPerTask(rows, length)
    near = 0
    if saved(shape) and len(shape.loops) == 1 and length <= SCRATCH_ROW_ELEMENTS:
        near = 1 << max(length - 1, 15).bit_length()
    steps = [nest.space[a] for a in shape.loops]
    steps[-1] = -(-steps[-1] // (lanesOf(nest) * UNROLL))
    spot, chain = chainOf(*steps) if shape.reductions else (None, 0)
    cut = None if spot is None else shape.loops[spot]

    def write(code: IRBuilder) -> None:
        RowKernel(NestCode(code, shape), near, cut).write()

    slots = {**slotsOf(shape), "rows": rows, "block": block, **({} if cut is None else {"chain": chain})}
    return KernelCall(title(shape.nest), f"rows {near} {cut} {keyOf(shape)}", write, slots, -(-rows // block))


@decided
def chainOf(*steps: int) -> tuple[int | None, int]:
    """(the reduced axis of a row to cut into chains, their length); the axis is None if a row is one short chain.

    `steps` are the sums along each reduced axis. The length of a chain equals the number of chains, so that both sums
    have about the same rounding error.
    """
    length, inside = prod(steps), 1
    root = isqrt(length)
    if length > 2 * MIN_CHAIN_ROWS:
        for axis, n in reversed([*enumerate(steps)]):
            if inside * n >= root:
                return axis, max(1, root // inside)
            inside *= n
    return None, 0


class RowKernel:
    """Writes reductions along the last axis: a task has some rows, and reduces a row, or a chain of it, in vectors."""

    def __init__(self, writer: NestCode, near: int, cut: int | None):
        code, shape = writer.code, writer.shape
        self.writer, self.code, self.shape, self.cut = writer, code, shape, cut
        self.rows, self.block = code.integer("rows"), code.integer("block")
        self.phaseOf = saved(shape) if near else {}
        self.stored = {n: code.scratch(writer.nest.kind, near + writer.lanes) for n in self.phaseOf}
        self.unroll = UNROLL if len(shape.lines) <= 6 else UNROLL // 2

    def write(self) -> None:
        """The loop over the rows of a task; reductions over rows are stored beside, in partial results of the task."""
        code, writer = self.code, self.writer
        first = code.task * self.block
        for name, reduction in self.shape.beside.items():

            def clear(
                at: Any, mask: IRValue | None, _: Any, u: int, name: str = name, how: str = reduction.how
            ) -> None:
                self.partial(name, at).store(0, writer.start(how, writer.lanes), mask)

            self.overAxes(0, {}, {}, clear)
        with code.loop(first, code.min(self.rows, first + self.block), unroll=1) as row:
            indices = writer.indicesOf(row, self.shape.outer)
            outer = Scope(writer, indices, 1, None, None)
            for p in range(self.shape.count):
                self.phase(p, outer)
            ends = [n for n in writer.nest.stores if not self.shape.spread[n] and n not in self.shape.beside]
            for n, value in [(n, outer.get(n)) for n in ends]:  # all, before any is written
                writer.write(n, value, indices, 1, None)

    def phase(self, p: int, outer: Scope) -> None:
        """A pass over a row: results are stored, reductions accumulate, then each is reduced horizontally."""
        writer, shape = self.writer, self.shape
        reductions, beside, stores = shape.at(p)
        if not (reductions or beside or stores):
            return
        for n in shape.dependencies(shape.wanted(p)):
            outer.get(n)
        sums = writer.sums(reductions, self.unroll)
        self.overAxes(0, dict(outer.indices), sums, self.bodyOf(p, outer, beside, stores))
        for n in reductions:
            how, parts = shape.reductions[n].how, [v.value for v in sums[n]]
            while len(parts) > 1:
                parts = [writer.join(how, a, b) for a, b in zip(parts[::2], parts[1::2])]
            outer.values[n] = self.code.reduce(parts[0], partial(writer.join, how))

    def overAxes(self, depth: int, here: dict[int, IRValue], sums: Sums, body: Body) -> None:
        """The body along all reduced axes: vectors along the last one, several at a time; one axis is cut in chains."""
        code, writer, lanes = self.code, self.writer, self.writer.lanes
        axis, isInner = self.shape.loops[depth], depth == len(self.shape.loops) - 1
        count = writer.extent(axis, here)
        step = lanes * self.unroll if isInner else 1
        main = count // step * step

        def loop(first: IRValue | int, stop: IRValue, sums: Sums) -> None:
            with code.loop(first, stop, step, unroll=1 if isInner else None) as i:
                if not isInner:
                    self.overAxes(depth + 1, {**here, axis: i}, sums, body)
                    return
                for u in range(self.unroll):
                    body({**here, axis: i + u * lanes}, None, sums, u)

        if axis == self.cut and sums:
            chain = code.integer("chain") * step
            with code.loop(0, main, chain, unroll=1) as head:
                some = writer.sums(sums, self.unroll)
                loop(head, code.min(main, head + chain), some)
                writer.add(sums, some)
        else:
            loop(0, main, sums)
        if step > 1:
            with code.loop(main, count, lanes, unroll=1) as i:
                body({**here, axis: i}, code.mask(count - i, lanes), sums, 0)

    def partial(self, name: str, indices: dict[int, IRValue]) -> IRPointer:
        """The address of a partial result of this task, of a reduction over rows."""
        writer, loops, key = self.writer, self.shape.loops, f"s_{name}"
        size = prodOf([writer.extents[a] for a in loops])
        return writer.pointers[key].at(self.code.task * size + writer.offset(key, {a: indices[a] for a in loops}))

    def bodyOf(self, p: int, outer: Scope, beside: list[str], stores: list[str]) -> Body:
        """The body of a phase for one vector: store results, accumulate reductions."""
        code, writer, shape, lanes = self.code, self.writer, self.shape, self.writer.lanes

        def body(at: dict[int, IRValue], mask: IRValue | None, sums: Sums, u: int) -> None:
            scope = Scope(writer, at, lanes, mask, outer)
            column = at[shape.inner]
            for n, scratch in self.stored.items():
                if self.phaseOf[n] < p:
                    scope.values[n] = scratch.load(column, lanes)
                elif self.phaseOf[n] == p:
                    scope.get(n)
            made = [scope.get(n) for n in stores]  # all, before any is written: an operand may have the same memory
            for n, value in zip(stores, made):
                writer.write(n, value, at, lanes, mask)
            for n in sums:
                reduction = shape.reductions[n]
                start = None if mask is None else writer.start(reduction.how, lanes)
                sums[n][u].value = scope.joined(reduction, sums[n][u].value, start)
            for n in beside:
                reduction, address = shape.beside[n], self.partial(n, at)
                value = code.splat(scope.get(reduction.of), lanes)
                address.store(0, writer.join(reduction.how, address.load(0, lanes, mask), value), mask)
            for n, scratch in self.stored.items():
                if self.phaseOf[n] == p:
                    scratch.store(column, scope.values[n])

        return body


def prodOf(values: list[IRValue]) -> IRValue:
    """The product of values."""
    total = values[0]
    for v in values[1:]:
        total = total * v
    return total


def columnCall(nest: LoopNest, axes: frozenset[int]) -> KernelCall:
    """Reductions over rows: tasks are blocks of columns along the last axis."""
    shape = ReducedNest(nest, axes)
    lanes = lanesOf(nest)
    columns = nest.space[-1]
    wide = blockVectors(columns, lanes)
    exact = columns % (wide * lanes) == 0
    blocks = -(-columns // (wide * lanes))
    others = prod(nest.space[a] for a in shape.outer[:-1])

    def write(code: IRBuilder) -> None:
        writeColumns(NestCode(code, shape), wide, exact)

    slots = {**slotsOf(shape), "blocks": blocks, "chain": chainRows(nest.space[shape.loops[-1]])}
    return KernelCall(title(shape.nest), f"columns {wide} {exact} {keyOf(shape)}", write, slots, blocks * others)


@decided
def blockVectors(columns: int, lanes: int) -> int:
    """The vectors of columns in a block."""
    return min(BLOCK_VECTORS, 1 << max(-(-columns // lanes) - 1, 0).bit_length())


@decided
def chainRows(rows: int) -> int:
    """The number of rows of a column that are summed sequentially."""
    return max(MIN_CHAIN_ROWS, isqrt(rows))


def writeColumns(writer: NestCode, wide: int, exact: bool) -> None:
    """Writes reductions over other axes than the last: a task has some columns, with an accumulator in each lane."""
    code, shape, nest, lanes = writer.code, writer.shape, writer.nest, writer.lanes
    blocks, chain = code.integer("blocks"), code.integer("chain")
    first = code.task % blocks * (wide * lanes)
    indices = writer.indicesOf(code.task // blocks, shape.outer[:-1])
    columns = [first + w * lanes for w in range(wide)]
    masks = [None if exact else code.mask(writer.extents[shape.inner] - c, lanes) for c in columns]
    outers = [Scope(writer, {**indices, shape.inner: c}, lanes, m, None) for c, m in zip(columns, masks)]
    for p in range(shape.count):
        reductions, _, stores = shape.at(p)
        if not (reductions or stores):
            continue
        for n in shape.dependencies([*[shape.reductions[n].of for n in reductions], *stores]):
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

        def visit(here: dict[int, IRValue], sums: Sums, reductions: Any = reductions, stores: Any = stores) -> None:
            for w in range(wide):
                at = {**here, shape.inner: columns[w]}
                scope = Scope(writer, at, lanes, masks[w], outers[w])
                for n, value in [(n, scope.get(n)) for n in stores]:  # all, before any is written
                    writer.write(n, value, at, lanes, masks[w])
                for n in reductions:
                    reduction = shape.reductions[n]
                    sums[n][w].value = scope.joined(reduction, sums[n][w].value)

        sums = writer.sums(reductions, wide)
        enter(0, indices, sums)
        for n in reductions:
            for w in range(wide):
                outers[w].values[n] = sums[n][w].value
    ends = [n for n in nest.stores if not shape.spread[n]]
    for outer, mask in zip(outers, masks):
        for n, value in [(n, outer.get(n)) for n in ends]:
            writer.write(n, value, outer.indices, lanes, mask)
