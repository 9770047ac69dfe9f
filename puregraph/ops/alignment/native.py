"""Alignments: the native kernel, one task for each sample, vectorised along states, in log space.

The forward pass keeps a row for each time step and one before the first, each padded with two states of NEVER in
front. The backward pass keeps a single row, padded with two states of NEVER behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.core.opensize import sized
from puregraph.ops.alignment.reference import NEVER
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.math.explog import expBelow, logNear, split

FRONT = 2  # padding states before the first state
# rows of a sample besides those of the forward pass: back, later, there, passes, and kinds (int64: two rows)
EXTRA_ROWS = 5


def rowSize(labels: int) -> int:
    """The elements of a row of states with its padding in front and behind, in whole vectors."""
    lanes = jit.lanes(4)
    return -(-(2 * labels + 1 + 2 * FRONT) // lanes) * lanes + lanes


def workspaceSize(n: int, time: int, labels: int) -> int:
    """The float32 elements that all samples need."""
    return n * (time + 1 + EXTRA_ROWS + 1) * rowSize(labels)


def alignments(
    logs: Any, index: Any, lengths: Any, counts: Any, costs: Any, chances: Any, space: Any, sizes: tuple, blank: int
) -> list[KernelCall]:
    """costs and chances of n samples, t time steps, c classes and s labels, all arrays without gaps."""
    n, time, classes, labels = sizes
    slots = {"logs": logs, "index": index, "lengths": lengths, "counts": counts, "costs": costs, "chances": chances}
    slots |= {"space": space, "time": time, "classes": classes, "labels": labels, "blank": blank}
    slots["row"] = rowSize(labels)
    return [KernelCall(sized("alignments {}x{}x{}", n, time, classes), str(jit.lanes(4)), writeAlignments, slots, n)]


def writeAlignments(code: IRBuilder) -> None:
    """Forward, then backward with the probabilities of classes."""
    AlignmentWriter(code).write()


def within(code: IRBuilder, value: IRValue, limit: IRValue) -> IRValue:
    """Clamp an integer to 0 .. limit: integers that the step computes have not been checked before."""
    positive = code.select(value > 0, value, code.cast(0, IRType("i64")))
    return code.select(positive < limit, positive, limit)


class AlignmentWriter:
    """The arguments of one sample, and the parts of its kernel."""

    def __init__(self, code: IRBuilder):
        self.code, self.lanes = code, jit.lanes(4)
        logs, index = code.pointer("logs", "f32"), code.pointer("index", "i64")
        lengths, counts = code.pointer("lengths", "i64"), code.pointer("counts", "i64")
        costs, chances, space = (code.pointer(name, "f32") for name in ("costs", "chances", "space"))
        self.time, self.classes, self.labels, self.blank, self.row = (
            code.integer(name) for name in ("time", "classes", "labels", "blank", "row")
        )
        sample = code.task
        self.states = self.labels * 2 + 1
        self.logs, self.chances = (x.at(sample * self.time * self.classes) for x in (logs, chances))
        self.index, self.cost = index.at(sample * self.labels), costs.at(sample)
        self.length = within(code, lengths.load(sample), self.time)
        self.count = within(code, counts.load(sample), self.labels)
        rows = space.at(sample * (self.time + (1 + EXTRA_ROWS + 1)) * self.row)
        self.ahead = rows
        last = rows.at((self.time + 1) * self.row)
        self.back, self.later, self.there, self.passes = (last.at(self.row * i) for i in range(4))
        self.kinds = last.at(self.row * 4).cast("i64")

    def write(self) -> None:
        """Write the kernel."""
        self.prepare()
        self.forward()
        self.backward()

    def each(self, body: Callable[[IRValue], None]) -> None:
        """A loop over vectors of a row; the last one may reach into the gap behind."""
        with self.code.loop(0, self.states, self.lanes, unroll=1) as s:
            body(s)

    def vector(self, number: float) -> IRValue:
        return self.code.constant(number, IRType("f32", self.lanes))

    def prepare(self) -> None:
        """Write the class of each state, the allowed skips, the row before the first time step, and zero chances."""
        code = self.code
        with code.loop(0, self.row) as s:
            self.kinds.store(s, self.blank)
            for row in (self.passes, self.back, self.later, self.ahead):
                row.store(s, code.cast(NEVER, IRType("f32")))
        self.ahead.store(FRONT, code.cast(0.0, IRType("f32")))
        with code.loop(0, self.labels) as i:
            label = self.index.load(i)
            with code.when(label >= 0):
                self.kinds.store(i * 2 + 1, label)
                with code.when(i > 0):
                    isOther = (label != self.index.load(i - 1)) & (label != self.blank)
                    free = code.select(isOther, code.cast(0.0, IRType("f32")), code.cast(NEVER, IRType("f32")))
                    self.passes.store(i * 2 + 1, free)
        with code.loop(0, self.time * self.classes) as i:
            self.chances.store(i, code.cast(0.0, IRType("f32")))

    def emitted(self, t: IRValue, s: IRValue) -> IRValue:
        """The logarithms of a vector of states at a time step; padding states have the class of a blank."""
        return self.logs.at(t * self.classes).gather(self.kinds.load(s, self.lanes))

    def forward(self) -> None:
        """Rows 1 to `length` of the forward pass."""
        code = self.code
        with code.loop(0, self.length, unroll=1) as t:
            old, new = self.ahead.at(t * self.row), self.ahead.at((t + 1) * self.row)
            for i in range(FRONT):
                new.store(i, code.cast(NEVER, IRType("f32")))

            def advance(s: IRValue, t: IRValue = t, old: IRPointer = old, new: IRPointer = new) -> None:
                same, before = old.load(s + FRONT, self.lanes), old.load(s + (FRONT - 1), self.lanes)
                passed = old.load(s, self.lanes) + self.passes.load(s, self.lanes)
                new.store(s + FRONT, self.joined(same, before, passed) + self.emitted(t, s))

            self.each(advance)

    def backward(self) -> None:
        """The cost, and the probabilities from the last step to the first."""
        code = self.code
        end = self.count * 2
        last = self.ahead.at(self.length * self.row)
        a, b = last.load(end + FRONT), last.load(end + (FRONT - 1))
        ends = self.joined(code.splat(a, self.lanes), code.splat(b, self.lanes), self.vector(NEVER))
        total = code.extract(ends, 0)
        isPossible = ~(total <= 0.1 * NEVER)  # nan is a number that went wrong
        self.cost.store(0, code.select(isPossible, -total, code.cast(float("inf"), IRType("f32"))))
        offset = code.splat(code.select(isPossible, total, code.cast(0.0, IRType("f32"))), self.lanes)
        self.back.store(end, code.cast(0.0, IRType("f32")))
        with code.when(self.count > 0):
            self.back.store(end - 1, code.cast(0.0, IRType("f32")))
        with code.loop(0, self.length, unroll=1) as k:
            t = self.length - 1 - k
            ahead = self.ahead.at((t + 1) * self.row)

            def retreat(s: IRValue) -> None:
                same, after = self.later.load(s, self.lanes), self.later.load(s + 1, self.lanes)
                passed = self.later.load(s + 2, self.lanes) + self.passes.load(s + 2, self.lanes)
                self.back.store(s, self.joined(same, after, passed))

            with code.when(k > 0):
                self.each(retreat)

            def meet(s: IRValue, t: IRValue = t, ahead: IRPointer = ahead) -> None:
                back = self.back.load(s, self.lanes)
                both = ahead.load(s + FRONT, self.lanes) + back - offset
                self.there.store(s, expBelow(code, code.select(both > 0.0, self.vector(0.0), both)))
                self.later.store(s, back + self.emitted(t, s))

            self.each(meet)
            for i in range(FRONT):
                self.later.store(self.states + i, code.cast(NEVER, IRType("f32")))
            to = self.chances.at(t * self.classes)
            with code.loop(0, end + 1) as s:
                kind = self.kinds.load(s)
                to.store(kind, to.load(kind) + self.there.load(s))

    def joined(self, a: IRValue, b: IRValue, c: IRValue) -> IRValue:
        """ln(exp a + exp b + exp c): the largest and the logarithm of a sum from 1 to 3."""
        code = self.code
        most = code.select(a > b, a, b)
        most = code.select(c > most, c, most)
        total = expBelow(code, a - most) + expBelow(code, b - most) + expBelow(code, c - most)
        return most + logOfSum(code, total)


def logOfSum(code: IRBuilder, total: IRValue) -> IRValue:
    """The logarithm of a number from 1 to 3. Adding `total - total`, which is 0 but for nan, lets nan through."""
    e, f = split(code, total)
    return logNear(code, f, code.convert(e, "f32")) + (total - total)
