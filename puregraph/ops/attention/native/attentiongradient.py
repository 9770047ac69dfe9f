"""AttentionGradient: gradients of queries, keys and values from scores that are computed again."""

from __future__ import annotations

from typing import Any

from puregraph.ops.attention.native.attentionwriter import AttentionWriter
from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.math.explog import expBelow
from puregraph.ops.product.native.broadcastfma import BroadcastRows, broadcastFma


class AttentionGradient(AttentionWriter):
    """A task is a head of keys of one sample, with all the queries that it meets."""

    def write(self) -> None:
        code, plan, columns = self.code, self.plan, self.columns
        g, q, k, v, dq, dk, dv = (self.rows(name) for name in ("g", "q", "k", "v", "dq", "dk", "dv"))
        lse, delta = code.pointer("lse", self.real), code.pointer("rest", self.real)
        keyHeads = self.heads // self.group
        keyHead, sample = code.task % keyHeads, code.task // keyHeads
        self.findLimits(sample)
        keys, values = k(sample, keyHead), v(sample, keyHead)
        dKeys, dValues = dk(sample, keyHead), dv(sample, keyHead)
        self.zero(dKeys, plan.width)
        self.zero(dValues, plan.out)

        query, grad = code.scratch(self.real, plan.width * columns), code.scratch(self.real, plan.out * columns)
        dQuery = code.scratch(self.real, plan.width * columns)
        self.weights, self.changes = (code.scratch(self.real, plan.block * columns) for _ in range(2))
        with code.loop(0, self.group, unroll=1) as member, code.loop(0, self.blocks, unroll=1) as block:
            head, first = keyHead * self.group + member, block * columns
            live = code.min(self.queries - first, columns)
            self.findMask(sample, head, first)
            queries, grads = q(sample, head).down(first), g(sample, head).down(first)
            self.loadTransposed(queries, live, query, plan.width, plan.scale)
            self.loadTransposed(grads, live, grad, plan.out)
            self.clear(dQuery, plan.width * columns)
            row = (sample * self.heads + head) * self.queries + first
            masks = [code.mask(live - u, self.lanes) for u in self.across()]
            rowTerms = [
                (lse.load(row + u, self.lanes, mask), delta.load(row + u, self.lanes, mask))
                for u, mask in zip(self.across(), masks)
            ]
            begin, stop = self.visible(first, live)
            with code.loop(begin, stop, plan.block, unroll=1) as start:
                count = code.min(stop - start, plan.block)
                self.transposeMask(start, count, live)
                self.weigh(keys.down(start), values.down(start), query, grad, start, first, count, rowTerms)
                self.accumulate(keys.down(start), count, self.changes, dQuery, plan.width, None)
                self.spread(self.weights, count, grads, live, dValues.down(start), plan.out)
                self.spread(self.changes, count, queries, live, dKeys.down(start), plan.width)
            self.storeTransposed(dQuery, dq(sample, head).down(first), live, plan.width)

    def zero(self, rows: BroadcastRows, width: int) -> None:
        code, lanes = self.code, self.lanes
        with code.loop(0, self.keys, unroll=1) as j:
            for c in range(0, width, lanes):
                mask = None if c + lanes <= width else code.mask(width - c, lanes)
                rows.at(j).store(c, code.constant(0.0, self.vector), mask)

    def weigh(
        self,
        keys: BroadcastRows,
        values: BroadcastRows,
        query: IRPointer,
        grad: IRPointer,
        start: IRValue,
        first: IRValue,
        count: IRValue,
        rowTerms: list[tuple[IRValue, IRValue]],
    ) -> None:
        """p = exp(score - lse) and scale ds = scale p (grad v' - rest) for a block of keys."""
        code, plan = self.code, self.plan

        def tile(j: IRValue, indices: list[IRValue], scores: list[list[IRValue]]) -> None:
            slopes = self.slopes
            for r, row in enumerate(scores):
                for u, x, (lse, _) in zip(self.across(), row, rowTerms):
                    self.weights.store((j + r) * self.columns + u, expBelow(code, x - lse))
            for r, row in enumerate(self.dots(values, indices, grad, plan.out)):
                for i, (u, x, (_, delta)) in enumerate(zip(self.across(), row, rowTerms)):
                    p = self.weights.load((j + r) * self.columns + u, self.lanes)
                    change = (x - delta) * p * plan.scale
                    self.changes.store((j + r) * self.columns + u, change * slopes[r][i] if slopes else change)

        self.scoreTiles(keys, query, start, first, count, tile)
        zero, rows = code.constant(0.0, self.vector), self.tile.rows
        end = (count + (rows - 1)) // rows * rows
        with code.loop(count * self.columns, end * self.columns, self.lanes, unroll=1) as i:
            self.weights.store(i, zero)
            self.changes.store(i, zero)

    def spread(
        self, weights: IRPointer, count: IRValue, rows: BroadcastRows, live: IRValue, to: BroadcastRows, width: int
    ) -> None:
        """Row j of `to` += sum over queries i of weights[j, i] row i; beyond the last, weights are 0."""
        code, lanes, step = self.code, self.lanes, self.columns
        for c in range(0, width, step):
            columnStarts = [c + u for u in self.across() if c + u < width]
            masks = [None if x + lanes <= width else code.mask(width - x, lanes) for x in columnStarts]

            def tile(j: IRValue, height: int, columnStarts: list[int] = columnStarts, masks: list[Any] = masks) -> None:
                weightRow = weights.at(j * self.columns)
                targets = [to.at(code.min(j + r, count - 1)) for r in range(height)]
                products = broadcastFma(
                    code,
                    lanes,
                    live,
                    height,
                    lambda i, r: weightRow.at(i).load(r * self.columns),
                    lambda i: [rows.at(i).load(x, lanes, mask) for x, mask in zip(columnStarts, masks)],
                    self.zeros(height, len(columnStarts)),
                )
                for target, row in zip(targets, products):
                    for x, total, mask in zip(columnStarts, row, masks):
                        target.store(x, target.load(x, lanes, mask) + total, mask)

            self.tiles(count, tile)
