"""NCHW to NHWC: a copy with channels last, padded with zero channels to a multiple."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from puregraph.cuda.nests.kernelargs import KernelArgs
from puregraph.cuda.runtime.launch import Launch, Scratch, pieces
from puregraph.cuda.runtime.preprocess import STORED

SIDE = 32  # of the tile that a block transposes
DOWN = 8  # rows of threads


class Laid(NamedTuple):
    """An array (n, c, *spatial) of any layout in memory."""

    dtype: str
    what: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def turn(x: Laid, samples: int, channels: int) -> tuple[Launch, Scratch]:
    """y[n, *spatial, c] = x[n, c, *spatial], and zero for samples and channels that x lacks."""
    places, given = x.shape[2:], KernelArgs()
    y = Scratch((samples, *places, channels), x.dtype)
    given.pointer("y", x.dtype, y, True)
    given.pointer("x", x.dtype, x.what)
    for name, size in (("places", prod(places)), ("wide", channels), ("n", x.shape[0]), ("c", x.shape[1])):
        given.number(name, size)
    across, down = pieces(channels, SIDE), pieces(prod(places), SIDE)
    given.number("across", across)
    given.number("down", down)
    n, c, *spatial = x.strides
    text, indices = given.indices("p", "place", places, "axis")
    body = {
        "text": text,
        "offset": given.offset("place", indices, spatial),
        "n": given.number("nStep", n, "long"),
        "c": given.number("cStep", c, "long"),
    }
    source = given.struct + TURN.format(T=STORED[x.dtype], arguments=given.arguments, made=given.made, **body)
    blocks = samples * across * down
    return Launch("channels last", source, "turn", tuple(given.slots), (blocks, 1, 1), (SIDE, DOWN, 1)), y


TURN = """
__device__ static inline int64 placeAt(const Given& g, int place) {{
  {text}
  return {offset};
}}
extern "C" __global__ void turn({arguments}) {{
  {made}
  __shared__ {T} square[32][33];
  const int tile = blockIdx.x % (g.across * g.down), sample = blockIdx.x / (g.across * g.down);
  const int place = tile / g.across * 32, channel = tile % g.across * 32;
  const int own = place + threadIdx.x;
  const int64 at = own < g.places && sample < g.n ? sample * {n} + placeAt(g, own) : -1;
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8) {{
    {T} value = {{}};
    if (own < g.places && sample < g.n && channel + i < g.c) value = g.x[at + (channel + i) * {c}];
    square[i][threadIdx.x] = value;
  }}
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < 32; i += 8)
    if (place + i < g.places && channel + threadIdx.x < g.wide)
      g.y[((int64)sample * g.places + place + i) * g.wide + channel + threadIdx.x] = square[threadIdx.x][i];
}}
"""
