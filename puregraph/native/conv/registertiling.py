"""Tiling: which part of a sum is kept in registers, for the vectors and registers that a CPU has."""

from __future__ import annotations

import platform
from functools import cache
from math import ceil
from typing import Any, NamedTuple

from puregraph.native.llvm import jit

NEAR = 384 << 10  # bytes of packed weights that stay in the second cache
ARM = ("aarch64", "arm64")
WAYS = 7  # lines that the first cache keeps of those that lie a multiple of 2048 bytes apart
LATENCY = 4  # turns that a sum waits for itself


class RegisterTile(NamedTuple):
    """Pixels of a row times vectors of maps, and of how many input maps a packed block has."""

    pixels: int
    vectors: tuple[int, ...]
    block: int

    @property
    def width(self) -> int:
        """Maps of a panel."""
        return sum(self.vectors)


def registers(lanes: int) -> int:
    """How many vector registers there are: AVX2 alone has only half as many as AVX-512 and ARM."""
    return 32 if lanes == 16 or lanes == 4 and platform.machine().lower() in ARM else 16


def vectorsOf(maps: int, lanes: int) -> tuple[int, ...]:
    """The vectors that hold so many maps: whole ones, and what is left in a narrow one."""
    whole, left = divmod(maps, lanes)
    rest = next(width for width in (4, 8, 16) if width >= left) if left else 0
    return (lanes,) * whole + ((rest,) if left else ())


def tile(count: int, maps: int, depth: int, taps: int, stride: int) -> RegisterTile:
    """For rows of `count` pixels, `stride` numbers apart, `maps` sums each, of `depth` inputs for each of `taps`."""
    return best(jit.lanes(4), count, maps, depth, taps, stride)


@cache
def best(lanes: int, count: int, maps: int, depth: int, taps: int, stride: int) -> RegisterTile:
    """The tile that takes least time."""
    most = registers(lanes)
    found: Any = None
    for panels in range(1, ceil(maps / lanes) + 1):
        vectors = vectorsOf(ceil(ceil(maps / panels) / 4) * 4, lanes)
        v = len(vectors)
        if v > 4:
            continue
        if panels > 1 and sum(vectors) % lanes and maps % sum(vectors):
            continue
        # pixels whose lines share the sets of the first cache must be fewer than it has ways
        for limit in range(1, min(WAYS if stride % 512 == 0 else most, (most - v - 1) // v) + 1):
            tiles = ceil(count / limit)
            pixels = ceil(count / tiles)
            price = sum(1 if width == lanes else 0.6 for width in vectors) * pixels
            price = max(price, 0.95 * (pixels + v), LATENCY) * tiles * ceil(maps / sum(vectors))
            price *= 1 + 0.01 * tiles / count
            if found is None or price < found[0]:
                found = price, pixels, vectors
    return RegisterTile(found[1], found[2], blockOf(depth, taps * sum(found[2]) * 4))


def blockOf(depth: int, size: int) -> int:
    """How many inputs, of `size` bytes of weights each, are summed at a time: all, or a part that divides them."""
    if depth * size <= NEAR:
        return depth
    fits = [part for part in range(8, depth) if depth % part == 0 and part * size <= NEAR]
    return fits[-1] if fits and fits[-1] * size > NEAR // 6 else depth
