"""Contraction: sums over products of numbers that are gathered from two arrays, whatever their axes.

    sums[z, m, n] = sum over k of a[z, m, k] b[z, k, n]

Rows m, columns n, the depth k and the batch z each run along one axis or several; an operand has a stride along each.
Numbers of an operand may count as zero beyond limits. So matrix products and convolutions, forward and back, are the
same kernel, `tile.h`; what differs is where numbers are.

16-bit numbers are multiplied by the instructions of whole warps, float32 and float64 one by one in their own precision;
16-bit numbers are summed in float32. The order of sums follows from the sizes alone. Where there are fewer tiles than a
GPU works on at a time, each has only a part of the depth, and a second kernel adds the parts, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any, NamedTuple

from puregraph.cuda.given import Given
from puregraph.cuda.launch import THREADS, Launch, Scratch, pieces, spread
from puregraph.cuda.source import STORED, read
from puregraph.cuda.tail import Column, Tail, finishOf, most, preamble, sizeOf, write

PROCESSORS = 132  # of a large GPU
FAR = 2**31 - 1  # the largest int
NEAR = 8  # numbers that are read together
LEAST = 8  # stages of depth that are worth a part


class Limit(NamedTuple):
    """A number counts where 0 <= start + lanes i + depth k < length, i and k its indices along these axes."""

    length: int
    start: int
    lanes: tuple[int, ...]
    depth: tuple[int, ...]


class Operand(NamedTuple):
    """Numbers that are multiplied: their kind, where they are, how many lie between neighbours along each axis of the
    lanes (the rows of a, the columns of b), the depth and the batch, from which of them on, and what limits them."""

    dtype: str
    what: Any
    lanes: tuple[int, ...]
    depth: tuple[int, ...]
    batch: tuple[int, ...] = ()
    start: int = 0
    limits: tuple[Limit, ...] = ()


class Space(NamedTuple):
    """The sizes of all axes."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    batch: tuple[int, ...] = ()


class Tile(NamedTuple):
    """What a block sums: so many rows and columns, so deep at a time, `stages` of that ahead; `threadRows` and
    `threadColumns` of them a thread, or a warp where that multiplies as one. `blocks` fit a processor at a time, and
    `speed` is what they are worth next to others."""

    rows: int
    columns: int
    depth: int
    threadRows: int
    threadColumns: int
    threads: int
    stages: int
    blocks: int
    speed: float


TILES = {
    "float": (
        Tile(128, 128, 16, 8, 8, 256, 3, 1, 1.0),
        Tile(128, 64, 16, 8, 4, 256, 3, 2, 0.9),
        Tile(64, 64, 16, 4, 4, 256, 3, 3, 0.75),
        Tile(128, 32, 16, 4, 4, 256, 3, 3, 0.6),
        Tile(32, 128, 16, 4, 4, 256, 3, 3, 0.6),
    ),
    "double": (
        Tile(64, 64, 16, 4, 4, 256, 3, 2, 1.0),
        Tile(128, 32, 16, 4, 4, 256, 3, 2, 0.8),
        Tile(32, 128, 16, 4, 4, 256, 3, 2, 0.8),
    ),
    "Half": (
        Tile(128, 128, 32, 64, 32, 256, 4, 2, 1.0),
        Tile(128, 64, 32, 64, 32, 128, 4, 3, 0.8),
        Tile(64, 64, 32, 32, 32, 128, 4, 4, 0.6),
        Tile(128, 32, 32, 32, 32, 128, 4, 4, 0.5),
        Tile(32, 128, 32, 32, 32, 128, 4, 4, 0.5),
    ),
}
TILES["Bfloat"] = TILES["Half"]


def contraction(
    name: str,
    space: Space,
    a: Operand,
    b: Operand,
    tail: Tail,
    isWhole: bool = False,
    tile: Tile | None = None,
    parts: int | None = None,
) -> list[Launch] | Any:
    """The launches that hand all sums to the tail; NotImplemented for numbers that no tile is made for.

    With `isWhole` no axes are joined, so that contractions of different sizes have one text.
    """
    kind = STORED.get(a.dtype, "")
    if a.dtype != b.dtype or kind not in TILES:
        return NotImplemented
    a, b, tail = withBatch(a, space), withBatch(b, space), tail.moved(lambda c: withBatch(c, space))
    if not isWhole:
        space, a, b, tail = collapsed(space, a, b, tail)
    m, n, k, z = map(prod, space)
    if m * n * z == 0:
        return []
    if max(m, n, k, z, reach(space.depth, a.depth), reach(space.depth, b.depth)) > FAR:
        return NotImplemented
    if tile is None:
        tile = min(TILES[kind], key=lambda tile: cost(tile, m, n, k, z))
    if parts is None:
        parts = partsOf(tile, m, n, k, z)
    part = pieces(pieces(k, parts), tile.depth) * tile.depth
    parts = pieces(k, part)
    text = Text(space, a, b, tail, tile, part, parts, isWhole)
    blocks = pieces(m, tile.rows) * pieces(n, tile.columns) * z * parts
    source = text.source()
    threads = (tile.threads, 1, 1)
    launches = [Launch(name, source, "contract", tuple(text.given.slots), (blocks, 1, 1), threads, text.shared)]
    if parts > 1:
        work = spread(m * n * z // text.finish.pack)
        launches.append(Launch(f"{name}, parts", source, "total", tuple(text.ending.slots), work, (THREADS, 1, 1)))
    return launches


def reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How far apart the numbers along some axes lie at most."""
    return sum((size - 1) * abs(stride) for size, stride in zip(sizes, strides))


def cost(tile: Tile, m: int, n: int, k: int, z: int) -> float:
    """How long all takes, in no unit: what the processor with the most blocks has to do."""
    parts = partsOf(tile, m, n, k, z)
    blocks = pieces(m, tile.rows) * pieces(n, tile.columns) * z * parts
    rounds = ceil(blocks / PROCESSORS)
    return rounds * tile.rows * tile.columns * (ceil(k / parts) + 4 * tile.depth) / tile.speed


def partsOf(tile: Tile, m: int, n: int, k: int, z: int) -> int:
    """In how many parts the depth is summed: enough to give all processors work, each worth it."""
    blocks = pieces(m, tile.rows) * pieces(n, tile.columns) * z
    return max(1, min(PROCESSORS * tile.blocks // blocks, k // (LEAST * tile.depth)))


def distance(sizes: Sequence[int], strides: Sequence[int], isWhole: bool) -> float:
    """How far neighbours along axes lie apart; more where the last axis is short."""
    if not sizes:
        return FAR
    return abs(strides[-1]) * (1.0 if isWhole else max(1.0, NEAR / max(1, sizes[-1])))


# Axes -----------------------------------------------------------------------------------------------------------------


def collapsed(space: Space, a: Operand, b: Operand, tail: Tail) -> tuple[Space, Operand, Operand, Tail]:
    """The same with axes of length one left out, and neighbours joined where that is all the same to everything."""
    ends, limits = tail.columns, (*a.limits, *b.limits)
    rows = joined(space.rows, [a.lanes, *(i.lanes for i in a.limits), *(c.rows for c in ends)])
    columns = joined(space.columns, [b.lanes, *(i.lanes for i in b.limits), *(c.columns for c in ends)])
    depth = joined(space.depth, [a.depth, b.depth, *(i.depth for i in limits)])
    batch = joined(space.batch, [a.batch, b.batch, *(c.batch for c in ends)])
    groups = rows, columns, depth, batch

    def ofOperand(o: Operand, lanes: list[list[int]]) -> Operand:
        few = tuple(i._replace(lanes=last(lanes, i.lanes), depth=last(depth, i.depth)) for i in o.limits)
        return o._replace(
            lanes=last(lanes, o.lanes), depth=last(depth, o.depth), batch=last(batch, o.batch), limits=few
        )

    def ofColumn(c: Column) -> Column:
        return c._replace(rows=last(rows, c.rows), columns=last(columns, c.columns), batch=last(batch, c.batch))

    sizes = [tuple([prod(axes[i] for i in group) for group in some]) for axes, some in zip(space, groups)]
    return Space(*sizes), ofOperand(a, rows), ofOperand(b, columns), tail.moved(ofColumn)


def last(groups: list[list[int]], strides: Sequence[int]) -> tuple[int, ...]:
    """The stride of each group of axes."""
    return tuple([strides[group[-1]] for group in groups])


def withBatch(o: Any, space: Space) -> Any:
    """An operand with a stride for each axis of the batch: zero where it was given none."""
    return o if o.batch else o._replace(batch=(0,) * len(space.batch))


def joined(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """Axes that count as one, in groups."""
    groups: list[list[int]] = []
    for i, size in enumerate(sizes):
        if size == 1:
            continue
        if groups and all(s[groups[-1][-1]] == s[i] * size for s in strides):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


# Text -----------------------------------------------------------------------------------------------------------------


class Text:
    """The text of a contraction, and what its slots hold."""

    def __init__(
        self, space: Space, a: Operand, b: Operand, tail: Tail, tile: Tile, part: int, parts: int, isWhole: bool
    ):
        self.space, self.a, self.b, self.tail, self.tile = space, a, b, tail, tile
        self.part, self.parts, self.isWhole = part, parts, isWhole
        self.finish = finishOf(tail, space.rows, space.columns)
        self.given, self.ending = Given(), Given()
        self.number = STORED[a.dtype]
        self.wide = "double" if self.number == "double" else "float"
        self.isWarped = self.number in ("Half", "Bfloat")
        self.isFound = len(space.depth) > 1 or bool(a.limits or b.limits)

    def source(self) -> str:
        """All of it."""
        tile, number, finish = self.tile, self.number, self.finish
        given = self.given
        for name, size in zip(("m", "n", "k"), map(prod, self.space[:3])):
            given.number(name, size)
        given.number("across", pieces(prod(self.space.columns), tile.columns))
        given.number("down", pieces(prod(self.space.rows), tile.rows))
        sides = [self.side("A", self.a, tile.rows), self.side("B", self.b, tile.columns)]
        depth = self.depth()
        ending = self.ends() if self.parts == 1 else self.keeps()
        total = "" if self.parts == 1 else self.total()
        sums = f"{'Warped' if self.isWarped else 'Plain'}<{number}>"
        self.shared = self.sharedBytes()
        constants = {
            "ROWS": tile.rows, "COLUMNS": tile.columns, "DEPTH": tile.depth, "STAGES": tile.stages,
            "THREADS": tile.threads, "THREADROWS": tile.threadRows, "THREADCOLUMNS": tile.threadColumns,
            "PACK": finish.pack, "PITCH": self.pitch,
        }  # fmt: skip
        return "\n".join(
            [
                f"typedef {self.wide} Wide;",
                *[f"constexpr int {name} = {value};" for name, value in constants.items()],
                f"constexpr bool ALONGROWS = {str(finish.alongRows).lower()};",
                preamble(self.tail, self.wide),
                given.struct,
                *depth,
                *sides,
                read("panel.h"),
                read("warped.h" if self.isWarped else "plain.h"),
                read("tile.h"),
                *ending,
                MAIN.format(
                    arguments=given.arguments,
                    made=given.made,
                    sums=sums,
                    blocks=self.blocks,
                    depths="Found" if self.isFound else "Known",
                ),
                total,
            ]
        )

    @property
    def blocks(self) -> int:
        """How many fit a processor: fewer where threads have to know the places of many lanes."""
        isBusy = any(self.isAlongDepth(o) and (self.packOf(o) == 1 or o.limits) for o in (self.a, self.b))
        return max(1, self.tile.blocks - (isBusy and not self.isWarped))

    @property
    def pitch(self) -> int:
        """Numbers from one row of the sums to the next, while they lie in shared memory."""
        skew = 1 if self.finish.alongRows else 2 if self.wide == "double" else 4
        return self.tile.columns + skew

    def pitchOf(self, o: Operand, lanes: int) -> int:
        """Those from one lane, or depth, of an operand to the next."""
        skew = 16 // sizeOf(o.dtype)
        if self.isAlongDepth(o):
            return self.tile.depth + skew
        return lanes + (skew if self.isWarped else 0)

    def sharedBytes(self) -> int:
        tile, size = self.tile, sizeOf(self.a.dtype)
        stage = 0
        for o, lanes in ((self.a, tile.rows), (self.b, tile.columns)):
            stage += self.pitchOf(o, lanes) * (lanes if self.isAlongDepth(o) else tile.depth)
        places = 2 * tile.depth * 4 * (2 + len(self.a.limits) + len(self.b.limits)) if self.isFound else 0
        sums = tile.rows * self.pitch * (8 if self.wide == "double" else 4)
        return max(stage * tile.stages * size + places, sums)

    def isAlongDepth(self, o: Operand) -> bool:
        """Whether the numbers of an operand lie closer together along the depth than along its lanes."""
        lanes = self.space.rows if o is self.a else self.space.columns
        deep = distance(self.space.depth, o.depth, self.isWhole)
        return deep < distance(lanes, o.lanes, self.isWhole)

    def packOf(self, o: Operand) -> int:
        """How many of its numbers move at once."""
        alongDepth = self.isAlongDepth(o)
        axes, others = (o.depth, o.lanes) if alongDepth else (o.lanes, o.depth)
        sizes = self.space.depth if alongDepth else self.space.rows if o is self.a else self.space.columns
        if axes[-1:] != (1,) or any((i.depth if alongDepth else i.lanes)[-1] for i in o.limits):
            return 1
        return most(o.dtype, sizes[-1], (*axes[:-1], *others, *o.batch, o.start))

    def depth(self) -> list[str]:
        """Depth: how far along each operand a number of the depth is; depthOf finds it."""
        fields, values = ["int a, b;"], []
        text, indices = self.given.indices("k", "k", self.space.depth, "depth")
        for name, o in (("a", self.a), ("b", self.b)):
            values.append(self.given.offset(f"{name}Depth", indices, o.depth, "int"))
        for name, o in (("a", self.a), ("b", self.b)):
            for i, limit in enumerate(o.limits):
                fields.append(f"int {name}{i};")
                values.append(self.given.offset(f"{name}{i}Depth", indices, limit.depth, "int"))
        return [
            f"struct Depth {{ {' '.join(fields)} }};",
            "__device__ static inline Depth depthOf(const Given& g, int k) {",
            text,
            f"return {{{', '.join(values)}}};",
            "}",
        ]

    def side(self, name: str, o: Operand, lanes: int) -> str:
        """How an operand is read."""
        given, low = self.given, name.lower()
        pointer = given.pointer(low, o.dtype, o.what)
        isA = name == "A"
        sizes = self.space.rows if isA else self.space.columns
        laneText, laneIndices = given.indices("i", "lane", sizes, "row" if isA else "column")
        batchText, batchIndices = given.indices("z", "z", self.space.batch, "batch")
        start = given.offset(f"{low}Batch", batchIndices, o.batch)
        start += f" + {given.number(f'{low}Start', o.start, 'long')}" if o.start or self.isWhole else ""
        limits = []
        for i, limit in enumerate(o.limits):
            first = given.offset(f"{low}{i}Lane", laneIndices, limit.lanes, "int")
            limits.append(
                (
                    f"{first} + {given.number(f'{low}{i}Start', limit.start)}",
                    given.number(f"{low}{i}Length", limit.length),
                )
            )
        tests = [f"(unsigned)(l.p{i} + d.{low}{i}) < (unsigned){length}" for i, (_, length) in enumerate(limits)]
        values = [f"start + {given.offset(f'{low}Lane', laneIndices, o.lanes)}", *(first for first, _ in limits)]
        nothing = ", ".join(["nullptr", *["0"] * len(limits)])
        return SIDE.format(
            name=name, number=self.number, lanes=lanes, pack=self.packOf(o), pitch=self.pitchOf(o, lanes),
            alongDepth=str(self.isAlongDepth(o)).lower(), count="m" if isA else "n", low=low, pointer=pointer,
            places="".join(f" int p{i};" for i in range(len(limits))), laneText=laneText, batchText=batchText,
            start=start, values=", ".join(values), nothing=nothing, tests=" && ".join(["l.at", *tests]),
        )  # fmt: skip

    def ends(self) -> list[str]:
        """C that hands sums to the tail."""
        self.given.number("part", self.part)
        return [write(self.finish, self.given, self.space, self.isWhole), WHOLE]

    def keeps(self) -> list[str]:
        """C that keeps the sums of a part."""
        m, n, _, z = map(prod, self.space)
        sizes = (n, m) if self.finish.alongRows else (m, n)
        self.kept = Scratch((z, self.parts, *sizes), "float64" if self.wide == "double" else "float32")
        self.given.number("part", self.part)
        self.given.number("parts", self.parts)
        self.given.pointer("kept", self.kept.dtype.name, self.kept, True)
        return [PART]

    def total(self) -> str:
        """The kernel that adds parts."""
        ending, space = self.ending, self.space
        for name, size in zip(("m", "n"), map(prod, space[:2])):
            ending.number(name, size)
        ending.number("parts", self.parts)
        ending.number("count", prod(space.batch))
        ending.pointer("kept", self.kept.dtype.name, self.kept)
        finish = write(self.finish, ending, space, self.isWhole)
        struct = ending.struct + finish
        return TOTAL.format(
            ending=struct.replace("Given", "Ending"),
            arguments=ending.arguments,
            made=ending.made.replace("Given", "Ending"),
        )


SIDE = """
struct {name} {{
  typedef {number} Number;
  static constexpr int lanes = {lanes}, pack = {pack}, pitch = {pitch};
  static constexpr bool alongDepth = {alongDepth};
  struct Lane {{
    const {number}* at;{places}
  }};
  __device__ static inline const {number}* base(const Given& g) {{ return {pointer}; }}
  __device__ static inline const {number}* start(const Given& g, int z) {{
    {batchText}
    return {pointer} + ({start});
  }}
  __device__ static inline Lane lane(const Given& g, const {number}* start, int lane) {{
    if (lane >= g.{count}) return {{{nothing}}};
    {laneText}
    return {{{values}}};
  }}
  __device__ static inline bool holds(const Given& g, const Lane& l, const Depth& d) {{
    return {tests};
  }}
  __device__ static inline const {number}* place(const Lane& l, const Depth& d) {{ return l.at + d.{low}; }}
}};
"""

MAIN = """
extern "C" __global__ void __launch_bounds__(THREADS, {blocks}) contract({arguments}) {{
  {made}
  DYNAMIC(char, memory);
  Wide* const sums = reinterpret_cast<Wide*>(memory);
  const Where at = whereOf(g);
  sumTile<{sums}, {depths}>(g, memory, at.z, at.m, at.n, at.start, at.end, sums);
  constexpr int beside = (ALONGROWS ? ROWS : COLUMNS) / PACK;
  for (int i = threadIdx.x; i < ROWS * COLUMNS / PACK; i += THREADS) {{
    const int one = i % beside * PACK, two = i / beside;
    const int m = ALONGROWS ? one : two, n = ALONGROWS ? two : one;
    if (at.m + m >= g.m || at.n + n >= g.n) continue;
    Wide own[PACK];
#pragma unroll
    for (int j = 0; j < PACK; j++) own[j] = sums[(ALONGROWS ? m + j : m) * PITCH + (ALONGROWS ? n : n + j)];
    end(g, at, at.m + m, at.n + n, own);
  }}
}}
"""

WHOLE = """
__device__ static inline Where whereOf(const Given& g) {
  return placeOfTile(blockIdx.x, 1, g.down, g.across, g.k, g.k);
}
__device__ static inline void end(const Given& g, const Where& at, int m, int n, const Wide* own) {
  finish(g, at.z, m, n, own);
}
"""

PART = """
__device__ static inline Where whereOf(const Given& g) {
  return placeOfTile(blockIdx.x, g.parts, g.down, g.across, g.part, g.k);
}
__device__ static inline void end(const Given& g, const Where& at, int m, int n, const Wide* own) {
  const int64 first = ((int64)at.z * g.parts + at.part) * g.m * g.n;
#pragma unroll
  for (int j = 0; j < PACK; j++)
    g.kept[first + (ALONGROWS ? (int64)n * g.m + m + j : (int64)m * g.n + n + j)] = own[j];
}
"""

TOTAL = """
{ending}
extern "C" __global__ void total({arguments}) {{
  {made}
  const int64 all = (int64)g.m * g.n, packs = all / PACK, step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < packs * g.count; i += step) {{
    const int z = (int)(i / packs);
    const int64 at = (i - z * packs) * PACK;
    Wide sums[PACK] = {{}};
    for (int part = 0; part < g.parts; part++)
#pragma unroll
      for (int j = 0; j < PACK; j++) sums[j] += g.kept[((int64)z * g.parts + part) * all + at + j];
    const int one = (int)(at / (ALONGROWS ? g.m : g.n)), two = (int)(at - (int64)one * (ALONGROWS ? g.m : g.n));
    finish(g, z, ALONGROWS ? two : one, ALONGROWS ? one : two, sums);
  }}
}}
"""
