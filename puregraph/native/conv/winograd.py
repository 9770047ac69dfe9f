"""Winograd: convolutions as 36 matrix products of transformed tiles and filters.

A task transforms some tiles, which stay in the second cache, multiplies them with one panel of the weights after the
other, and transforms the sums of a panel to outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from math import ceil, gcd, prod
from typing import Any, NamedTuple

from puregraph.native.conv.filtertaps import FilterTaps, overFilters
from puregraph.native.conv.geometry import ConvolutionAxis, Geometry
from puregraph.native.conv.registertiling import registers, vectorsOf
from puregraph.native.conv.tilegather import APART, TileReader, TileScratch
from puregraph.native.conv.winogradmath import POSITIONS, SIZE, TILE, both, inputs, outputs, weights
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import EpilogueSpec, KernelCall

NEAR = 540 << 10  # bytes of transformed inputs that stay in the second cache
MOST = 64  # tasks
UNIT = 16  # filters that are packed together
PACKING = 30  # turns that it takes to transform a filter
READING = 30  # turns that it takes to bring a transformed filter from far memory
FLOW = 6  # bytes of far memory that come in a turn
FEW = 16  # tasks below which panels are dealt to several
CHAIN = 16  # products that are added one after the other
CHAINS = 4  # of these, whose sums are added one after the other
LARGE, HEAVY = 8 << 20, 24 << 20  # numbers of a packed weight that a little time is not worth, that no time is


class WinogradSplit(NamedTuple):
    """How a convolution of `depth` to `maps` maps is dealt out."""

    n: int
    depth: int
    maps: int
    high: tuple[int, int, int]  # inputs, outputs, padding before
    wide: tuple[int, int, int]
    vectors: tuple[int, ...]
    rows: int  # tiles in registers
    block: int  # tiles that are transformed at a time

    @property
    def width(self) -> int:
        return sum(self.vectors)

    @property
    def panels(self) -> int:
        return ceil(self.maps / self.width)

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of a map."""
        return ceil(self.high[1] / SIZE), ceil(self.wide[1] / SIZE)

    @property
    def tiles(self) -> int:
        return self.n * self.grid[0] * self.grid[1]

    @property
    def packed(self) -> int:
        """Numbers of the packed weight."""
        return self.panels * POSITIONS * self.pitch

    @property
    def turns(self) -> int:
        """In how many turns the weight is packed and used where it is not kept, so that no turn's part is large."""
        return min(self.panels, ceil(self.packed / LARGE))

    @property
    def part(self) -> int:
        """Numbers of the packed weight that a turn needs at most."""
        return ceil(self.panels / self.turns) * POSITIONS * self.pitch

    def panelsOf(self, turn: int | None) -> range:
        """The panels of a turn; None: all."""
        if turn is None:
            return range(self.panels)
        return range(turn * self.panels // self.turns, (turn + 1) * self.panels // self.turns)

    @property
    def pitch(self) -> int:
        """Numbers from position to position of a panel, which are to lie in different sets of the cache."""
        return self.depth * self.width + APART


def planOf(n: int, depth: int, maps: int, high: tuple[int, int, int], wide: tuple[int, int, int]) -> WinogradSplit:
    """The plan that takes least turns of a vector unit, where weights that do not stay near have to be waited for."""
    return best(jit.lanes(4), n, depth, maps, high, wide)


@cache
def best(
    lanes: int, n: int, depth: int, maps: int, high: tuple[int, int, int], wide: tuple[int, int, int]
) -> WinogradSplit:
    """That for a CPU with such vectors."""
    most = registers(lanes)
    tiles = n * ceil(high[1] / SIZE) * ceil(wide[1] / SIZE)
    isFar = POSITIONS * depth * maps * 4 > NEAR
    found: Any = None
    for panels in range(1, ceil(maps / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(maps / panels) / 4) * 4, lanes)
        v = len(vectors)
        if v > 4 or (panels > 1 and sum(vectors) % lanes):
            continue
        for rows in range(1, min(14, (most - v - 1) // v, tiles) + 1):
            fits = max(1, NEAR // (4 * POSITIONS * depth) // rows)
            rounds = max(1, min(fits, ceil(28 / rows), tiles // (FEW * rows)))
            step = max(v * rows, rows + v, 4, isFar * v * lanes * 4 / FLOW / rounds)
            price = panels * (step + 0.5) * ceil(tiles / rows)
            if found is None or price < found[0]:
                found = price, vectors, rows, rows * rounds
    return WinogradSplit(n, depth, maps, high, wide, *found[1:])


def suits(g: Geometry) -> bool:
    """Whether a convolution can be interpolated: 3x3, stride one, whole vectors of maps."""
    _, high, wide = g.axes
    small = all(axis.size == 3 and axis.stride == axis.dilation == 1 and 0 <= axis.before <= 2 for axis in (high, wide))
    lanes = jit.lanes(4)
    flat = g.axes[0] == ConvolutionAxis(1) and g.groups == 1 and not g.isPlain
    return flat and small and high.count > 0 and wide.count > 0 and g.c % lanes == g.o % lanes == 0


def pays(plan: WinogradSplit, isFixed: bool) -> bool:
    """Whether that takes less time than plain sums: both in turns of a vector unit, the way of weights included."""
    lanes = jit.lanes(4)
    products = plan.depth * plan.maps / lanes
    plain = plan.n * products * prod(inside(*axis) for axis in (plan.high, plan.wide))
    weights = (READING + (0 if isFixed else PACKING)) * plan.depth * plan.maps
    moving = 200 * (plan.depth + plan.maps) / lanes
    if plan.packed > HEAVY:
        return False
    gain = 0.9 if plan.packed <= LARGE else 0.7
    return plan.tiles * (1.15 * POSITIONS * products + moving) + weights < gain * plain


def inside(length: int, count: int, before: int) -> int:
    """Taps of all outputs that have an input."""
    return sum(max(0, min(count, length + before - tap) - max(0, before - tap)) for tap in range(3))


def forwardPlan(g: Geometry) -> WinogradSplit:
    """That of the convolution itself."""
    _, high, wide = g.axes
    return planOf(g.n, g.c, g.o, (high.length, high.count, high.before), (wide.length, wide.count, wide.before))


def dataPlan(g: Geometry) -> WinogradSplit:
    """That of its data gradient: a convolution, too."""
    _, high, wide = g.axes
    return planOf(
        g.n,
        g.o,
        g.c,
        (high.count, high.length, high.size - 1 - high.before),
        (wide.count, wide.length, wide.size - 1 - wide.before),
    )


def pack(name: str, plan: WinogradSplit, W: Any, packed: Any, isTurned: bool, turn: int | None = None) -> KernelCall:
    """U = G g G' of the filters of a turn: (panel, position, input, output of the panel); W is (o, c, 3, 3).

    Turned, W's outputs are the inputs, and the filters are turned by half a turn.
    """
    depth, maps = plan.depth, plan.maps
    filters = FilterTaps(maps if isTurned else depth, 9, isTurned)
    share = ceil(ceil(depth / max(1, min(depth, MOST // plan.panels))) / UNIT) * UNIT
    shares, panels = ceil(depth / share), plan.panelsOf(turn)

    def write(code: IRBuilder) -> None:
        w, to, first = code.pointer("W", "f32"), code.pointer("packed", "f32"), code.integer("first")
        panel, part = code.task // shares, code.task % shares
        to = to.at(panel * (POSITIONS * plan.pitch))
        span = part * share, code.min((part + 1) * share, depth)
        for loop, width in vectorLoops(code, plan.vectors):
            with loop as begin:
                o = (first + panel) * plan.width + begin

                def put(c: IRValue, taps: Sequence[IRValue], begin: IRValue = begin) -> None:
                    square = [list(taps[i : i + 3]) for i in (0, 3, 6)]
                    if isTurned:
                        square = [row[::-1] for row in square[::-1]]
                    for i, row in enumerate(both(code, weights, square)):
                        for j, value in enumerate(row):
                            to.store((i * TILE + j) * plan.pitch + c * plan.width + begin, value)

                left = maps - o if maps % plan.width else None
                overFilters(code, filters, w.at(o * filters.lane), width, left, span, gcd(share, depth), put)

    key = f"pack winograd {depth} {maps} {plan.vectors} {isTurned} {share}"
    return KernelCall(name, key, write, {"W": W, "packed": packed, "first": panels.start}, len(panels) * shares)


def convolve(
    name: str, plan: WinogradSplit, x: Any, xPixel: int, packed: Any, finish: EpilogueSpec, turn: int | None = None
) -> KernelCall:
    """y = the convolution of x with the packed weight; its maps of a turn."""
    panels = plan.panelsOf(turn)
    spans = min(ceil(plan.tiles / plan.block), MOST)
    sweeps = min(len(panels), max(1, FEW // spans))
    key = f"winograd {plan} {xPixel} {spans} {sweeps} {finish.key}"

    def write(code: IRBuilder) -> None:
        WinogradWriter(code, plan, xPixel, finish, spans, sweeps).write()

    slots = {"x": x, "b": packed, "first": panels.start, "panels": len(panels), **finish.slots}
    return KernelCall(name, key, write, slots, spans * sweeps)


class WinogradWriter:
    """Writes the code of a convolution."""

    def __init__(
        self, code: IRBuilder, plan: WinogradSplit, xPixel: int, finish: EpilogueSpec, spans: int, sweeps: int
    ):
        self.code, self.plan, self.xPixel, self.finish = code, plan, xPixel, finish
        self.spans, self.sweeps = spans, sweeps
        self.starts = [sum(plan.vectors[:v]) for v in range(len(plan.vectors))]

    def write(self) -> None:
        code, plan = self.code, self.plan
        self.x, self.b = code.pointer("x", "f32"), code.pointer("b", "f32")
        self.first, panels = code.integer("first"), code.integer("panels")
        self.finish.open(code)
        self.reader = TileReader(code, self.x, self.xPixel, plan.depth, plan.high[::2], plan.wide[::2], inputs)
        self.v = TileScratch(code, plan.block, plan.depth)
        self.m = TileScratch(code, plan.block, plan.width)
        self.totals = code.scratch("f32", plan.rows * plan.width)
        blocks = ceil(plan.tiles / plan.block)
        span, sweep = code.task % self.spans, code.task // self.spans
        firstPanel, lastPanel = sweep * panels // self.sweeps, (sweep + 1) * panels // self.sweeps
        with code.loop(span * blocks // self.spans, (span + 1) * blocks // self.spans, unroll=1) as block:
            begin = block * plan.block
            count = code.min(plan.tiles - begin, plan.block)
            with code.loop(0, count, unroll=1) as tile:
                self.reader.tile(*self.placeOf(begin + tile), self.v, tile)
            with code.loop(firstPanel, lastPanel, unroll=1) as panel:
                rounds = (count + (plan.rows - 1)) // plan.rows
                with code.loop(0, POSITIONS, unroll=1) as position, code.loop(0, rounds, unroll=1) as i:
                    self.product(panel, position, i * plan.rows)
                with code.loop(0, count, unroll=1) as tile:
                    self.finishTile(panel, tile, *self.placeOf(begin + tile))

    def placeOf(self, tile: IRValue) -> tuple[IRValue, IRValue, IRValue]:
        """The sample, row and column of a tile."""
        high, wide = self.plan.grid
        return tile // (high * wide), tile // wide % high, tile % wide

    def product(self, panel: IRValue, position: IRValue, first: IRValue) -> None:
        """One position: some tiles of all inputs times the weights of a panel."""
        code, plan, lanes = self.code, self.plan, self.plan.vectors
        b = (panel * POSITIONS + position) * plan.pitch
        v = self.v.at(position, first, 0)
        m = self.m.numbers.at(self.m.at(position, first, 0))
        run = chainOf(plan.depth)
        if run == plan.depth:
            self.put(self.summed(v, b, code.i64(0), run), m)
            return
        block = gcd(plan.depth, CHAINS * run)
        with code.loop(0, plan.depth, block, unroll=1) as head:
            with code.loop(head, head + block, run, unroll=1) as start:
                sums = self.summed(v, b, start, run)
                with code.when(start > head):
                    self.take(sums, self.totals)
                self.put(sums, self.totals)
            whole = [[code.variable(code.constant(0, IRType("f32", width))) for width in lanes] for _ in sums]
            self.take(whole, self.totals)
            with code.when(head > 0):
                self.take(whole, m)
            self.put(whole, m)

    def summed(self, v: IRValue, b: IRValue, start: IRValue, count: int) -> list[list[IRVariable]]:
        """The sums of some tiles over `count` inputs."""
        code, plan, lanes = self.code, self.plan, self.plan.vectors
        sums = [[code.variable(code.constant(0, IRType("f32", width))) for width in lanes] for _ in range(plan.rows)]
        unroll = max(u for u in (1, 2, 4) if count % u == 0 and (u == 1 or u * plan.rows * len(lanes) <= 64))
        with code.loop(start, start + count, unroll, unroll=1) as k:
            rows, tiles = self.b.at(b + k * plan.width), self.v.numbers.at(v + k)
            now = [[variable.value for variable in each] for each in sums]
            for u in range(unroll):
                taken = [rows.load(u * plan.width + at, width) for at, width in zip(self.starts, lanes)]
                for p in range(plan.rows):
                    factor = tiles.load(p * plan.depth + u)
                    now[p] = [code.fma(code.splat(factor, w.lanes), w, s) for w, s in zip(taken, now[p])]
            for each, values in zip(sums, now):
                for variable, value in zip(each, values):
                    variable.value = value
        return sums

    def take(self, sums: list[list[IRVariable]], place: IRPointer) -> None:
        """Add what lies at a place."""
        for p, each in enumerate(sums):
            for at, variable in zip(self.starts, each):
                variable.value = place.load(p * self.plan.width + at, variable.type.lanes) + variable.value

    def put(self, sums: list[list[IRVariable]], place: IRPointer) -> None:
        """Store sums."""
        for p, each in enumerate(sums):
            for at, variable in zip(self.starts, each):
                place.store(p * self.plan.width + at, variable.value)

    def finishTile(self, panel: IRValue, tile: IRValue, n: IRValue, h: IRValue, w: IRValue) -> None:
        """The outputs of a tile, maps of a panel."""
        code, plan = self.code, self.plan
        high, wide = plan.high[1], plan.wide[1]
        column = (self.first + panel) * plan.width
        for loop, width in vectorLoops(code, plan.vectors):
            with loop as start:
                mask = code.mask(plan.maps - column - start, width) if plan.maps % plan.width else None
                square = [[self.m.load(i * TILE + j, tile, start, width) for j in range(TILE)] for i in range(TILE)]
                for i, row in enumerate(both(code, outputs, square)):
                    for j, value in enumerate(row):
                        with ExitStack() as stack:
                            a, b = h * SIZE + i, w * SIZE + j
                            for at, count, k in ((a, high, i), (b, wide, j)):
                                if count % SIZE and k >= count % SIZE:
                                    stack.enter_context(code.when(at < count))
                            self.finish.put(code, (n * high + a) * wide + b, column + start, value, mask)


def chainOf(depth: int) -> int:
    """How many products are added one after the other before their sum is added to those before.

    The transforms enlarge what rounding leaves in these sums, and that grows with the root of the length of a chain.
    """
    return gcd(depth, CHAIN if depth <= CHAIN * CHAIN else 2 * CHAIN)


def vectorLoops(code: IRBuilder, vectors: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
    """Loops over the starts of the vectors of a panel, one for each width."""
    start = 0
    for width in dict.fromkeys(vectors):
        stop = start + width * vectors.count(width)
        yield code.loop(start, stop, width, unroll=1), width
        start = stop
