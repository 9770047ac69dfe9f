"""AttentionForward: online softmax over blocks of keys."""

from __future__ import annotations

from puregraph.ops.attention.native.attentionwriter import FLOOR, AttentionWriter
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue, IRVariable
from puregraph.ops.native.math.explog import expBelow, log
from puregraph.ops.product.native.broadcastfma import BroadcastRows


class AttentionForward(AttentionWriter):
    """The forward kernel: a task is a block of queries of one head; the last blocks come first, because they cost most
    if causal."""

    def write(self) -> None:
        code, plan, columns = self.code, self.plan, self.columns
        q, k, v, y = (self.rows(name) for name in "qkvy")
        lse = code.pointer("lse", self.real)
        head, sample = code.task // self.blocks % self.heads, code.task // (self.blocks * self.heads)
        first = (self.blocks - 1 - code.task % self.blocks) * columns
        live = code.min(self.queries - first, columns)
        keyHead = head // self.group
        keys, values = k(sample, keyHead), v(sample, keyHead)
        self.findMask(sample, head, first)
        self.findLimits(sample)

        query, result = code.scratch(self.real, plan.width * columns), code.scratch(self.real, plan.out * columns)
        self.scores = code.scratch(self.real, plan.block * columns)
        self.loadTransposed(q(sample, head).down(first), live, query, plan.width, plan.scale)
        self.clear(result, plan.out * columns)
        maxima, total = self.variables(FLOOR), self.variables(0.0)
        begin, stop = self.visible(first, live)
        with code.loop(begin, stop, plan.block, unroll=1) as start:
            count = code.min(stop - start, plan.block)
            self.transposeMask(start, count, live)
            old = [x.value for x in maxima]
            self.score(keys.down(start), query, start, first, count, maxima)
            rescale = [expBelow(code, before - x.value) for before, x in zip(old, maxima)]
            self.weigh(count, maxima, total, rescale)
            self.accumulate(values.down(start), count, self.scores, result, plan.out, rescale)
        self.finish(
            result,
            y(sample, head).down(first),
            lse.at((sample * self.heads + head) * self.queries + first),
            live,
            maxima,
            total,
        )

    def score(
        self,
        keys: BroadcastRows,
        query: IRPointer,
        start: IRValue,
        first: IRValue,
        count: IRValue,
        maxima: list[IRVariable],
    ) -> None:
        """The scores of a block of keys, and the running maximum of each query."""

        def tile(j: IRValue, _: list[IRValue], scores: list[list[IRValue]]) -> None:
            for r, row in enumerate(scores):
                for u, x, maximum in zip(self.across(), row, maxima):
                    self.scores.store((j + r) * self.columns + u, x)
                    maximum.value = self.code.select(x > maximum.value, x, maximum.value)

        self.scoreTiles(keys, query, start, first, count, tile)

    def weigh(self, count: IRValue, maxima: list[IRVariable], total: list[IRVariable], rescale: list[IRValue]) -> None:
        """Online softmax: scores become exp(score - maximum), and are added to the rescaled sums."""
        code = self.code
        maximum = [x.value for x in maxima]
        for sums, f in zip(total, rescale):
            sums.value = sums.value * f
        with code.loop(0, count, 1, unroll=2) as j:
            address = self.scores.at(j * self.columns)
            for u, m, sums in zip(self.across(), maximum, total):
                p = expBelow(code, address.load(u, self.lanes) - m)
                address.store(u, p)
                sums.value = sums.value + p

    def finish(
        self,
        result: IRPointer,
        y: BroadcastRows,
        lse: IRPointer,
        live: IRValue,
        maxima: list[IRVariable],
        total: list[IRVariable],
    ) -> None:
        code, lanes = self.code, self.lanes
        factors = code.scratch(self.real, self.columns)
        for u, maximum, sums in zip(self.across(), maxima, total):
            seen = code.select(sums.value == 0.0, 1.0, sums.value)
            factors.store(u, 1.0 / seen)
            lse.store(u, maximum.value + log(code, seen), code.mask(live - u, lanes))
        self.storeTransposed(result, y, live, self.plan.out, factors)
