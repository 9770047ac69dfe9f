"""AttentionWriter: loads, dot products, masks and limits that both directions of attention share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.native.math.explog import tanh
from puregraph.ops.product.native.broadcastfma import BroadcastRows, broadcastFma

if TYPE_CHECKING:
    from puregraph.ops.attention.native.attentioncalls import AttentionSpec

FLOOR = -1e30  # a score below this counts as masked
HIDDEN = float("-inf")


class AttentionWriter:
    """The base of the forward and the gradient kernel."""

    def __init__(self, code: IRBuilder, plan: AttentionSpec):
        self.code, self.plan, self.tile = code, plan, plan.tile
        self.lanes, self.columns = plan.tile.lanes, plan.tile.columns
        self.real = plan.tile.real
        self.vector = IRType(self.real, self.lanes)
        self.heads, self.group = code.integer("heads"), code.integer("group")
        self.queries, self.keys, self.blocks = (code.integer(name) for name in ("queries", "keys", "blocks"))
        kinds = {"offset": plan.reach.offset, "lengths": plan.reach.lengths}
        arrays = {"lengths", *(["offset"] if plan.reach.isOffsetArray else [])}
        self.numbers: dict[str, Any] = {
            name: code.pointer(name, kind) if name in arrays else code.integer(name)
            for name, kind in kinds.items()
            if kind is not None
        }
        self.window = code.integer("window") if plan.reach.hasWindow else None
        self.slopes: list[list[IRValue]] = []
        self.maskScratch = None
        if plan.mask is not None:
            self.maskPointer = code.pointer("mask", plan.mask.kind)
            self.maskStrides = [code.integer("mask" + axis) for axis in ("Sample", "Head", "Row")]
            if not plan.mask.sameRows:
                self.maskScratch = code.scratch(self.real, (plan.block + self.lanes) * self.columns)

    def rows(self, name: str) -> Callable[[IRValue, IRValue], BroadcastRows]:
        """The rows of a sample and head."""
        address = self.code.pointer(name, self.real)
        sample, head, row = (self.code.integer(name + axis) for axis in ("Sample", "Head", "Row"))
        return lambda n, h: BroadcastRows(address.at(n * sample + h * head), row)

    def across(self) -> list[int]:
        """The first columns of the vectors of a tile."""
        return [u * self.lanes for u in range(self.tile.vectors)]

    def loadAll(self, address: IRPointer, index: IRValue | int) -> list[IRValue]:
        at = address.at(index)
        return [at.load(u, self.lanes) for u in self.across()]

    def loadTransposed(
        self, rows: BroadcastRows, live: IRValue, scratch: IRPointer, width: int, scale: float = 1.0
    ) -> None:
        """scratch[c, i] = scale row i [c]: rows transposed into scratch memory; the last row repeats."""
        code, lanes = self.code, self.lanes

        def block(u: IRValue, c: IRValue | int, count: int) -> None:
            mask = None if count == lanes else code.mask(count, lanes)
            taken = [rows.at(code.min(u + i, live - 1)).at(c).load(0, lanes, mask) for i in range(lanes)]
            for i, column in enumerate(transposed(code, taken)[:count]):
                scratch.store((c + i) * self.columns + u, column * scale if scale != 1 else column)

        with code.loop(0, self.columns, lanes, unroll=1) as u:
            self.vectorBlocks(width, lambda c, count: block(u, c, count))

    def storeTransposed(
        self, scratch: IRPointer, rows: BroadcastRows, live: IRValue, width: int, factors: IRPointer | None = None
    ) -> None:
        """Row i [c] = factor i scratch[c, i]: transposed back to rows."""
        code, lanes = self.code, self.lanes

        def block(u: IRValue, c: IRValue | int, count: int) -> None:
            taken = [scratch.load((c + i) * self.columns + u, lanes) for i in range(count)]
            if factors is not None:
                factor = factors.load(u, lanes)
                taken = [x * factor for x in taken]
            taken += [taken[0]] * (lanes - count)
            for i, row in enumerate(transposed(code, taken)):
                mask = code.mask(code.select(u + i < live, code.i64(count), code.i64(0)), lanes)
                rows.at(code.min(u + i, live - 1)).at(c).store(0, row, mask)

        with code.loop(0, self.columns, lanes, unroll=1) as u:
            self.vectorBlocks(width, lambda c, count: block(u, c, count))

    def vectorBlocks(self, width: int, body: Callable[[Any, int], None]) -> None:
        """A width in blocks of a vector, then the remainder."""
        left = width % self.lanes
        if width > left:
            with self.code.loop(0, width - left, self.lanes, unroll=1) as c:
                body(c, self.lanes)
        if left:
            body(self.code.i64(width - left), left)

    def tiles(self, count: IRValue | int, body: Callable[[IRValue, int], None]) -> None:
        """A range in register tiles of rows. The last may go beyond; it is smaller where the count is constant."""
        rows = self.tile.rows
        left = count % rows if isinstance(count, int) else 0
        if not isinstance(count, int) or count > left:
            with self.code.loop(0, count - left, rows, unroll=1) as j:
                body(j, rows)
        if left:
            body(self.code.i64(count - left), left)

    def zeros(self, rows: int, vectors: int) -> list[list[IRValue]]:
        return [[self.code.constant(0.0, self.vector)] * vectors for _ in range(rows)]

    def dots(self, rows: BroadcastRows, indices: list[IRValue], scratch: IRPointer, width: int) -> list[list[IRValue]]:
        """Rows times the transposed queries: the dot products of each row with all queries of the block."""
        columnStarts = [rows.at(index) for index in indices]
        return broadcastFma(
            self.code,
            self.lanes,
            width,
            len(columnStarts),
            lambda c, r: columnStarts[r].load(c),
            lambda c: self.loadAll(scratch, c * self.columns),
            self.zeros(len(columnStarts), self.tile.vectors),
        )

    def accumulate(
        self,
        rows: BroadcastRows,
        count: IRValue,
        weights: IRPointer,
        scratch: IRPointer,
        width: int,
        rescale: list[IRValue] | None,
    ) -> None:
        """scratch[c, i] = rescale i scratch[c, i] + sum over j < count of row j [c] weights[j, i]."""

        def tile(c: IRValue, height: int) -> None:
            address = rows.start.at(c)
            starts = [self.loadAll(scratch, (c + r) * self.columns) for r in range(height)]
            if rescale is not None:
                starts = [[x * f for x, f in zip(row, rescale)] for row in starts]
            sums = broadcastFma(
                self.code,
                self.lanes,
                count,
                height,
                lambda j, r: address.at(j * rows.stride).load(r),
                lambda j: self.loadAll(weights, j * self.columns),
                starts,
            )
            for r, row in enumerate(sums):
                for u, x in zip(self.across(), row):
                    scratch.store((c + r) * self.columns + u, x)

        self.tiles(width, tile)

    def findLimits(self, sample: IRValue) -> None:
        """The offset of the queries and the number of keys of a sample."""
        code = self.code

        def number(name: str, otherwise: IRValue) -> IRValue:
            what = self.numbers.get(name)
            if not isinstance(what, IRPointer):
                return otherwise if what is None else what
            return code.convert(what.at(sample).load(), "i64")

        self.shift = number("offset", code.i64(0))
        lengths = number("lengths", self.keys)
        self.limit = code.max(code.min(lengths, self.keys), 0) if "lengths" in self.numbers else self.keys

    def visible(self, first: IRValue, live: IRValue) -> tuple[IRValue | int, IRValue]:
        """The range of the keys visible to some query of the block."""
        code = self.code
        if not self.plan.causal:
            return 0, self.limit
        if "offset" not in self.numbers:
            stop = code.min(self.limit, first + live)
        else:
            stop = code.max(code.min(self.limit, first + live + self.shift), 0)
        if self.window is None:
            return 0, stop
        return code.min(code.max(first + self.shift - self.window + 1, 0), stop), stop

    def scoreTiles(
        self,
        keys: BroadcastRows,
        query: IRPointer,
        start: IRValue,
        first: IRValue,
        count: IRValue,
        body: Callable[[IRValue, list[IRValue], list[list[IRValue]]], None],
    ) -> None:
        """The scores of a block of keys, in tiles: body(first key, all keys (the last repeats), scores)."""
        code = self.code

        def tile(j: IRValue, rows: int) -> None:
            indices = [code.min(j + r, count - 1) for r in range(rows)]
            scores = self.dots(keys, indices, query, self.plan.width)
            if self.plan.reach.cap is not None:
                scores = self.capped(scores, self.plan.reach.cap)
            body(j, indices, [self.hidden(row, start, i, first) for row, i in zip(scores, indices)])

        self.tiles(count, tile)

    def capped(self, scores: list[list[IRValue]], cap: float) -> list[list[IRValue]]:
        """cap tanh(score / cap); its slopes are kept."""
        squashed = [[tanh(self.code, x * (1 / cap)) for x in row] for row in scores]
        self.slopes = [[1.0 - t * t for t in row] for row in squashed]
        return [[t * cap for t in row] for row in squashed]

    def hidden(self, row: list[IRValue], start: IRValue, j: IRValue, first: IRValue) -> list[IRValue]:
        """The scores of key start + j with the mask added, -inf where masked."""
        code, lanes = self.code, self.lanes
        if self.plan.mask is not None:
            row = self.masked(row, start, j)
        if self.plan.causal:
            at = start + j - first
            at = at - self.shift if "offset" in self.numbers else at
            key = code.splat(code.convert(at, "i32"), lanes)
            row = [code.select(code.iota(lanes, "i32") + u < key, HIDDEN, x) for u, x in zip(self.across(), row)]
        if self.window is not None:
            end = code.splat(code.convert(at + self.window, "i32"), lanes)
            row = [code.select(code.iota(lanes, "i32") + u < end, x, HIDDEN) for u, x in zip(self.across(), row)]
        return row

    def masked(self, row: list[IRValue], start: IRValue, j: IRValue) -> list[IRValue]:
        if self.maskScratch is not None:
            return [x + m for x, m in zip(row, self.loadAll(self.maskScratch, j * self.columns))]
        index = self.code.i64(0) if self.plan.mask is None or self.plan.mask.sameColumns else start + j
        value = self.asAdded(self.maskRows.start.load(index))
        return [x + value for x in row]

    def asAdded(self, value: IRValue) -> IRValue:
        """An element of a mask as a term of a score: 0 or -inf for bools."""
        code = self.code
        if value.type.isFloat:
            return code.convert(value, self.real)
        return code.select(value != 0, code.constant(0.0, IRType(self.real, value.lanes)), HIDDEN)

    def findMask(self, sample: IRValue, head: IRValue, first: IRValue) -> None:
        """The rows of the mask for a block of queries."""
        if self.plan.mask is not None:
            perSample, perHead, perRow = self.maskStrides
            address = self.maskPointer.at(sample * perSample + head * perHead + first * perRow)
            self.maskRows = BroadcastRows(address, perRow)

    def transposeMask(self, start: IRValue, count: IRValue, live: IRValue) -> None:
        """The mask for a block of keys, transposed as the scores are."""
        code, lanes, form, scratch = self.code, self.lanes, self.plan.mask, self.maskScratch
        if form is None or scratch is None:
            return
        with code.loop(0, self.columns, lanes, unroll=1) as u, code.loop(0, count, lanes, unroll=1) as j:
            taken = []
            for i in range(lanes):
                address = self.maskRows.at(code.min(u + i, live - 1))
                if form.sameColumns:
                    taken.append(code.splat(self.asAdded(address.load()), lanes))
                else:
                    taken.append(self.asAdded(address.load(start + j, lanes, code.mask(count - j, lanes))))
            for i, column in enumerate(transposed(code, taken)):
                scratch.store((j + i) * self.columns + u, column)

    def clear(self, scratch: IRPointer, count: int) -> None:
        with self.code.loop(0, count, self.lanes) as c:
            scratch.store(c, self.code.constant(0.0, self.vector))

    def variables(self, start: float) -> list[IRVariable]:
        return [self.code.variable(self.code.constant(start, self.vector)) for _ in range(self.tile.vectors)]
