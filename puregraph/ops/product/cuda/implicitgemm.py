"""Implicit GEMM: a contraction of elements that are gathered from two arrays, whatever their axes.

    sums[z, m, n] = sum over k of a[z, m, k] b[z, k, n]

Rows m, columns n, the depth k and the batch z each run along one axis or several; an operand has a stride along each.
Elements of an operand beyond its limits count as zero. So matrix products and convolutions, forward and backward, are
the same kernel, `tile.h`; only the addresses of elements differ.

16-bit elements are multiplied on tensor cores and summed in float32; float32 and float64 are computed in their own
precision. The order of sums depends on the sizes alone. Where there are fewer tiles than a GPU runs at a time, the
depth is divided (split-k): each block sums a part of it, and a second kernel adds the parts, in order.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, Scratch, blocksFor, gridFor
from puregraph.ops.cuda.runtime.preprocess import STORED, read
from puregraph.ops.product.cuda.blocktiling import (
    TILES,
    BlockTile,
    ContractionShape,
    blocksOf,
    occupancy,
    partsOf,
    tileFor,
)
from puregraph.ops.product.cuda.epilogue import EpilogueText, epilogueLoop, preamble, sizeOf, write
from puregraph.ops.product.cuda.operandlayout import (
    INT_MAX,
    ContractionOperand,
    OperandReading,
    Space,
    collapsed,
    reach,
    sideOf,
    withBatch,
)

if TYPE_CHECKING:
    from types import NotImplementedType


def contraction(
    name: str,
    space: Space,
    a: ContractionOperand,
    b: ContractionOperand,
    epilogue: EpilogueText,
    isWhole: bool = False,
    tile: BlockTile | None = None,
    parts: int | None = None,
) -> list[Launch] | NotImplementedType:
    """The launches that give all sums to the epilogue; NotImplemented for dtypes that no tile supports.

    With `isWhole` no axes are joined, so that contractions of different sizes have one text.
    """
    kind = STORED.get(a.dtype, "")
    if a.dtype != b.dtype or kind not in TILES:
        return NotImplemented
    a, b, epilogue = withBatch(a, space), withBatch(b, space), epilogue.moved(lambda c: withBatch(c, space))
    if not isWhole:
        space, a, b, epilogue = collapsed(space, a, b, epilogue)
    m, n, k, z = map(prod, space)
    if m * n * z == 0:
        return []
    if max(m, n, k, z, reach(space.depth, a.depth), reach(space.depth, b.depth)) > INT_MAX:
        return NotImplemented
    work = ContractionShape(
        kind, m, n, k, z, sideOf(a, space.rows, space.depth, isWhole), sideOf(b, space.columns, space.depth, isWhole)
    )
    tile = tile or tileFor(work)
    parts = parts or partsOf(tile, work)
    part = blocksFor(blocksFor(k, parts), tile.depth) * tile.depth
    parts = blocksFor(k, part)
    text = ContractionText(space, work, epilogue, tile, part, parts, isWhole)
    blocks = blocksOf(tile, work) * parts
    source = text.source()
    threads = (tile.threads, 1, 1)
    launches = [Launch(name, source, "contract", tuple(text.args.slots), (blocks, 1, 1), threads, text.shared)]
    if parts > 1:
        grid = gridFor(m * n * z // text.finish.pack)
        launches.append(Launch(f"{name}, parts", source, "total", tuple(text.ending.slots), grid, (THREADS, 1, 1)))
    return launches


class ContractionText:
    """The text of a contraction, and the arguments of its kernels."""

    def __init__(
        self,
        space: Space,
        work: ContractionShape,
        epilogue: EpilogueText,
        tile: BlockTile,
        part: int,
        parts: int,
        isWhole: bool,
    ):
        self.space, self.work, self.epilogue, self.tile = space, work, epilogue, tile
        self.part, self.parts, self.isWhole = part, parts, isWhole
        self.a, self.b = work.a.operand, work.b.operand
        self.finish = epilogueLoop(epilogue, space.rows, space.columns)
        self.args, self.ending = KernelArgs(), KernelArgs()
        self.wide = "double" if work.kind == "double" else "float"
        self.isWarped = work.kind in ("Half", "Bfloat")
        self.isFound = len(space.depth) > 1 or bool(self.a.limits or self.b.limits)

    def source(self) -> str:
        """The whole text."""
        tile, work, finish, args = self.tile, self.work, self.finish, self.args
        for name, size in (("m", work.m), ("n", work.n), ("k", work.k)):
            args.number(name, size)
        args.number("across", blocksFor(work.n, tile.columns))
        args.number("down", blocksFor(work.m, tile.rows))
        sides = [self.side("A", work.a, tile.rows), self.side("B", work.b, tile.columns)]
        depth = self.depth()
        ending = self.ends() if self.parts == 1 else self.keeps()
        total = "" if self.parts == 1 else self.total()
        sums = f"{'Warped' if self.isWarped else 'Plain'}<{work.kind}>"
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
                preamble(self.epilogue, self.wide),
                args.struct,
                *depth,
                *sides,
                read("panel.h"),
                read("warped.h" if self.isWarped else "plain.h"),
                read("tile.h"),
                *ending,
                MAIN.format(
                    arguments=args.arguments,
                    made=args.made,
                    sums=sums,
                    blocks=occupancy(tile, work),
                    depths="Found" if self.isFound else "Known",
                ),
                total,
            ]
        )

    @property
    def pitch(self) -> int:
        """Elements from one row of the sums to the next in shared memory."""
        skew = 1 if self.finish.alongRows else 2 if self.wide == "double" else 4
        return self.tile.columns + skew

    def pitchOf(self, side: OperandReading, lanes: int) -> int:
        """Elements from one lane, or depth, of an operand to the next in shared memory."""
        skew = 16 // sizeOf(side.operand.dtype)
        return self.tile.depth + skew if side.alongDepth else lanes + (skew if self.isWarped else 0)

    def sharedBytes(self) -> int:
        """Shared memory for all stages and the offsets of a depth; afterwards for the sums."""
        tile, stage = self.tile, 0
        for side, lanes in ((self.work.a, tile.rows), (self.work.b, tile.columns)):
            stage += self.pitchOf(side, lanes) * (lanes if side.alongDepth else tile.depth)
        offsets = 2 * tile.depth * 4 * (2 + len(self.a.limits) + len(self.b.limits)) if self.isFound else 0
        sums = tile.rows * self.pitch * (8 if self.wide == "double" else 4)
        return max(stage * tile.stages * sizeOf(self.a.dtype) + offsets, sums)

    def depth(self) -> list[str]:
        """C of Depth, the offsets of an element of the depth in each operand, and of depthOf, which computes it."""
        fields, values = ["int a, b;"], []
        text, indices = self.args.indices("k", "k", self.space.depth, "depth")
        for name, o in (("a", self.a), ("b", self.b)):
            values.append(self.args.offset(f"{name}Depth", indices, o.depth, "int"))
        for name, o in (("a", self.a), ("b", self.b)):
            for i, limit in enumerate(o.limits):
                fields.append(f"int {name}{i};")
                values.append(self.args.offset(f"{name}{i}Depth", indices, limit.depth, "int"))
        return [
            f"struct Depth {{ {' '.join(fields)} }};",
            "__device__ static inline Depth depthOf(const Given& g, int k) {",
            text,
            f"return {{{', '.join(values)}}};",
            "}",
        ]

    def side(self, name: str, side: OperandReading, lanes: int) -> str:
        """C that reads an operand."""
        args, low, o = self.args, name.lower(), side.operand
        pointer = args.pointer(low, o.dtype, o.what)
        isA = name == "A"
        laneText, laneIndices = args.indices("i", "lane", side.sizes, "row" if isA else "column")
        batchText, batchIndices = args.indices("z", "z", self.space.batch, "batch")
        start = args.offset(f"{low}Batch", batchIndices, o.batch)
        start += f" + {args.number(f'{low}Start', o.start, 'long')}" if o.start or self.isWhole else ""
        limits = []
        for i, limit in enumerate(o.limits):
            first = args.offset(f"{low}{i}Lane", laneIndices, limit.lanes, "int")
            limits.append(
                (
                    f"{first} + {args.number(f'{low}{i}Start', limit.start)}",
                    args.number(f"{low}{i}Length", limit.length),
                )
            )
        tests = [f"(unsigned)(l.p{i} + d.{low}{i}) < (unsigned){length}" for i, (_, length) in enumerate(limits)]
        values = [f"start + {args.offset(f'{low}Lane', laneIndices, o.lanes)}", *(first for first, _ in limits)]
        nothing = ", ".join(["nullptr", *["0"] * len(limits)])
        return SIDE.format(
            name=name, number=self.work.kind, lanes=lanes, pack=side.pack, pitch=self.pitchOf(side, lanes),
            alongDepth=str(side.alongDepth).lower(), count="m" if isA else "n", low=low, pointer=pointer,
            offsets="".join(f" int p{i};" for i in range(len(limits))), laneText=laneText, batchText=batchText,
            start=start, values=", ".join(values), nothing=nothing, tests=" && ".join(["l.at", *tests]),
        )  # fmt: skip

    def ends(self) -> list[str]:
        """C that gives sums to the epilogue."""
        self.args.number("part", self.part)
        return [write(self.finish, self.args, self.space, self.isWhole), WHOLE]

    def keeps(self) -> list[str]:
        """C that stores the sums of a part."""
        m, n, z = self.work.m, self.work.n, self.work.z
        sizes = (n, m) if self.finish.alongRows else (m, n)
        self.kept = Scratch((z, self.parts, *sizes), "float64" if self.wide == "double" else "float32")
        self.args.number("part", self.part)
        self.args.number("parts", self.parts)
        self.args.pointer("kept", self.kept.dtype.name, self.kept, True)
        return [PART]

    def total(self) -> str:
        """The kernel that adds the parts of split-k."""
        ending, work = self.ending, self.work
        for name, size in (("m", work.m), ("n", work.n), ("parts", self.parts), ("count", work.z)):
            ending.number(name, size)
        ending.pointer("kept", self.kept.dtype.name, self.kept)
        finish = write(self.finish, ending, self.space, self.isWhole)
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
    const {number}* at;{offsets}
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
  __device__ static inline const {number}* address(const Lane& l, const Depth& d) {{ return l.at + d.{low}; }}
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
  return tileOf(blockIdx.x, 1, g.down, g.across, g.k, g.k);
}
__device__ static inline void end(const Given& g, const Where& at, int m, int n, const Wide* own) {
  finish(g, at.z, m, n, own);
}
"""

PART = """
__device__ static inline Where whereOf(const Given& g) {
  return tileOf(blockIdx.x, g.parts, g.down, g.across, g.part, g.k);
}
__device__ static inline void end(const Given& g, const Where& at, int m, int n, const Wide* own) {
  const int64 first = ((int64)at.z * g.parts + at.part) * g.m * g.n;
  storeMany<PACK>(g.kept, first + (ALONGROWS ? (int64)n * g.m + m : (int64)m * g.n + n), own);
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
    for (int part = 0; part < g.parts; part++) {{
      Wide own[PACK];
      loadMany<PACK>(g.kept, ((int64)z * g.parts + part) * all + at, own);
#pragma unroll
      for (int j = 0; j < PACK; j++) sums[j] += own[j];
    }}
    const int one = (int)(at / (ALONGROWS ? g.m : g.n)), two = (int)(at - (int64)one * (ALONGROWS ? g.m : g.n));
    finish(g, z, ALONGROWS ? two : one, ALONGROWS ? one : two, sums);
  }}
}}
"""
