"""Winograd: 3x3 convolutions of stride one with a quarter of the products, on tiles of 4x4 outputs.

A tile of 6x6 inputs d and a filter g become 36 numbers each, V = B' d B and U = G g G'; their products, summed over
the input maps, become the outputs: y = A' M A. A convolution is then 36 matrix products of few rows, one for each of
these positions. The adjoints have the same form: the data gradient is a convolution with turned weights, and
dW = G' (sum over tiles of V (A dy A')) G.

The points that the transforms interpolate at are 0, +-3/4, +-3/2 and infinity: the result is then about three times as
far from the exact sums as plain summation is, a third of the error of the usual points 0, +-1, +-2.

Source    Lavin and Gray 2016, Fast Algorithms for Convolutional Neural Networks, arXiv:1509.09308
          Barabasz, Anderson, Soodhalter, Gregg 2020, Error Analysis and Improving the Accuracy of Winograd Convolution
"""

from __future__ import annotations

from contextlib import ExitStack
from math import ceil
from typing import Any, NamedTuple

from puregraph.native import machine
from puregraph.native.code import Code, Pointer, Type, Value
from puregraph.native.geometry import Geometry
from puregraph.native.tiling import registers, vectorsOf
from puregraph.native.work import Finish, Work

SIZE = 4  # outputs of a tile, on each axis
TILE = 6  # inputs of a tile, on each axis
POSITIONS = TILE * TILE
A = 0.75  # the points are 0, A, -A, B, -B and infinity
B = 1.5
NEAR = 540 << 10  # bytes of transformed inputs that stay in the second cache
MOST = 64  # tasks
APART = 16  # numbers between positions, so that they do not share cache sets


def inputs(code: Code, d: list[Value]) -> list[Value]:
    """B' d: six inputs to the six positions."""
    a, b = A * A, B * B
    evenA, oddA = code.fma(d[2], -b, d[4]), code.fma(d[1], -b, d[3])
    evenB, oddB = code.fma(d[2], -a, d[4]), code.fma(d[1], -a, d[3])
    return [
        code.fma(d[0], a * b, code.fma(d[2], -(a + b), d[4])),
        code.fma(oddA, A, evenA),
        code.fma(oddA, -A, evenA),
        code.fma(oddB, B, evenB),
        code.fma(oddB, -B, evenB),
        code.fma(d[1], a * b, code.fma(d[3], -(a + b), d[5])),
    ]


def outputs(code: Code, m: list[Value]) -> list[Value]:
    """A' m: six positions to the four outputs."""
    sumA, sumB, lessA, lessB = m[1] + m[2], m[3] + m[4], m[1] - m[2], m[3] - m[4]
    return [
        m[0] + sumA + sumB,
        code.fma(lessA, A, lessB * B),
        code.fma(sumA, A**2, sumB * B**2),
        code.fma(lessA, A**3, code.fma(lessB, B**3, m[5])),
    ]


def outputsBack(code: Code, y: list[Value]) -> list[Value]:
    """A y: four gradients of outputs to those of the six positions."""
    found = [y[0]]
    for point in (A, B):
        even, odd = code.fma(y[2], point**2, y[0]), code.fma(y[3], point**2, y[1])
        found += [code.fma(odd, point, even), code.fma(odd, -point, even)]
    return [*found, y[3]]


def scales() -> tuple[float, float, float]:
    """What the weights are divided by: the derivatives of the interpolation at 0, A and B."""
    return A**2 * B**2, 2 * A**2 * (A**2 - B**2), 2 * B**2 * (B**2 - A**2)


def weights(code: Code, g: list[Value]) -> list[Value]:
    """G g: three weights to the six positions."""
    zero, atA, atB = scales()
    found = [g[0] * (1 / zero)]
    for point, scale in ((A, atA), (B, atB)):
        even, odd = code.fma(g[2], point**2 / scale, g[0] * (1 / scale)), g[1] * (point / scale)
        found += [even + odd, even - odd]
    return [*found, g[2]]


def weightsBack(code: Code, u: list[Value]) -> list[Value]:
    """G' u: the gradients of six positions to those of the three weights."""
    zero, atA, atB = scales()
    sumA, sumB, lessA, lessB = u[1] + u[2], u[3] + u[4], u[1] - u[2], u[3] - u[4]
    return [
        code.fma(sumA, 1 / atA, code.fma(sumB, 1 / atB, u[0] * (1 / zero))),
        code.fma(lessA, A / atA, lessB * (B / atB)),
        code.fma(sumA, A**2 / atA, code.fma(sumB, B**2 / atB, u[5])),
    ]


def both(code: Code, of: Any, square: list[list[Value]]) -> list[list[Value]]:
    """A transform of the columns of a square, then of its rows."""
    columns = [of(code, list(column)) for column in zip(*square)]
    return [of(code, list(row)) for row in zip(*columns)]


class Plan(NamedTuple):
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
        return self.panels * POSITIONS * self.depth * self.width


def planOf(n: int, depth: int, maps: int, high: tuple[int, int, int], wide: tuple[int, int, int]) -> Plan:
    lanes, most = machine.lanes(4), registers()
    tiles = n * ceil(high[1] / SIZE) * ceil(wide[1] / SIZE)
    best: Any = None
    for panels in range(1, ceil(maps / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(maps / panels) / 4) * 4, lanes)
        v = len(vectors)
        if v > 4 or (panels > 1 and sum(vectors) % lanes):
            continue
        rows = min(14, (most - v - 1) // v, tiles)
        price = panels * max(v * rows, rows + v, 4) / rows
        if best is None or price < best[0]:
            best = price, vectors, rows
    _, vectors, rows = best
    fits = max(1, NEAR // (4 * POSITIONS * depth) // rows)
    block = rows * max(1, min(fits, ceil(28 / rows), ceil(tiles / rows)))
    return Plan(n, depth, maps, high, wide, vectors, rows, block)


def forwardPlan(g: Geometry) -> Plan:
    _, high, wide = g.axes
    return planOf(
        g.n, g.c, g.o, (high.length, high.count, high.before), (wide.length, wide.count, wide.before)
    )


def dataPlan(g: Geometry) -> Plan:
    _, high, wide = g.axes
    return planOf(
        g.n,
        g.o,
        g.c,
        (high.count, high.length, high.size - 1 - high.before),
        (wide.count, wide.length, wide.size - 1 - wide.before),
    )


def pack(name: str, plan: Plan, W: Any, packed: Any, isTurned: bool) -> Work:
    """U = G g G' of all filters: (panel, position, input, output of the panel); W is (o, c, 3, 3).

    Turned, W's outputs are the inputs, and the filters are turned by half a turn.
    """
    depth, maps = plan.depth, plan.maps
    lane, deep = (9, maps * 9) if isTurned else (depth * 9, 9)
    share = ceil(depth / max(1, min(depth, MOST // plan.panels)))
    shares = ceil(depth / share)

    def write(code: Code) -> None:
        w, to = code.pointer("W", "f32"), code.pointer("packed", "f32")
        panel, part = code.task // shares, code.task % shares
        to = to.at(panel * (POSITIONS * depth * plan.width))
        begin = 0
        for width in plan.vectors:
            o = panel * plan.width + begin
            mask = code.mask(maps - o, width) if maps % plan.width else None
            each = code.steps(width) * lane
            with code.loop(part * share, code.least((part + 1) * share, depth), unroll=1) as c:
                source = w.at(o * lane + c * deep)
                square = [
                    [source.at(8 - i * 3 - j if isTurned else i * 3 + j).gather(each, mask) for j in range(3)]
                    for i in range(3)
                ]
                for i, row in enumerate(both(code, weights, square)):
                    for j, value in enumerate(row):
                        to.store(((i * TILE + j) * depth + c) * plan.width + begin, value)
            begin += width

    key = f"pack winograd {depth} {maps} {plan.vectors} {isTurned} {share}"
    return Work(name, key, write, {"W": W, "packed": packed}, plan.panels * shares)


def convolve(name: str, plan: Plan, x: Any, xPixel: int, packed: Any, finish: Finish) -> Work:
    """y = the convolution of x with the packed weight."""
    blocks = ceil(plan.tiles / plan.block)
    tasks = min(blocks, MOST)
    key = f"winograd {plan} {xPixel} {tasks} {finish.key}"

    def write(code: Code) -> None:
        Convolver(code, plan, xPixel, finish, tasks).write()

    return Work(name, key, write, {"x": x, "b": packed, **finish.slots}, tasks)


class Convolver:
    """Writes the code of a convolution."""

    def __init__(self, code: Code, plan: Plan, xPixel: int, finish: Finish, tasks: int):
        self.code, self.plan, self.xPixel, self.finish, self.tasks = code, plan, xPixel, finish, tasks
        self.starts = [sum(plan.vectors[:v]) for v in range(len(plan.vectors))]

    def write(self) -> None:
        code, plan = self.code, self.plan
        self.x, self.b = code.pointer("x", "f32"), code.pointer("b", "f32")
        self.finish.open(code)
        self.reader = Reader(code, self.x, self.xPixel, plan.depth, plan.high, plan.wide, TILE, inputs)
        self.v = Grid(code, plan.block, plan.depth)
        self.m = Grid(code, plan.block, plan.width)
        blocks = ceil(plan.tiles / plan.block)
        first, last = code.task * blocks // self.tasks, (code.task + 1) * blocks // self.tasks
        with code.loop(first, last, unroll=1) as block:
            begin = block * plan.block
            count = code.least(plan.tiles - begin, plan.block)
            with code.loop(0, count, unroll=1) as tile:
                self.reader.tile(*self.placeOf(begin + tile), self.v, tile)
            with code.loop(0, plan.panels, unroll=1) as panel:
                rounds = (count + (plan.rows - 1)) // plan.rows
                with code.loop(0, POSITIONS, unroll=1) as position, code.loop(0, rounds, unroll=1) as i:
                    self.product(panel, position, i * plan.rows)
                with code.loop(0, count, unroll=1) as tile:
                    self.finishTile(panel, tile, *self.placeOf(begin + tile))

    def placeOf(self, tile: Value) -> tuple[Value, Value, Value]:
        """The sample, row and column of a tile."""
        high, wide = self.plan.grid
        return tile // (high * wide), tile // wide % high, tile % wide

    def product(self, panel: Value, position: Value, first: Value) -> None:
        """One position: some tiles of all inputs times the weights of a panel."""
        code, plan, lanes = self.code, self.plan, self.plan.vectors
        b = (panel * POSITIONS + position) * (plan.depth * plan.width)
        v = self.v.at(position, first, 0)
        sums = [[code.variable(code.constant(0, Type("f32", width))) for width in lanes] for _ in range(plan.rows)]
        unroll = max(u for u in (1, 2, 4) if plan.depth % u == 0 and (u == 1 or u * plan.rows * len(lanes) <= 64))
        with code.loop(0, plan.depth, unroll, unroll=1) as k:
            rows, tiles = self.b.at(b + k * plan.width), self.v.numbers.at(v + k)
            now = [[variable.value for variable in each] for each in sums]
            for u in range(unroll):
                taken = [rows.load(u * plan.width + start, width) for start, width in zip(self.starts, lanes)]
                for p in range(plan.rows):
                    factor = tiles.load(p * plan.depth + u)
                    now[p] = [code.fma(code.splat(factor, w.lanes), w, s) for w, s in zip(taken, now[p])]
            for each, values in zip(sums, now):
                for variable, value in zip(each, values):
                    variable.value = value
        m = self.m.numbers.at(self.m.at(position, first, 0))
        for p, each in enumerate(sums):
            for start, variable in zip(self.starts, each):
                m.store(p * plan.width + start, variable.value)

    def finishTile(self, panel: Value, tile: Value, n: Value, h: Value, w: Value) -> None:
        """The outputs of a tile, maps of a panel."""
        code, plan = self.code, self.plan
        high, wide = plan.high[1], plan.wide[1]
        column = panel * plan.width
        for start, width in zip(self.starts, plan.vectors):
            mask = code.mask(plan.maps - column - start, width) if plan.maps % plan.width else None
            square = [
                [self.m.load(i * TILE + j, tile, start, width) for j in range(TILE)] for i in range(TILE)
            ]
            for i, row in enumerate(both(code, outputs, square)):
                for j, value in enumerate(row):
                    with ExitStack() as stack:
                        a, b = h * SIZE + i, w * SIZE + j
                        for at, count, k in ((a, high, i), (b, wide, j)):
                            if count % SIZE and k >= count % SIZE:
                                stack.enter_context(code.when(at < count))
                        self.finish.put(code, (n * high + a) * wide + b, column + start, value, mask)


class Grid:
    """Scratch memory for the 36 positions of some tiles, so many maps each."""

    def __init__(self, code: Code, tiles: int, maps: int):
        self.code, self.maps = code, maps
        self.pitch = tiles * maps + APART
        self.numbers = code.room("f32", POSITIONS * self.pitch)

    def at(self, position: Value | int, tile: Value, map: Value | int) -> Value:
        return tile * self.maps + position * self.pitch + map

    def load(self, position: int, tile: Value, map: Value | int, lanes: int) -> Value:
        return self.numbers.load(self.at(position, tile, map), lanes)

    def store(self, position: int, tile: Value, map: Value | int, value: Value) -> None:
        self.numbers.store(self.at(position, tile, map), value)


class Reader:
    """Writes the code that transforms a tile of `size` x `size` numbers of each map; what is outside counts as zero."""

    def __init__(
        self,
        code: Code,
        x: Pointer,
        pixel: int,
        maps: int,
        high: tuple[int, int, int],
        wide: tuple[int, int, int],
        size: int,
        of: Any,
    ):
        self.code, self.x, self.pixel, self.maps = code, x, pixel, maps
        self.high, self.wide, self.size, self.of = high, wide, size, of
        self.lanes = next(lanes for lanes in (machine.lanes(4), 8, 4) if maps % lanes == 0)
        self.zeros = code.room("f32", maps)
        self.places = code.room("ptr", size * size)
        with code.loop(0, maps, self.lanes) as c:
            self.zeros.store(c, code.constant(0, Type("f32", self.lanes)))

    def tile(self, n: Value, h: Value, w: Value, to: Grid, tile: Value) -> None:
        """Transform the tile in row h and column w of a sample."""
        code, size = self.code, self.size
        a, b = h * SIZE - self.high[2], w * SIZE - self.wide[2]
        isInside = (a >= 0) & (a + size <= self.high[0]) & (b >= 0) & (b + size <= self.wide[0])
        start = (n * self.high[0] + a) * self.wide[0] + b
        with code.when(isInside):
            with code.loop(0, self.maps, self.lanes, unroll=1) as c:
                corner = self.x.at(start * self.pixel + c)
                square = [
                    [corner.load((i * self.wide[0] + j) * self.pixel, self.lanes) for j in range(size)]
                    for i in range(size)
                ]
                self.put(square, to, tile, c)
        with code.when(~isInside):
            self.look(a, b, start)
            with code.loop(0, self.maps, self.lanes, unroll=1) as c:
                square = [
                    [self.there(i * size + j).load(c, self.lanes) for j in range(size)] for i in range(size)
                ]
                self.put(square, to, tile, c)

    def look(self, a: Value, b: Value, start: Value) -> None:
        """Write down where each number of a tile at the border is: the first map of its pixel, or zeros."""
        code, size = self.code, self.size
        with code.loop(0, size, unroll=1) as i, code.loop(0, size, unroll=1) as j:
            h, w = a + i, b + j
            isThere = (h >= 0) & (h < self.high[0]) & (w >= 0) & (w < self.wide[0])
            place = pointed(self.x.at((start + i * self.wide[0] + j) * self.pixel))
            self.places.store(i * size + j, code.select(isThere, place, pointed(self.zeros)))

    def there(self, number: int) -> Pointer:
        return Pointer(self.code, self.places.load(number).name, "f32")

    def put(self, square: list[list[Value]], to: Grid, tile: Value, c: Value) -> None:
        for i, row in enumerate(both(self.code, self.of, square)):
            for j, value in enumerate(row):
                to.store(i * TILE + j, tile, c, value)


def pointed(place: Pointer) -> Value:
    """A pointer as a value, to be chosen and kept."""
    return Value(place.code, place.name, Type("ptr"))
