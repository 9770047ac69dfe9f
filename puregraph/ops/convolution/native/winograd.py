"""Winograd: convolutions as 36 matrix products of transformed tiles and filters.

A task transforms some tiles, which stay in L2, multiplies them with one panel of the weights after the other, and
transforms the sums of a panel to outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from math import ceil, gcd, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import numbered, unchanging
from puregraph.ops.convolution.native.filtertaps import FilterTaps, overFilters
from puregraph.ops.convolution.native.geometry import ConvolutionAxis, Geometry
from puregraph.ops.convolution.native.registertiling import registers, vectorsOf
from puregraph.ops.convolution.native.tilegather import PADDING_ELEMENTS, TileReader, TileScratch
from puregraph.ops.convolution.native.winogradmath import POSITIONS, TILE, TILE_OUTPUTS, both, inputs, outputs, weights
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import COMPILED, EpilogueSpec, KernelCall, madeFor

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

L2_INPUT_BYTES = 540 << 10  # bytes of transformed inputs that stay in L2
MAX_WINOGRAD_TASKS = 64  # maximum number of tasks
PACKED_FILTERS = 16  # filters that are packed together
PACKING = 30  # cycles of a vector unit to transform a filter
READING = 30  # cycles to load a transformed filter from memory
FLOW = 6  # bytes that memory delivers in a cycle
MIN_PANEL_TASKS = 16  # with fewer tasks, the panels of a task are distributed over several
COMPILED_CYCLES_RATIO = 1.08  # a split that is compiled already is taken up to this factor of the fewest cycles
MANY_SAMPLES = 16  # panels of this many samples serve for more
CHAIN_PRODUCTS = 16  # products that are added sequentially
SEQUENTIAL_CHAINS = 4  # chains whose sums are added sequentially
LARGE, HEAVY = (
    8 << 20,
    24 << 20,
)  # elements of a packed weight above which little gain, above which no gain is worth it


class WinogradSplit(NamedTuple):
    """The split of a convolution from `inChannels` to `outChannels` into tasks."""

    n: int
    inChannels: int
    outChannels: int
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
        return ceil(self.outChannels / self.width)

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of an image, on each axis."""
        return ceil(self.high[1] / TILE_OUTPUTS), ceil(self.wide[1] / TILE_OUTPUTS)

    @property
    def tiles(self) -> int:
        return self.n * self.grid[0] * self.grid[1]

    @property
    def packed(self) -> int:
        """Elements of the packed weight."""
        return self.panels * POSITIONS * self.pitch

    @property
    def chunks(self) -> int:
        """The number of chunks in which a weight that is not kept is packed and used, so that no chunk is large."""
        return min(self.panels, ceil(self.packed / LARGE))

    @property
    def part(self) -> int:
        """Elements of the largest chunk."""
        return ceil(self.panels / self.chunks) * POSITIONS * self.pitch

    def panelsOf(self, chunk: int | None) -> range:
        """The panels of a chunk; None: all."""
        if chunk is None:
            return range(self.panels)
        return range(chunk * self.panels // self.chunks, (chunk + 1) * self.panels // self.chunks)

    @property
    def pitch(self) -> int:
        """Elements between the positions of a panel, padded so that positions differ in cache sets."""
        return self.inChannels * self.width + PADDING_ELEMENTS


def planOf(
    n: int, inChannels: int, outChannels: int, high: tuple[int, int, int], wide: tuple[int, int, int]
) -> WinogradSplit:
    """The split that takes the fewest cycles of a vector unit, with the time to load weights that do not stay in L2.

    Of open sizes the hints decide: all splits compute the same bits.
    """
    sizes = numbered((n, inChannels, outChannels, high, wide))
    split = splits(jit.lanes(4), *sizes)[0].split
    vectors = splits(jit.lanes(4), min(sizes[0], MANY_SAMPLES), *sizes[1:])[0].split.vectors
    return split._replace(n=n, high=high, wide=wide, vectors=vectors)


class CostedSplit(NamedTuple):
    """A split, and the cycles that it takes."""

    cost: float
    split: WinogradSplit


@cache
def splits(
    lanes: int, n: int, inChannels: int, outChannels: int, high: tuple[int, int, int], wide: tuple[int, int, int]
) -> list[CostedSplit]:
    """All splits for a CPU with vectors of `lanes`, the fastest first."""
    most = registers(lanes)
    tiles = n * ceil(high[1] / TILE_OUTPUTS) * ceil(wide[1] / TILE_OUTPUTS)
    isFar = POSITIONS * inChannels * outChannels * 4 > L2_INPUT_BYTES
    results = []
    for panels in range(1, ceil(outChannels / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(outChannels / panels) / 4) * 4, lanes)
        v = len(vectors)
        if v > 4 or (panels > 1 and sum(vectors) % lanes):
            continue
        for rows in range(1, min(14, (most - v - 1) // v, tiles) + 1):
            fits = max(1, L2_INPUT_BYTES // (4 * POSITIONS * inChannels) // rows)
            rounds = max(1, min(fits, ceil(28 / rows), tiles // (MIN_PANEL_TASKS * rows)))
            step = max(v * rows, rows + v, 4, isFar * v * lanes * 4 / FLOW / rounds)
            cost = panels * (step + 0.5) * ceil(tiles / rows)
            split = WinogradSplit(n, inChannels, outChannels, high, wide, vectors, rows, rows * rounds)
            results.append(CostedSplit(cost, split))
    return sorted(results, key=lambda option: option.cost)


def compiledSplit(plan: WinogradSplit, isCompiled: Callable[[WinogradSplit], bool]) -> WinogradSplit:
    """The fastest split into the same panels, or a nearly as fast one that is compiled already, with the same bits."""
    options = [option for option in splits(jit.lanes(4), *plan[:5]) if option.split.vectors == plan.vectors]
    near = [split for cost, split in options if cost <= COMPILED_CYCLES_RATIO * options[0].cost]
    return next(filter(isCompiled, near), near[0])


def isSupported(g: Geometry) -> bool:
    """True if Winograd supports the convolution: float32, 3x3, stride one, whole vectors of channels."""
    _, high, wide = g.axes
    small = all(axis.size == 3 and axis.stride == axis.dilation == 1 and 0 <= axis.before <= 2 for axis in (high, wide))
    lanes = jit.lanes(4)
    flat = g.axes[0] == ConvolutionAxis(1) and g.groups == 1 and not g.isPlain and g.real == "f32"
    return flat and small and high.count > 0 and wide.count > 0 and g.c % lanes == g.o % lanes == 0


@unchanging
def isFaster(plan: WinogradSplit, isFixed: bool, halves: bool = False) -> bool:
    """True if it is faster than direct sums, of two products at a time with `halves`.

    Estimated in cycles of a vector unit, with packing and loading of weights.
    """
    lanes = jit.lanes(4)
    products = plan.inChannels * plan.outChannels / lanes
    plain = plan.n * products * prod(insideTaps(*axis) for axis in (plan.high, plan.wide))
    plain = plain / 2 if halves else plain
    weights = (READING + (0 if isFixed else PACKING)) * plan.inChannels * plan.outChannels
    moving = 200 * (plan.inChannels + plan.outChannels) / lanes
    if plan.packed > HEAVY:
        return False
    gain = 0.9 if plan.packed <= LARGE else 0.7
    return plan.tiles * (1.15 * POSITIONS * products + moving) + weights < gain * plain


def insideTaps(length: int, count: int, before: int) -> int:
    """The number of taps with an input, over all outputs of an axis."""
    return sum(max(0, min(count, length + before - tap) - max(0, before - tap)) for tap in range(3))


def forwardPlan(g: Geometry) -> WinogradSplit:
    """The split of the convolution itself."""
    _, high, wide = g.axes
    return planOf(g.n, g.c, g.o, (high.length, high.count, high.before), (wide.length, wide.count, wide.before))


def dataPlan(g: Geometry) -> WinogradSplit:
    """The split of its data gradient, which is a convolution too."""
    _, high, wide = g.axes
    return planOf(
        g.n,
        g.o,
        g.c,
        (high.count, high.length, high.size - 1 - high.before),
        (wide.count, wide.length, wide.size - 1 - wide.before),
    )


def pack(
    name: str, plan: WinogradSplit, W: Strided, packed: Strided, isTransposed: bool, chunk: int | None = None
) -> KernelCall:
    """U = G g G' of the filters of a chunk: (panel, position, input, output of the panel); W is (o, c, 3, 3).

    Transposed, W's outputs are the inputs, and the filters are rotated by 180 degrees.
    """
    inChannels, outChannels = plan.inChannels, plan.outChannels
    filters = FilterTaps(outChannels if isTransposed else inChannels, 9, isTransposed)
    most = max(1, min(inChannels, MAX_WINOGRAD_TASKS // plan.panels))
    share = ceil(ceil(inChannels / most) / PACKED_FILTERS) * PACKED_FILTERS
    shares, panels = ceil(inChannels / share), plan.panelsOf(chunk)

    def write(code: IRBuilder) -> None:
        w, to, first = code.pointer("W", "f32"), code.pointer("packed", "f32"), code.integer("first")
        panel, part = code.task // shares, code.task % shares
        to = to.at(panel * (POSITIONS * plan.pitch))
        span = part * share, code.min((part + 1) * share, inChannels)
        for loop, width in vectorLoops(code, plan.vectors):
            with loop as begin:
                o = (first + panel) * plan.width + begin

                def put(c: IRValue, taps: Sequence[IRValue], begin: IRValue = begin) -> None:
                    square = [list(taps[i : i + 3]) for i in (0, 3, 6)]
                    if isTransposed:
                        square = [row[::-1] for row in square[::-1]]
                    for i, row in enumerate(both(code, weights, square)):
                        for j, value in enumerate(row):
                            to.store((i * TILE + j) * plan.pitch + c * plan.width + begin, value)

                left = outChannels - o if outChannels % plan.width else None
                overFilters(code, filters, w.at(o * filters.lane), width, left, span, gcd(share, inChannels), put)

    key = f"pack winograd {inChannels} {outChannels} {plan.vectors} {isTransposed} {share}"
    return KernelCall(name, key, write, {"W": W, "packed": packed, "first": panels.start}, len(panels) * shares)


def winogradConvolution(
    name: str,
    plan: WinogradSplit,
    x: Strided,
    xPixel: int,
    packed: Strided,
    epilogue: EpilogueSpec,
    chunk: int | None = None,
) -> KernelCall:
    """y = the convolution of x with the packed weight; the output channels of a chunk."""
    suffix = f"{xPixel} {epilogue.key}"
    isCompiled = lambda split: winogradKey(split, suffix) in COMPILED  # noqa: E731

    def make(plan: WinogradSplit) -> KernelCall:
        split = compiledSplit(plan, isCompiled)
        panels = split.panelsOf(chunk)
        spans = min(ceil(split.tiles / split.block), MAX_WINOGRAD_TASKS)
        sweeps = min(len(panels), max(1, MIN_PANEL_TASKS // spans))

        def write(code: IRBuilder) -> None:
            WinogradWriter(code, split, xPixel, epilogue).write()

        slots = {"x": x, "b": packed, "first": panels.start, "panels": len(panels), **epilogue.slots}
        slots |= {"tiles": split.tiles, "blocks": ceil(split.tiles / split.block), "spans": spans, "sweeps": sweeps}
        return KernelCall(name, winogradKey(split, suffix), write, slots, spans * sweeps)

    return madeFor(make, plan)


def winogradKey(plan: WinogradSplit, suffix: str) -> str:
    """The key of the kernel of a convolution; the number of samples is an argument of it."""
    return f"winograd {plan._replace(n=0)} {suffix}"


class WinogradWriter:
    """Writes the kernel of a convolution."""

    def __init__(self, code: IRBuilder, plan: WinogradSplit, xPixel: int, epilogue: EpilogueSpec):
        self.code, self.plan, self.xPixel, self.epilogue = code, plan, xPixel, epilogue
        self.starts = [sum(plan.vectors[:v]) for v in range(len(plan.vectors))]

    def write(self) -> None:
        code, plan = self.code, self.plan
        self.x, self.b = code.pointer("x", "f32"), code.pointer("b", "f32")
        self.first, panels = code.integer("first"), code.integer("panels")
        tiles, blocks, spans, sweeps = map(code.integer, ("tiles", "blocks", "spans", "sweeps"))
        self.epilogue.open(code)
        self.reader = TileReader(code, self.x, self.xPixel, plan.inChannels, plan.high[::2], plan.wide[::2], inputs)
        self.v = TileScratch(code, plan.block, plan.inChannels)
        self.m = TileScratch(code, plan.block, plan.width)
        self.totals = code.scratch("f32", plan.rows * plan.width)
        span, sweep = code.task % spans, code.task // spans
        firstPanel, lastPanel = sweep * panels // sweeps, (sweep + 1) * panels // sweeps
        with code.loop(span * blocks // spans, (span + 1) * blocks // spans, unroll=1) as block:
            begin = block * plan.block
            count = code.min(tiles - begin, plan.block)
            with code.loop(0, count, unroll=1) as tile:
                self.reader.tile(*self.positionOf(begin + tile), self.v, tile)
            with code.loop(firstPanel, lastPanel, unroll=1) as panel:
                rounds = (count + (plan.rows - 1)) // plan.rows
                with code.loop(0, POSITIONS, unroll=1) as position, code.loop(0, rounds, unroll=1) as i:
                    self.product(panel, position, i * plan.rows)
                with code.loop(0, count, unroll=1) as tile:
                    self.finishTile(panel, tile, *self.positionOf(begin + tile))

    def positionOf(self, tile: IRValue) -> tuple[IRValue, IRValue, IRValue]:
        """The sample, row and column of a tile."""
        high, wide = self.plan.grid
        return tile // (high * wide), tile // wide % high, tile % wide

    def product(self, panel: IRValue, position: IRValue, first: IRValue) -> None:
        """A small GEMM for one position: some tiles of all inputs times the weights of a panel."""
        code, plan, lanes = self.code, self.plan, self.plan.vectors
        b = (panel * POSITIONS + position) * plan.pitch
        v = self.v.at(position, first, 0)
        m = self.m.memory.at(self.m.at(position, first, 0))
        run = chainOf(plan.inChannels)
        if run == plan.inChannels:
            self.put(self.summed(v, b, code.i64(0), run), m)
            return
        block = gcd(plan.inChannels, SEQUENTIAL_CHAINS * run)
        with code.loop(0, plan.inChannels, block, unroll=1) as head:
            with code.loop(head, head + block, run, unroll=1) as start:
                sums = self.summed(v, b, start, run)
                with code.when(start > head):
                    self.take(sums, self.totals)
                self.put(sums, self.totals)
            totals = [[code.variable(code.constant(0, IRType("f32", width))) for width in lanes] for _ in sums]
            self.take(totals, self.totals)
            with code.when(head > 0):
                self.take(totals, m)
            self.put(totals, m)

    def summed(self, v: IRValue, b: IRValue, start: IRValue, count: int) -> list[list[IRVariable]]:
        """The accumulators of some tiles over `count` inputs."""
        code, plan, lanes = self.code, self.plan, self.plan.vectors
        sums = [[code.variable(code.constant(0, IRType("f32", width))) for width in lanes] for _ in range(plan.rows)]
        unroll = max(u for u in (1, 2, 4) if count % u == 0 and (u == 1 or u * plan.rows * len(lanes) <= 64))
        with code.loop(start, start + count, unroll, unroll=1) as k:
            rows, tiles = self.b.at(b + k * plan.width), self.v.memory.at(v + k)
            now = [[variable.value for variable in row] for row in sums]
            for u in range(unroll):
                taken = [rows.load(u * plan.width + at, width) for at, width in zip(self.starts, lanes)]
                for p in range(plan.rows):
                    factor = tiles.load(p * plan.inChannels + u)
                    now[p] = [code.fma(code.splat(factor, w.lanes), w, s) for w, s in zip(taken, now[p])]
            for row, values in zip(sums, now):
                for variable, value in zip(row, values):
                    variable.value = value
        return sums

    def take(self, sums: list[list[IRVariable]], address: IRPointer) -> None:
        """Add stored sums to the accumulators."""
        for p, row in enumerate(sums):
            for at, variable in zip(self.starts, row):
                variable.value = address.load(p * self.plan.width + at, variable.type.lanes) + variable.value

    def put(self, sums: list[list[IRVariable]], address: IRPointer) -> None:
        """Store the accumulators."""
        for p, row in enumerate(sums):
            for at, variable in zip(self.starts, row):
                address.store(p * self.plan.width + at, variable.value)

    def finishTile(self, panel: IRValue, tile: IRValue, n: IRValue, h: IRValue, w: IRValue) -> None:
        """The inverse transform: the outputs of a tile, channels of a panel."""
        code, plan = self.code, self.plan
        high, wide = plan.high[1], plan.wide[1]
        column = (self.first + panel) * plan.width
        for loop, width in vectorLoops(code, plan.vectors):
            with loop as start:
                mask = code.mask(plan.outChannels - column - start, width) if plan.outChannels % plan.width else None
                square = [[self.m.load(i * TILE + j, tile, start, width) for j in range(TILE)] for i in range(TILE)]
                for i, row in enumerate(both(code, outputs, square)):
                    for j, value in enumerate(row):
                        with ExitStack() as stack:
                            a, b = h * TILE_OUTPUTS + i, w * TILE_OUTPUTS + j
                            for at, count, k in ((a, high, i), (b, wide, j)):
                                if count % TILE_OUTPUTS and k >= count % TILE_OUTPUTS:
                                    stack.enter_context(code.when(at < count))
                            self.epilogue.put(code, (n * high + a) * wide + b, column + start, value, mask)


def chainOf(inChannels: int) -> int:
    """The number of products added sequentially before their sum is added to the total.

    The transforms enlarge the rounding errors of these sums, which grow with the root of the length of a chain.
    """
    return gcd(inChannels, CHAIN_PRODUCTS if inChannels <= CHAIN_PRODUCTS * CHAIN_PRODUCTS else 2 * CHAIN_PRODUCTS)


def vectorLoops(code: IRBuilder, vectors: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
    """Loops over the starts of the vectors of a panel, one for each width."""
    start = 0
    for width in dict.fromkeys(vectors):
        stop = start + width * vectors.count(width)
        yield code.loop(start, stop, width, unroll=1), width
        start = stop
