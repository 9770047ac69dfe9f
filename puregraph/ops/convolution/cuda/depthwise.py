"""Depthwise convolutions, in which each channel has its own filters, and their two gradients, without matrix products.

    forward    y[n, o, a]  = sum over t of W[o, t] x[n, o // m, h]
    data       dx[n, c, h] = sum over t and the m filters o of c of W[o, t] grad[n, o, a]
    weight     dW[o, t]    = sum over n, a of grad[n, o, a] x[n, o // m, h]

where h = a stride + t dilation - before.

A thread computes a few spatial positions, of one channel, or of as many as 16 bytes hold where channels are contiguous.
The sums of a weight are split into parts, which a second kernel adds in order.
"""

from __future__ import annotations

from math import prod
from typing import Any

from puregraph.ops.convolution.cuda.slidingwindow import INT_MAX, MOVES, at, gridOf, launch, packOf, wideType, windows
from puregraph.ops.convolution.cuda.tonhwc import StridedOperand, toNhwc
from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import THREADS, WARP, Launch, Scratch, blocksFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats

THREAD_POSITIONS = 4  # positions along the last axis that a thread computes where channels are contiguous
CONCURRENT_BLOCKS = 132 * 8  # blocks that a large GPU runs at a time
MIN_THREAD_POSITIONS = 64  # fewest positions for which a thread pays off


def forward(y: Any, x: Any, W: Any, window: Any) -> list[Launch] | Any:
    """y = x * W."""
    return convolved("depthwise", y, x, W, window, isBack=False)


def data(dx: Any, grad: Any, W: Any, window: Any) -> list[Launch] | Any:
    """dx of y = x * W."""
    return convolved("depthwiseData", dx, grad, W, window, isBack=True)


def convolved(name: str, y: Any, x: Any, W: Any, window: Any, isBack: bool) -> list[Launch] | Any:
    """A sum over taps, and backward over the filters of a channel too: x is read, y is written."""
    several = W.shape[0] // (y if isBack else x).shape[1]
    grid, rank, args = gridOf(y, *[x] * (several == 1), run=THREAD_POSITIONS), len(y.shape) - 2, KernelArgs()
    if grid is None or not areFloats(x, y, W):
        return NotImplemented
    if not y.size:
        return []
    if several > 1:
        grid = grid._replace(pack=1)
    first, filters = (
        channelsLastWeight(W) if grid.pack > 1 else ([], StridedOperand(W.dtype.name, W, W.shape, stridesOf(W)))
    )
    for key, array, isWritten in (("y", y, True), ("x", x, False)):
        args.pointer(key, array.dtype.name, array, isWritten)
    args.pointer("w", filters.dtype, filters.what)
    windows(args, window)
    o, _, *taps = filters.strides
    end = rank - 1
    heads = []
    for i in range(end):
        heads.append(f"for (int t{i} = 0; t{i} < g.size{i}; t{i}++) {{")
        heads.append(read(i, f"position{i}", isBack, args, window))
        heads.append(f"if ((unsigned)s{i} >= (unsigned)g.{'count' if isBack else 'length'}{i}) continue;")
    other = "channel * g.several + f" if isBack else "channel / g.several"
    args.number("several", several)
    body = SUMS.format(
        filters="g.several" if isBack else "1",
        filter=other if isBack else "channel",
        source=other,
        heads="\n".join(heads),
        end=end,
        read=read(end, f"(position{end} + r)", isBack, args, window),
        limit=f"g.{'count' if isBack else 'length'}{end}",
        end2=f"g.{'length' if isBack else 'count'}{end}",
        w=args.offset("w_", ["o", *[f"t{i}" for i in range(rank)]], (o, *taps)),
        x=at(args, "x", x, [f"s{i}" for i in range(rank)], channel="source"),
        y=at(args, "y", y, [*[f"position{i}" for i in range(end)], f"(position{end} + r)"]),
        tails="}" * end,
    )
    return [*first, launch(name, grid, args, wideType(x, y, W), body)]


def read(i: int, position: str, isBack: bool, args: KernelArgs, window: Any) -> str:
    """C of s, the position that tap t reads for an output position; -1 if it reads none."""
    if not isBack:
        return f"const int s{i} = {position} * g.stride{i} + t{i} * g.dilation{i} - g.before{i};"
    by = args.divisor(f"stride{i}", window.stride[i])
    return f"""const int u{i} = {position} + g.before{i} - t{i} * g.dilation{i};
const int q{i} = quotient(max(u{i}, 0), {by}), s{i} = q{i} * g.stride{i} == u{i} ? q{i} : -1;
"""


def channelsLastWeight(W: Any) -> tuple[list[Launch], StridedOperand]:
    """A weight, copied so that the filters of a tap are contiguous."""
    o, _, *taps = stridesOf(W)
    made, y = toNhwc(StridedOperand(W.dtype.name, W, (1, W.shape[0], *W.shape[2:]), (0, o, *taps)), 1, W.shape[0])
    return [made], StridedOperand(y.dtype.name, y, W.shape, (1, 0, *stridesOf(y)[1:-1]))


def weight(dW: Any, grad: Any, x: Any, window: Any) -> list[Launch] | Any:
    """dW of y = x * W."""
    several, rank = dW.shape[0] // x.shape[1], len(x.shape) - 2
    count, filters, taps = prod((x.shape[0], *window.count)), dW.shape[0], prod(window.size)
    if not areFloats(dW, grad, x) or count > INT_MAX or dW.size > INT_MAX:
        return NotImplemented
    if not dW.size:
        return []
    pack = packOf(grad, x) if several == 1 else 1
    isLast = abs(stridesOf(grad)[1]) < abs(stridesOf(grad)[-1])
    lanes = WARP if isLast else 1
    across = blocksFor(filters, lanes * pack)
    parts = max(1, min(CONCURRENT_BLOCKS // (across * taps), count // (THREADS // lanes * MIN_THREAD_POSITIONS)))
    part = blocksFor(count, parts)
    parts = blocksFor(count, part)
    kind = wideType(dW, grad, x)
    kept = Scratch((parts, taps, filters), "float64" if kind["Wide"] == "double" else "float32")
    args, ending = KernelArgs(), KernelArgs()
    args.pointer("kept", kept.dtype.name, kept, True)
    for name, array in (("grad", grad), ("x", x)):
        args.pointer(name, array.dtype.name, array)
    windows(args, window)
    for name, value in {"count": count, "part": part, "across": across, "filters": filters, "taps": taps}.items():
        args.number(name, value)
    args.number("several", several)
    tapText, _ = args.indices("t", "tap", window.size, "tap")
    positionText, names = args.indices("p", "i", (x.shape[0], *window.count), "position")
    sample, *positions = names
    reads = [
        f"{read(i, position, False, args, window)}\nif ((unsigned)s{i} >= (unsigned)g.length{i}) continue;"
        for i, position in enumerate(positions)
    ]
    for name, value in {"parts": parts, "filters": filters, "taps": taps}.items():
        ending.number(name, value)
    ending.pointer("dW", dW.dtype.name, dW, True)
    ending.pointer("kept", kept.dtype.name, kept)
    n, _, *strides = stridesOf(dW)
    endText, tapNames = ending.indices("t", "tap", window.size, "tap")
    source = WEIGHT.format(
        types="".join(f"typedef {value} {key};\n" for key, value in kind.items()),
        moves=MOVES, pack=pack, lanes=lanes,
        tapText=tapText, positionText=positionText, reads="\n".join(reads),
        grad=at(args, "grad", grad, positions, channel="filter", sample=sample),
        x=at(args, "x", x, [f"s{i}" for i in range(rank)], channel="filter / g.several", sample=sample),
        endText=endText, dW=ending.offset("dW_", ["filter", *tapNames], (n, *strides)),
        struct=args.struct, arguments=args.arguments, made=args.made,
        endStruct=ending.struct.replace("Given", "Ending"), endArguments=ending.arguments,
        endMade=ending.made.replace("Given", "Ending"),
    )  # fmt: skip
    name, grid = "convolveWeightDepthwise", (across * taps * parts, 1, 1)
    endGrid = (blocksFor(filters * taps, THREADS), 1, 1)
    return [
        Launch(name, source, "sumPositions", tuple(args.slots), grid, (THREADS, 1, 1)),
        Launch(f"{name}, parts", source, "sumParts", tuple(ending.slots), endGrid, (THREADS, 1, 1)),
    ]


SUMS = """
const bool isWhole = isEven(g.x), areWhole = isEven(g.w);
Wide sums[RUN][PACK] = {{}};
for (int f = 0; f < {filters}; f++) {{
  const int o = {filter}, source = {source};
  {heads}
  for (int t{end} = 0; t{end} < g.size{end}; t{end}++) {{
    Wide w[PACK];
    take(g.w, {w}, areWhole, w);
#pragma unroll
    for (int r = 0; r < RUN; r++) {{
      {read}
      if ((unsigned)s{end} >= (unsigned){limit}) continue;
      Wide own[PACK];
      take(g.x, {x}, isWhole, own);
#pragma unroll
      for (int j = 0; j < PACK; j++) sums[r][j] += w[j] * own[j];
    }}
  }}
  {tails}
}}
#pragma unroll
for (int r = 0; r < RUN; r++) {{
  if (position{end} + r >= {end2}) break;
  put(g.y, {y}, sums[r]);
}}
"""

WEIGHT = """
{types}
constexpr int PACK = {pack}, LANES = {lanes};
{moves}
{struct}
{endStruct}
extern "C" __global__ void sumPositions({arguments}) {{
  {made}
  __shared__ Wide all[256 * PACK];
  const int tap = blockIdx.x / g.across % g.taps, turn = blockIdx.x / g.across / g.taps;
  const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
  const int filter = (blockIdx.x % g.across * LANES + lane) * PACK;
  const bool isWhole = isEven(g.grad), areWhole = isEven(g.x);
  {tapText}
  Wide sums[PACK] = {{}};
  const int end = min(g.count, (turn + 1) * g.part);
  for (int i = turn * g.part + row; i < end && filter < g.filters; i += 256 / LANES) {{
    {positionText}
    {reads}
    Wide one[PACK], two[PACK];
    take(g.grad, {grad}, isWhole, one);
    take(g.x, {x}, areWhole, two);
#pragma unroll
    for (int j = 0; j < PACK; j++) sums[j] += one[j] * two[j];
  }}
#pragma unroll
  for (int j = 0; j < PACK; j++) all[j * 256 + threadIdx.x] = sums[j];
  for (int half = 128; half >= LANES; half /= 2) {{
    __syncthreads();
    if (threadIdx.x < half)
#pragma unroll
      for (int j = 0; j < PACK; j++) all[j * 256 + threadIdx.x] += all[j * 256 + threadIdx.x + half];
  }}
  if (row == 0 && filter < g.filters)
#pragma unroll
    for (int j = 0; j < PACK; j++)
      g.kept[((int64)turn * g.taps + tap) * g.filters + filter + j] = all[j * 256 + lane];
}}
extern "C" __global__ void sumParts({endArguments}) {{
  {endMade}
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= g.taps * g.filters) return;
  const int tap = i / g.filters, filter = i - tap * g.filters;
  {endText}
  Wide sum = 0;
  for (int part = 0; part < g.parts; part++) sum += g.kept[(int64)part * g.taps * g.filters + i];
  store(g.dW, {dW}, sum);
}}
"""
