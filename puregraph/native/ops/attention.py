"""Attention: the twins of `kernels.attention` in native code: a few queries at a time meet all keys, block by block.

Vectors run along the queries, so that the largest score and the sum of exponentials of each are kept in lanes, and no
lane ever meets another. Of a product with keys or values each number is read where it lies and repeated; only the
queries are turned. What is made of a block of keys stays in the nearest cache.

Source    Dao 2023, FlashAttention-2, arXiv:2307.08691, algorithms 1 and 2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.native.gemm.broadcastfma import BroadcastRows, BroadcastTile, broadcastFma, tileFor
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.llvm.registertranspose import transposed
from puregraph.native.math.explog import expBelow, log

FLOOR = -1e30  # a score below this counts as hidden
HIDDEN = float("-inf")
KEYS = 128  # that meet the queries of a block at a time; in the gradient half of them


class Heads(NamedTuple):
    """Rows of numbers: the strides are those of samples, heads and moments; the numbers of a row lie side by side."""

    what: Any
    strides: tuple[int, int, int]


class Mask(NamedTuple):
    """What hides keys: bools (kind "i8") or numbers to add ("f32"), the last stride 0 or 1; a stride of 0 repeats."""

    kind: str
    what: Any
    strides: tuple[int, int, int, int]


class AttentionSizes(NamedTuple):
    """Samples, heads of queries and of keys, queries, keys, and the numbers in a row of q and k, and of v and y."""

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
    lse: Any,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
) -> list[KernelCall]:
    """y = sum over j of softmax_j(scale q k' + mask) v_j and its lse (samples, heads, queries), as the reference."""
    tile = tileFor(2)
    blocks = -(-sizes.queries // tile.columns)
    slots = slotsOf(sizes, {"q": q, "k": k, "v": v, "y": y}, mask) | {"lse": lse, "blocks": blocks}
    plan = AttentionSpec(tile, sizes.width, sizes.out, causal, scale, KEYS // tile.rows * tile.rows, formOf(mask))
    name = f"attend {sizes.samples}x{sizes.heads}x{sizes.queries}x{sizes.keys}x{sizes.width}"
    return [KernelCall(name, repr(plan), plan.forward, slots, sizes.samples * sizes.heads * blocks)]


def attendGrad(
    grad: Heads,
    q: Heads,
    k: Heads,
    v: Heads,
    lse: Any,
    rest: Any,
    dq: Heads,
    dk: Heads,
    dv: Heads,
    sizes: AttentionSizes,
    causal: bool,
    scale: float,
    mask: Mask | None = None,
) -> list[KernelCall]:
    """dq, dk and dv, as the reference; `lse` and `rest` are (samples, heads, queries).

    All queries that share keys are one task, so that the sums for a key have one order.
    """
    tile = tileFor(2)
    blocks = -(-sizes.queries // tile.columns)
    heads = {"g": grad, "q": q, "k": k, "v": v, "dq": dq, "dk": dk, "dv": dv}
    slots = slotsOf(sizes, heads, mask) | {"lse": lse, "rest": rest, "blocks": blocks}
    plan = AttentionSpec(tile, sizes.width, sizes.out, causal, scale, KEYS // 2 // tile.rows * tile.rows, formOf(mask))
    name = f"attendGrad {sizes.samples}x{sizes.heads}x{sizes.queries}x{sizes.keys}x{sizes.width}"
    return [KernelCall(name, repr(plan), plan.gradient, slots, sizes.samples * sizes.keyHeads)]


def slotsOf(sizes: AttentionSizes, heads: dict[str, Heads], mask: Mask | None) -> dict[str, Any]:
    """The arguments of a kernel: sizes, and of every array where it is and its strides."""
    slots = {"heads": sizes.heads, "group": sizes.heads // sizes.keyHeads, "queries": sizes.queries, "keys": sizes.keys}
    for name, rows in heads.items():
        slots[name] = rows.what
        slots |= {name + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), rows.strides)}
    if mask is not None:
        slots["mask"] = mask.what
        slots |= {"mask" + axis: stride for axis, stride in zip(("Sample", "Head", "Row"), mask.strides)}
    return slots


class Form(NamedTuple):
    """What the code for a mask depends on: its kind, whether all rows, and all columns, are alike."""

    kind: str
    sameRows: bool
    sameColumns: bool


def formOf(mask: Mask | None) -> Form | None:
    """What of a mask the code depends on: its kind, and whether it is the same for all queries, for all keys."""
    return None if mask is None else Form(mask.kind, mask.strides[2] == 0, mask.strides[3] == 0)


class AttentionSpec(NamedTuple):
    """What the code of a kernel depends on."""

    tile: BroadcastTile
    width: int
    out: int
    causal: bool
    scale: float
    block: int
    mask: Form | None

    def forward(self, code: IRBuilder) -> None:
        AttentionForward(code, self).write()

    def gradient(self, code: IRBuilder) -> None:
        AttentionGradient(code, self).write()


class AttentionWriter:
    """What the forward kernel and that of the gradient have in common."""

    def __init__(self, code: IRBuilder, plan: AttentionSpec):
        self.code, self.plan, self.tile = code, plan, plan.tile
        self.lanes, self.columns = plan.tile.lanes, plan.tile.columns
        self.vector = IRType("f32", self.lanes)
        self.heads, self.group = code.integer("heads"), code.integer("group")
        self.queries, self.keys, self.blocks = (code.integer(name) for name in ("queries", "keys", "blocks"))
        self.maskRoom = None
        if plan.mask is not None:
            self.maskPlace = code.pointer("mask", plan.mask.kind)
            self.maskStrides = [code.integer("mask" + axis) for axis in ("Sample", "Head", "Row")]
            if not plan.mask.sameRows:
                self.maskRoom = code.scratch("f32", (plan.block + self.lanes) * self.columns)

    def rows(self, name: str) -> Callable[[IRValue, IRValue], BroadcastRows]:
        """The rows of a sample and head."""
        place = self.code.pointer(name, "f32")
        sample, head, row = (self.code.integer(name + axis) for axis in ("Sample", "Head", "Row"))
        return lambda n, h: BroadcastRows(place.at(n * sample + h * head), row)

    def across(self) -> list[int]:
        """Where the vectors of a tile start."""
        return [u * self.lanes for u in range(self.tile.vectors)]

    def loadAll(self, place: IRPointer, index: Any) -> list[IRValue]:
        at = place.at(index)
        return [at.load(u, self.lanes) for u in self.across()]

    def turnIn(self, rows: BroadcastRows, live: IRValue, room: IRPointer, width: int, scale: float = 1.0) -> None:
        """room[c, i] = scale row i [c], the last row again where there are no more."""
        code, lanes = self.code, self.lanes

        def block(u: IRValue, c: Any, count: int) -> None:
            mask = None if count == lanes else code.mask(count, lanes)
            taken = [rows.at(code.min(u + i, live - 1)).at(c).load(0, lanes, mask) for i in range(lanes)]
            for i, column in enumerate(transposed(code, taken)[:count]):
                room.store((c + i) * self.columns + u, column * scale if scale != 1 else column)

        with code.loop(0, self.columns, lanes, unroll=1) as u:
            self.pieces(width, lambda c, count: block(u, c, count))

    def turnOut(
        self, room: IRPointer, rows: BroadcastRows, live: IRValue, width: int, factors: IRPointer | None = None
    ) -> None:
        """Row i [c] = factor i room[c, i]."""
        code, lanes = self.code, self.lanes

        def block(u: IRValue, c: Any, count: int) -> None:
            taken = [room.load((c + i) * self.columns + u, lanes) for i in range(count)]
            if factors is not None:
                factor = factors.load(u, lanes)
                taken = [x * factor for x in taken]
            taken += [taken[0]] * (lanes - count)
            for i, row in enumerate(transposed(code, taken)):
                mask = code.mask(code.select(u + i < live, code.i64(count), code.i64(0)), lanes)
                rows.at(code.min(u + i, live - 1)).at(c).store(0, row, mask)

        with code.loop(0, self.columns, lanes, unroll=1) as u:
            self.pieces(width, lambda c, count: block(u, c, count))

    def pieces(self, width: int, body: Callable[[Any, int], None]) -> None:
        """A width in pieces of a vector, then what is left."""
        left = width % self.lanes
        if width > left:
            with self.code.loop(0, width - left, self.lanes, unroll=1) as c:
                body(c, self.lanes)
        if left:
            body(self.code.i64(width - left), left)

    def tiles(self, count: Any, body: Callable[[IRValue, int], None]) -> None:
        """A range in tiles of rows. The last one may reach beyond it; it is smaller where the count is known."""
        rows = self.tile.rows
        left = count % rows if isinstance(count, int) else 0
        if not isinstance(count, int) or count > left:
            with self.code.loop(0, count - left, rows, unroll=1) as j:
                body(j, rows)
        if left:
            body(self.code.i64(count - left), left)

    def zeros(self, rows: int, vectors: int) -> list[list[IRValue]]:
        return [[self.code.constant(0.0, self.vector)] * vectors for _ in range(rows)]

    def dots(self, rows: BroadcastRows, indices: list[IRValue], room: IRPointer, width: int) -> list[list[IRValue]]:
        """Some rows times the turned queries: for each row its products with all queries of the block."""
        places = [rows.at(index) for index in indices]
        return broadcastFma(
            self.code,
            self.lanes,
            width,
            len(places),
            lambda c, r: places[r].load(c),
            lambda c: self.loadAll(room, c * self.columns),
            self.zeros(len(places), self.tile.vectors),
        )

    def mix(
        self,
        rows: BroadcastRows,
        count: IRValue,
        weights: IRPointer,
        room: IRPointer,
        width: int,
        fade: list[IRValue] | None,
    ) -> None:
        """room[c, i] = fade i room[c, i] + sum over j < count of row j [c] weights[j, i]."""

        def tile(c: IRValue, height: int) -> None:
            place = rows.start.at(c)
            starts = [self.loadAll(room, (c + r) * self.columns) for r in range(height)]
            if fade is not None:
                starts = [[x * f for x, f in zip(row, fade)] for row in starts]
            found = broadcastFma(
                self.code,
                self.lanes,
                count,
                height,
                lambda j, r: place.at(j * rows.stride).load(r),
                lambda j: self.loadAll(weights, j * self.columns),
                starts,
            )
            for r, row in enumerate(found):
                for u, x in zip(self.across(), row):
                    room.store((c + r) * self.columns + u, x)

        self.tiles(width, tile)

    def visible(self, first: IRValue, live: IRValue) -> IRValue:
        """How many keys some query of the block may see."""
        return self.code.min(self.keys, first + live) if self.plan.causal else self.keys

    def scoreTiles(
        self,
        keys: BroadcastRows,
        query: IRPointer,
        start: IRValue,
        first: IRValue,
        count: IRValue,
        body: Callable[[IRValue, list[IRValue], list[list[IRValue]]], None],
    ) -> None:
        """The scores of a block of keys in tiles: of each its first key, all keys (the last repeats), scores."""
        code = self.code

        def tile(j: IRValue, rows: int) -> None:
            indices = [code.min(j + r, count - 1) for r in range(rows)]
            scores = self.dots(keys, indices, query, self.plan.width)
            body(j, indices, [self.hidden(row, start, i, first) for row, i in zip(scores, indices)])

        self.tiles(count, tile)

    def hidden(self, row: list[IRValue], start: IRValue, j: IRValue, first: IRValue) -> list[IRValue]:
        """The scores of key start + j with the mask added, -inf where hidden."""
        code, lanes = self.code, self.lanes
        if self.plan.mask is not None:
            row = self.masked(row, start, j)
        if self.plan.causal:
            key = code.splat(code.convert(start + j - first, "i32"), lanes)
            row = [code.select(code.iota(lanes, "i32") + u < key, HIDDEN, x) for u, x in zip(self.across(), row)]
        return row

    def masked(self, row: list[IRValue], start: IRValue, j: IRValue) -> list[IRValue]:
        if self.maskRoom is not None:
            return [x + m for x, m in zip(row, self.loadAll(self.maskRoom, j * self.columns))]
        index = self.code.i64(0) if self.plan.mask is None or self.plan.mask.sameColumns else start + j
        value = self.asAdded(self.maskRows.start.load(index))
        return [x + value for x in row]

    def asAdded(self, value: IRValue) -> IRValue:
        """An element of a mask as what is added to a score."""
        code = self.code
        if value.kind == "f32":
            return value
        return code.select(value != 0, code.constant(0.0, IRType("f32", value.lanes)), HIDDEN)

    def findMask(self, sample: IRValue, head: IRValue, first: IRValue) -> None:
        """The rows of the mask for a block of queries."""
        if self.plan.mask is not None:
            perSample, perHead, perRow = self.maskStrides
            place = self.maskPlace.at(sample * perSample + head * perHead + first * perRow)
            self.maskRows = BroadcastRows(place, perRow)

    def turnMask(self, start: IRValue, count: IRValue, live: IRValue) -> None:
        """The mask for a block of keys, turned as the scores are."""
        code, lanes, form, room = self.code, self.lanes, self.plan.mask, self.maskRoom
        if form is None or room is None:
            return
        with code.loop(0, self.columns, lanes, unroll=1) as u, code.loop(0, count, lanes, unroll=1) as j:
            taken = []
            for i in range(lanes):
                place = self.maskRows.at(code.min(u + i, live - 1))
                if form.sameColumns:
                    taken.append(code.splat(self.asAdded(place.load()), lanes))
                else:
                    taken.append(self.asAdded(place.load(start + j, lanes, code.mask(count - j, lanes))))
            for i, column in enumerate(transposed(code, taken)):
                room.store((j + i) * self.columns + u, column)

    def clear(self, room: IRPointer, count: int) -> None:
        with self.code.loop(0, count, self.lanes) as c:
            room.store(c, self.code.constant(0.0, self.vector))

    def variables(self, start: float) -> list[IRVariable]:
        return [self.code.variable(self.code.constant(start, self.vector)) for _ in range(self.tile.vectors)]


class AttentionForward(AttentionWriter):
    """A task is a block of queries of one head: the last blocks first, for with causality they see most."""

    def write(self) -> None:
        code, plan, columns = self.code, self.plan, self.columns
        q, k, v, y = (self.rows(name) for name in "qkvy")
        lse = code.pointer("lse", "f32")
        head, sample = code.task // self.blocks % self.heads, code.task // (self.blocks * self.heads)
        first = (self.blocks - 1 - code.task % self.blocks) * columns
        live = code.min(self.queries - first, columns)
        keyHead = head // self.group
        keys, values = k(sample, keyHead), v(sample, keyHead)
        self.findMask(sample, head, first)

        query, result = code.scratch("f32", plan.width * columns), code.scratch("f32", plan.out * columns)
        self.scores = code.scratch("f32", plan.block * columns)
        self.turnIn(q(sample, head).down(first), live, query, plan.width, plan.scale)
        self.clear(result, plan.out * columns)
        top, total = self.variables(FLOOR), self.variables(0.0)
        stop = self.visible(first, live)
        with code.loop(0, stop, plan.block, unroll=1) as start:
            count = code.min(stop - start, plan.block)
            self.turnMask(start, count, live)
            old = [x.value for x in top]
            self.score(keys.down(start), query, start, first, count, top)
            fade = [expBelow(code, before - x.value) for before, x in zip(old, top)]
            self.weigh(count, top, total, fade)
            self.mix(values.down(start), count, self.scores, result, plan.out, fade)
        self.finish(
            result,
            y(sample, head).down(first),
            lse.at((sample * self.heads + head) * self.queries + first),
            live,
            top,
            total,
        )

    def score(
        self,
        keys: BroadcastRows,
        query: IRPointer,
        start: IRValue,
        first: IRValue,
        count: IRValue,
        top: list[IRVariable],
    ) -> None:
        """The scores of a block of keys, and the largest so far of each query."""

        def tile(j: IRValue, _: list[IRValue], scores: list[list[IRValue]]) -> None:
            for r, row in enumerate(scores):
                for u, x, most in zip(self.across(), row, top):
                    self.scores.store((j + r) * self.columns + u, x)
                    most.value = self.code.select(x > most.value, x, most.value)

        self.scoreTiles(keys, query, start, first, count, tile)

    def weigh(self, count: IRValue, top: list[IRVariable], total: list[IRVariable], fade: list[IRValue]) -> None:
        """Scores become exp(score - largest), which are summed."""
        code = self.code
        most = [x.value for x in top]
        for one, f in zip(total, fade):
            one.value = one.value * f
        with code.loop(0, count, 1, unroll=2) as j:
            place = self.scores.at(j * self.columns)
            for u, m, one in zip(self.across(), most, total):
                p = expBelow(code, place.load(u, self.lanes) - m)
                place.store(u, p)
                one.value = one.value + p

    def finish(
        self,
        result: IRPointer,
        y: BroadcastRows,
        lse: IRPointer,
        live: IRValue,
        top: list[IRVariable],
        total: list[IRVariable],
    ) -> None:
        code, lanes = self.code, self.lanes
        factors = code.scratch("f32", self.columns)
        for u, most, one in zip(self.across(), top, total):
            seen = code.select(one.value == 0.0, 1.0, one.value)
            factors.store(u, 1.0 / seen)
            lse.store(u, most.value + log(code, seen), code.mask(live - u, lanes))
        self.turnOut(result, y, live, self.plan.out, factors)


class AttentionGradient(AttentionWriter):
    """A task is a head of keys of one sample, with all the queries that it meets."""

    def write(self) -> None:
        code, plan, columns = self.code, self.plan, self.columns
        g, q, k, v, dq, dk, dv = (self.rows(name) for name in ("g", "q", "k", "v", "dq", "dk", "dv"))
        lse, rest = code.pointer("lse", "f32"), code.pointer("rest", "f32")
        keyHeads = self.heads // self.group
        keyHead, sample = code.task % keyHeads, code.task // keyHeads
        keys, values = k(sample, keyHead), v(sample, keyHead)
        dKeys, dValues = dk(sample, keyHead), dv(sample, keyHead)
        self.zero(dKeys, plan.width)
        self.zero(dValues, plan.out)

        query, grad = code.scratch("f32", plan.width * columns), code.scratch("f32", plan.out * columns)
        found = code.scratch("f32", plan.width * columns)
        self.weights, self.changes = (code.scratch("f32", plan.block * columns) for _ in range(2))
        with code.loop(0, self.group, unroll=1) as member, code.loop(0, self.blocks, unroll=1) as block:
            head, first = keyHead * self.group + member, block * columns
            live = code.min(self.queries - first, columns)
            self.findMask(sample, head, first)
            queries, grads = q(sample, head).down(first), g(sample, head).down(first)
            self.turnIn(queries, live, query, plan.width, plan.scale)
            self.turnIn(grads, live, grad, plan.out)
            self.clear(found, plan.width * columns)
            row = (sample * self.heads + head) * self.queries + first
            masks = [code.mask(live - u, self.lanes) for u in self.across()]
            ends = [
                (lse.load(row + u, self.lanes, mask), rest.load(row + u, self.lanes, mask))
                for u, mask in zip(self.across(), masks)
            ]
            stop = self.visible(first, live)
            with code.loop(0, stop, plan.block, unroll=1) as start:
                count = code.min(stop - start, plan.block)
                self.turnMask(start, count, live)
                self.weigh(keys.down(start), values.down(start), query, grad, start, first, count, ends)
                self.mix(keys.down(start), count, self.changes, found, plan.width, None)
                self.spread(self.weights, count, grads, live, dValues.down(start), plan.out)
                self.spread(self.changes, count, queries, live, dKeys.down(start), plan.width)
            self.turnOut(found, dq(sample, head).down(first), live, plan.width)

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
        ends: list[tuple[IRValue, IRValue]],
    ) -> None:
        """p = exp(score - lse) and scale ds = scale p (grad v' - rest) for a block of keys."""
        code, plan = self.code, self.plan

        def tile(j: IRValue, indices: list[IRValue], scores: list[list[IRValue]]) -> None:
            for r, row in enumerate(scores):
                for u, x, (lse, _) in zip(self.across(), row, ends):
                    self.weights.store((j + r) * self.columns + u, expBelow(code, x - lse))
            for r, row in enumerate(self.dots(values, indices, grad, plan.out)):
                for u, x, (_, rest) in zip(self.across(), row, ends):
                    p = self.weights.load((j + r) * self.columns + u, self.lanes)
                    self.changes.store((j + r) * self.columns + u, (x - rest) * p * plan.scale)

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
            places = [c + u for u in self.across() if c + u < width]
            masks = [None if x + lanes <= width else code.mask(width - x, lanes) for x in places]

            def tile(j: IRValue, height: int, places: list[int] = places, masks: list[Any] = masks) -> None:
                own = weights.at(j * self.columns)
                targets = [to.at(code.min(j + r, count - 1)) for r in range(height)]
                found = broadcastFma(
                    code,
                    lanes,
                    live,
                    height,
                    lambda i, r: own.at(i).load(r * self.columns),
                    lambda i: [rows.at(i).load(x, lanes, mask) for x, mask in zip(places, masks)],
                    self.zeros(height, len(places)),
                )
                for target, row in zip(targets, found):
                    for x, total, mask in zip(places, row, masks):
                        target.store(x, target.load(x, lanes, mask) + total, mask)

            self.tiles(count, tile)
