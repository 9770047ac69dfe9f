"""NCHW to NHWC: a copy with channels last, padded with zero channels to a multiple."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from puregraph.ops.cuda.nests.kernelargs import KernelArgs
from puregraph.ops.cuda.runtime.launch import Launch, Scratch, blocksFor
from puregraph.ops.cuda.runtime.preprocess import STORED

TILE_SIDE = 32  # rows and columns of the tile that a block transposes
DOWN = 8  # rows of threads in a block


class StridedOperand(NamedTuple):
    """An array (n, c, *spatial) of any layout in memory."""

    dtype: str
    what: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def toNhwc(x: StridedOperand, samples: int, channels: int) -> tuple[Launch, Scratch]:
    """y[n, *spatial, c] = x[n, c, *spatial], and zero for samples and channels that x lacks."""
    positions, args = x.shape[2:], KernelArgs()
    y = Scratch((samples, *positions, channels), x.dtype)
    args.pointer("y", x.dtype, y, True)
    args.pointer("x", x.dtype, x.what)
    for name, size in (("positions", prod(positions)), ("wide", channels), ("n", x.shape[0]), ("c", x.shape[1])):
        args.number(name, size)
    across, down = blocksFor(channels, TILE_SIDE), blocksFor(prod(positions), TILE_SIDE)
    args.number("across", across)
    args.number("down", down)
    n, c, *spatial = x.strides
    text, indices = args.indices("p", "position", positions, "axis")
    body = {
        "text": text,
        "offset": args.offset("position", indices, spatial),
        "n": args.number("nStep", n, "long"),
        "c": args.number("cStep", c, "long"),
    }
    source = args.struct + TRANSPOSE.format(T=STORED[x.dtype], arguments=args.arguments, made=args.made, **body)
    blocks = samples * across * down
    return Launch("channels last", source, "toNhwc", tuple(args.slots), (blocks, 1, 1), (TILE_SIDE, DOWN, 1)), y


TRANSPOSE = """
__device__ static inline int64 offsetAt(const Given& g, int position) {{
  {text}
  return {offset};
}}
extern "C" __global__ void toNhwc({arguments}) {{
  {made}
  __shared__ {T} square[32][33];
  const int tile = blockIdx.x % (g.across * g.down), sample = blockIdx.x / (g.across * g.down);
  const int position = tile / g.across * 32, channel = tile % g.across * 32;
  const int own = position + threadIdx.x;
  const int64 at = own < g.positions && sample < g.n ? sample * {n} + offsetAt(g, own) : -1;
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8) {{
    {T} value = {{}};
    if (own < g.positions && sample < g.n && channel + i < g.c) value = g.x[at + (channel + i) * {c}];
    square[i][threadIdx.x] = value;
  }}
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8)
    if (position + i < g.positions && channel + threadIdx.x < g.wide)
      g.y[((int64)sample * g.positions + position + i) * g.wide + channel + threadIdx.x] = square[threadIdx.x][i];
}}
"""
