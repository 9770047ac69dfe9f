"""Transducer paths: the native kernel. A task has a sample, and goes through its (t, u) one by one, in log space.

The forward pass keeps a row for each time step. Two more rows hold the scores that enter the next time step, and in
the backward pass those of the time step after it.
"""

from __future__ import annotations

from typing import Any

from puregraph.core.opensize import sized
from puregraph.ops.alignment.native import logOfSum, within
from puregraph.ops.alignment.reference import NEVER
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.math.explog import expBelow


def latticeSize(n: int, time: int, rows: int) -> int:
    """The float32 elements that all samples need."""
    return n * (time + 2) * rows


def transductions(
    logs: Any, index: Any, lengths: Any, counts: Any, costs: Any, chances: Any, space: Any, sizes: tuple, blank: int
) -> list[KernelCall]:
    """costs and chances of n samples, t time steps, s + 1 rows and c classes, all arrays without gaps."""
    n, time, rows, classes = sizes
    slots = {"logs": logs, "index": index, "lengths": lengths, "counts": counts, "costs": costs, "chances": chances}
    slots |= {"space": space, "time": time, "rows": rows, "classes": classes, "blank": blank}
    return [KernelCall(sized("transductions {}x{}x{}", n, time, rows), str(jit.lanes(4)), writeTransductions, slots, n)]


def writeTransductions(code: IRBuilder) -> None:
    """Forward, then backward with the probabilities of classes."""
    writer = LatticeWriter(code)
    writer.forward()
    writer.backward()


class LatticeWriter:
    """The arguments of one sample, and the two parts of its kernel."""

    def __init__(self, code: IRBuilder):
        self.code, self.lanes = code, jit.lanes(4)
        logs, index = code.pointer("logs", "f32"), code.pointer("index", "i64")
        lengths, counts = code.pointer("lengths", "i64"), code.pointer("counts", "i64")
        costs, chances, space = (code.pointer(name, "f32") for name in ("costs", "chances", "space"))
        self.time, self.rows, self.classes, self.blank = (
            code.integer(name) for name in ("time", "rows", "classes", "blank")
        )
        sample = code.task
        self.logs, self.chances = (x.at(sample * self.time * self.rows * self.classes) for x in (logs, chances))
        self.index, self.cost = index.at(sample * (self.rows - 1)), costs.at(sample)
        self.length = within(code, lengths.load(sample), self.time)
        self.count = within(code, counts.load(sample), self.rows - 1)
        self.ahead = space.at(sample * (self.time + 2) * self.rows)
        self.entering = self.ahead.at(self.time * self.rows)
        self.later = self.entering.at(self.rows)

    def single(self, number: float) -> IRValue:
        return self.code.cast(number, IRType("f32"))

    def label(self, u: IRValue) -> IRValue:
        """Label u, kept within the classes."""
        return within(self.code, self.index.load(u), self.classes - 1)

    def at(self, t: IRValue, u: IRValue) -> IRValue:
        """The first class at (t, u)."""
        return (t * self.rows + u) * self.classes

    def forward(self) -> None:
        """The rows of the forward pass, zero probabilities, and the cost."""
        code = self.code
        with code.loop(0, self.rows) as u:
            self.entering.store(u, self.single(NEVER))
            self.later.store(u, self.single(NEVER))
        self.entering.store(0, self.single(0.0))
        with code.loop(0, self.time * self.rows * self.classes) as i:
            self.chances.store(i, self.single(0.0))
        taken = code.variable(self.single(NEVER))
        with code.loop(0, self.length, unroll=1) as t:
            taken.value = self.single(NEVER)
            with code.loop(0, self.count + 1, unroll=1) as u:
                logs = self.logs.at(self.at(t, u))
                value = self.joined(self.entering.load(u), taken.value)
                self.ahead.store(t * self.rows + u, value)
                self.entering.store(u, value + logs.load(self.blank))
                with code.when(u < self.count):
                    taken.value = value + logs.load(self.label(u))
        total = self.entering.load(self.count)
        self.isPossible = ~(total <= 0.1 * NEVER) & (self.length > 0)  # nan is a number that went wrong
        self.cost.store(0, code.select(self.isPossible, -total, self.single(float("inf"))))
        self.offset = code.select(self.isPossible, total, self.single(0.0))

    def backward(self) -> None:
        """The probabilities, from the last time step to the first."""
        code = self.code
        taken, label = code.variable(self.single(NEVER)), code.variable(self.single(NEVER))
        with code.loop(0, self.length, unroll=1) as k:
            t = self.length - 1 - k
            taken.value = self.single(NEVER)
            with code.loop(0, self.count + 1, unroll=1) as j:
                u = self.count - j
                first = self.at(t, u)
                logs, chances = self.logs.at(first), self.chances.at(first)
                isEnd = (k < 1) & (j < 1)
                onward = logs.load(self.blank) + code.select(isEnd, self.single(0.0), self.later.load(u))
                before = self.ahead.load(t * self.rows + u) - self.offset
                chances.store(self.blank, self.probability(before + onward))
                label.value = self.single(NEVER)
                with code.when(u < self.count):
                    kind = self.label(u)
                    label.value = logs.load(kind) + taken.value
                    chances.store(kind, chances.load(kind) + self.probability(before + label.value))
                taken.value = self.joined(onward, label.value)
                self.later.store(u, taken.value)

    def probability(self, x: IRValue) -> IRValue:
        """exp(x) of a number that is at most 0 but for rounding."""
        code = self.code
        below = code.select(x > 0.0, self.single(0.0), x)
        return code.extract(expBelow(code, code.splat(below, self.lanes)), 0)

    def joined(self, first: IRValue, second: IRValue) -> IRValue:
        """ln(exp first + exp second): the larger one and the logarithm of a sum from 1 to 2."""
        code = self.code
        a, b = code.splat(first, self.lanes), code.splat(second, self.lanes)
        most = code.select(a > b, a, b)
        return code.extract(most + logOfSum(code, expBelow(code, a - most) + expBelow(code, b - most)), 0)
