"""Register tiling: the tile of outputs whose accumulators stay in registers, by a cost model."""

from __future__ import annotations

import platform
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES

L2_WEIGHT_BYTES = 384 << 10  # bytes of packed weights that stay in L2
ARM = ("aarch64", "arm64")
WAYS = 7  # cache lines of one set that L1 holds: addresses a multiple of 2048 bytes apart
LATENCY = 4  # latency of an fma, in iterations


class RegisterTile(NamedTuple):
    """Pixels of a row times vectors of output channels, and how many input channels a packed block has."""

    pixels: int
    vectors: tuple[int, ...]
    block: int

    @property
    def width(self) -> int:
        """Channels of a panel."""
        return sum(self.vectors)


LONG_ROW = 1 << 12  # pixels of a row from which its length does not matter


def registers(lanes: int, real: str = "f32") -> int:
    """The number of vector registers: AVX2 has half as many as AVX-512 and ARM."""
    size = lanes * SIZES[real]
    return 32 if size == 64 or size == 16 and platform.machine().lower() in ARM else 16


def vectorsOf(outChannels: int, lanes: int) -> tuple[int, ...]:
    """The widths of the vectors that hold some channels: whole ones, and a narrow one for the rest."""
    fullVectors, left = divmod(outChannels, lanes)
    lastWidth = next(width for width in (4, 8, 16) if width >= left) if left else 0
    return (lanes,) * fullVectors + ((lastWidth,) if left else ())


def tile(count: int, outChannels: int, inChannels: int, taps: int, stride: int, real: str = "f32") -> RegisterTile:
    """The tile for rows of `count` pixels, `stride` elements apart, with `taps` taps."""
    return best(jit.lanes(SIZES[real]), min(count, LONG_ROW), outChannels, inChannels, taps, stride, real)


@cache
def best(
    lanes: int, count: int, outChannels: int, inChannels: int, taps: int, stride: int, real: str = "f32"
) -> RegisterTile:
    """The tile with the least estimated time."""
    most, size = registers(lanes, real), SIZES[real]
    cheapest: Any = None
    for panels in range(1, ceil(outChannels / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(outChannels / panels) / 4) * 4, lanes)
        v = len(vectors)
        if v > 4:
            continue
        if panels > 1 and sum(vectors) % lanes and outChannels % sum(vectors):
            continue
        # pixels whose cache lines share sets of L1 must be fewer than its ways
        for limit in range(1, min(WAYS if stride * size % 2048 == 0 else most, (most - v - 1) // v) + 1):
            tiles = ceil(count / limit)
            pixels = ceil(count / tiles)
            cost = sum(1 if width == lanes else 0.6 for width in vectors) * pixels
            cost = max(cost, 0.95 * (pixels + v), LATENCY) * tiles * ceil(outChannels / sum(vectors))
            cost *= 1 + 0.01 * tiles / count
            if cheapest is None or cost < cheapest[0]:
                cheapest = cost, pixels, vectors
    return RegisterTile(cheapest[1], cheapest[2], blockOf(inChannels, taps * sum(cheapest[2]) * size))


def blockOf(inChannels: int, size: int) -> int:
    """The number of inputs in a block, with `size` bytes of weights each: all, or a divisor that fits L2."""
    if inChannels * size <= L2_WEIGHT_BYTES:
        return inChannels
    fits = [part for part in range(8, inChannels) if inChannels % part == 0 and part * size <= L2_WEIGHT_BYTES]
    return fits[-1] if fits and fits[-1] * size > L2_WEIGHT_BYTES // 6 else inChannels
