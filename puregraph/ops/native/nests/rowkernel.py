"""The code of reductions along the contiguous axis: a task has some rows, each in phases, one after each reduction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from puregraph.ops.formula.loopnest import saved
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.nests.nestscope import NestCode, Scope, Sums

UNROLL = 4  # accumulators of a row
Body = Callable[[dict[int, IRValue], "IRValue | None", Sums, int], None]  # (indices, mask, sums, vector number)


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
