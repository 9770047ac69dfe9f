"""Flash attention: the native implementations of `attention.reference`: online softmax over blocks of keys.

It is vectorised along queries, so that the running maximum and the sum of exponentials of each stay in a lane, without
horizontal reductions. Elements of keys and values are read in order and broadcast; only the queries are transposed.
The scores of a block of keys stay in L1.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.native.llvm.instructions import SIZES, IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.native.math.explog import expBelow, log, tanh
from puregraph.ops.product.native.broadcastfma import BroadcastRows, BroadcastTile, broadcastFma, tileFor

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value

FLOOR = -1e30  # a score below this counts as masked
HIDDEN = float("-inf")
KEYS = 128  # keys of a block; half as many in the gradient


class Heads(NamedTuple):
    """An array of rows, with the strides of samples, heads and rows (positions); a row is contiguous."""

    what: Any
    strides: tuple[int, int, int]


class Mask(NamedTuple):
    """A mask of keys: bools (kind "i8") or values to add (floats), the last stride 0 or 1; 0 broadcasts."""

    kind: str
    what: Any
    strides: tuple[int, int, int, int]


class Reach(NamedTuple):
    """The limits of the keys that a query sees, as operands of a kernel: numbers or arrays; see `limits`."""

    offset: Any = None
    lengths: Any = None
    window: int | None = None
    cap: float | None = None

    @property
    def slots(self) -> dict[str, Any]:
        """The arguments of a kernel."""
        named = {"offset": self.offset, "lengths": self.lengths, "window": self.window}
        return {name: what for name, what in named.items() if what is not None}

    @property
    def form(self) -> ReachForm:
        kinds = [
            None if x is None else "i64" if not hasattr(x, "dtype") else f"i{8 * x.dtype.itemsize}"
            for x in (self.offset, self.lengths)
        ]
        isArray = hasattr(self.offset, "dtype")
        return ReachForm(kinds[0], isArray, kinds[1], self.window is not None, self.cap)


class ReachForm(NamedTuple):
    """The properties of a Reach in the code: kinds of integers, and the cap."""

    offset: str | None = None
    isOffsetArray: bool = False
    lengths: str | None = None
    hasWindow: bool = False
    cap: float | None = None


OPEN = Reach()


class AttentionSizes(NamedTuple):
    """Samples, heads of queries and of keys, queries, keys, the width of q and k, and that of v and y."""

    samples: int
    heads: int
    keyHeads: int
    queries: int
    keys: int
    width: int
    out: int


def attend(
    q: Heads,
    k: Heads,
    v: Heads,
    y: Heads,
    lse: Value,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
    real: str = "f32",
    reach: Reach = OPEN,
) -> list[KernelCall]:
    """y = sum over j of softmax_j(scale q k' + mask) v_j and its lse (samples, heads, queries), as the reference."""
    tile = tileFor(2, real)
    blocks = -(-sizes.queries // tile.columns)
    slots = slotsOf(sizes, {"q": q, "k": k, "v": v, "y": y}, mask) | {"lse": lse, "blocks": blocks} | reach.slots
    plan = AttentionSpec(tile, sizes.width, sizes.out, causal, scale, blockOf(tile, KEYS), formOf(mask), reach.form)
    name = f"attend {sizes.samples}x{sizes.heads}x{sizes.queries}x{sizes.keys}x{sizes.width}"
    return [KernelCall(name, repr(plan), plan.forward, slots, sizes.samples * sizes.heads * blocks)]


def attendGrad(
    grad: Heads,
    q: Heads,
    k: Heads,
    v: Heads,
    lse: Strided,
    delta: Strided,
    dq: Heads,
    dk: Heads,
    dv: Heads,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
    real: str = "f32",
    reach: Reach = OPEN,
) -> list[KernelCall]:
    """dq, dk and dv, as the reference; `lse` and `delta` are (samples, heads, queries).

    All queries that share keys are one task, so that the sums of a key have one order.
    """
    tile = tileFor(2, real)
    blocks = -(-sizes.queries // tile.columns)
    heads = {"g": grad, "q": q, "k": k, "v": v, "dq": dq, "dk": dk, "dv": dv}
    slots = slotsOf(sizes, heads, mask) | {"lse": lse, "rest": delta, "blocks": blocks} | reach.slots
    plan = AttentionSpec(
        tile, sizes.width, sizes.out, causal, scale, blockOf(tile, KEYS // 2), formOf(mask), reach.form
    )
    name = f"attendGrad {sizes.samples}x{sizes.heads}x{sizes.queries}x{sizes.keys}x{sizes.width}"
    return [KernelCall(name, repr(plan), plan.gradient, slots, sizes.samples * sizes.keyHeads)]


def blockOf(tile: BroadcastTile, keys: int) -> int:
    """Keys of a block, in whole tiles: half as many in float64."""
    return keys * SIZES["f32"] // SIZES[tile.real] // tile.rows * tile.rows


def slotsOf(sizes: AttentionSizes, heads: dict[str, Heads], mask: Mask | None) -> dict[str, Any]:
    """The arguments of a kernel: sizes, and every array with its strides."""
    slots = {"heads": sizes.heads, "group": sizes.heads // sizes.keyHeads, "queries": sizes.queries, "keys": sizes.keys}
    for name, rows in heads.items():
        slots[name] = rows.what
        slots |= {name + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), rows.strides)}
    if mask is not None:
        slots["mask"] = mask.what
        slots |= {"mask" + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), mask.strides)}
    return slots


class MaskForm(NamedTuple):
    """The properties of a mask in the code: its kind, and whether it is broadcast over rows and columns."""

    kind: str
    sameRows: bool
    sameColumns: bool


def formOf(mask: Mask | None) -> MaskForm | None:
    """The form of a mask; None without one."""
    return None if mask is None else MaskForm(mask.kind, mask.strides[2] == 0, mask.strides[3] == 0)


class AttentionSpec(NamedTuple):
    """The parameters of a kernel's code."""

    tile: BroadcastTile
    width: int
    out: int
    causal: bool
    scale: float
    block: int
    mask: MaskForm | None
    reach: ReachForm

    def forward(self, code: IRBuilder) -> None:
        AttentionForward(code, self).write()

    def gradient(self, code: IRBuilder) -> None:
        AttentionGradient(code, self).write()


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
