"""AttentionQuery: one query, as of the next token of a text, vectorised along its width at the speed of memory."""

from __future__ import annotations

from puregraph.ops.attention.native.attentionwriter import FLOOR, HIDDEN, AttentionWriter
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue, IRVariable
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.native.math.explog import expBelow, log, tanh
from puregraph.ops.product.native.broadcastfma import BroadcastRows

MAX_VECTORS = 16  # most vectors of a query, and of a result, which stay in registers


def takesWidth(width: int, lanes: int) -> bool:
    """True if a row is of whole vectors, and of few."""
    return width % lanes == 0 and width <= MAX_VECTORS * lanes


class AttentionQuery(AttentionWriter):
    """A task is a head of one sample. The keys that one query sees by its position follow each other.

    The products of a vector of keys with the query are added up by a transpose in registers.
    """

    def write(self) -> None:
        code, plan, lanes = self.code, self.plan, self.lanes
        q, k, v, y = (self.rows(name) for name in "qkvy")
        lse = code.pointer("lse", self.real)
        head, sample = code.task % self.heads, code.task // self.heads
        keys, values = k(sample, head // self.group), v(sample, head // self.group)
        self.findLimits(sample)
        begin, stop = self.visible(code.i64(0), code.i64(1))
        row = q(sample, head).at(0)
        self.query = [row.load(c, lanes) * plan.scale for c in range(0, plan.width, lanes)]
        self.scores = code.scratch(self.real, plan.block + lanes)
        maxima, total = (code.variable(code.constant(start, self.vector)) for start in (FLOOR, 0.0))
        sums = [code.variable(code.constant(0.0, self.vector)) for _ in range(0, plan.out, lanes)]
        with code.loop(begin, stop, plan.block, unroll=1) as start:
            count = code.min(stop - start, plan.block)
            old = self.most(maxima)
            self.score(keys.down(start), count, maxima)
            high = self.most(maxima)
            rescale = expBelow(code, old - high)
            for x in (total, *sums):
                x.value = x.value * rescale
            with code.loop(0, count, lanes, unroll=1) as j:
                p = expBelow(code, self.scores.load(j, lanes) - high)
                self.scores.store(j, p)
                total.value = total.value + p
            self.accumulateRows(values.down(start), count, sums)
        weights = code.splat(code.sumLanes(total.value), lanes)
        seen = code.select(weights == 0.0, 1.0, weights)
        for i, x in enumerate(sums):
            y(sample, head).at(0).store(i * lanes, x.value / seen)
        lse.at(sample * self.heads + head).store(0, code.extract(self.most(maxima) + log(code, seen), 0))

    def most(self, maxima: IRVariable) -> IRValue:
        """The largest lane, in all lanes."""
        high = self.code.reduce(maxima.value, lambda a, b: self.code.select(a > b, a, b))
        return self.code.splat(high, self.lanes)

    def score(self, keys: BroadcastRows, count: IRValue, maxima: IRVariable) -> None:
        """The scores of a block of keys, -inf beyond the last, and the running maxima."""
        code, lanes = self.code, self.lanes
        with code.loop(0, count, lanes, unroll=1) as j:
            products = [self.product(keys.at(code.min(j + r, count - 1))) for r in range(lanes)]
            terms = transposed(code, products)
            while len(terms) > 1:
                terms = [a + b for a, b in zip(terms[::2], terms[1::2])]
            x, cap = terms[0], self.plan.reach.cap
            x = x if cap is None else tanh(code, x * (1 / cap)) * cap
            x = code.select(code.mask(count - j, lanes), x, HIDDEN)
            self.scores.store(j, x)
            maxima.value = code.select(x > maxima.value, x, maxima.value)

    def product(self, key: IRPointer) -> IRValue:
        """A key times the query, in as many sums as a vector has lanes."""
        total = key.load(0, self.lanes) * self.query[0]
        for i, x in enumerate(self.query[1:], 1):
            total = self.code.fma(key.load(i * self.lanes, self.lanes), x, total)
        return total

    def accumulateRows(self, values: BroadcastRows, count: IRValue, sums: list[IRVariable]) -> None:
        """Add the weighted values of a block."""
        code, lanes = self.code, self.lanes
        with code.loop(0, count, unroll=2) as j:
            p, row = code.splat(self.scores.load(j), lanes), values.at(j)
            for i, x in enumerate(sums):
                x.value = code.fma(p, row.load(i * lanes, lanes), x.value)
