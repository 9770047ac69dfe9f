"""Patches: tiles of maps that overlap, read from memory, transformed, and laid out for matrix products."""

from __future__ import annotations

from typing import Any

from puregraph.native.conv.winogradmath import POSITIONS, SIZE, TILE, both, outputsBack
from puregraph.native.llvm import jit
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder

APART = 16  # numbers between positions, so that they do not share cache sets


class TileScratch:
    """Scratch memory for the 36 positions of some tiles, so many maps each."""

    def __init__(self, code: IRBuilder, tiles: int, maps: int):
        self.code, self.maps = code, maps
        self.pitch = tiles * maps + APART
        self.numbers = code.scratch("f32", POSITIONS * self.pitch)

    def at(self, position: IRValue | int, tile: IRValue, map: IRValue | int) -> IRValue:
        return tile * self.maps + position * self.pitch + map

    def load(self, position: int, tile: IRValue, map: IRValue | int, lanes: int) -> IRValue:
        return self.numbers.load(self.at(position, tile, map), lanes)

    def store(self, position: int, tile: IRValue, map: IRValue | int, value: IRValue) -> None:
        self.numbers.store(self.at(position, tile, map), value)


class TileReader:
    """Writes the code that transforms a tile of each map; what is outside of the maps counts as zero.

    `of` transforms TILE or, for gradients of outputs, SIZE numbers; `high` and `wide` are how many numbers an axis
    has, and how many of the first tile lie before them.
    """

    def __init__(
        self,
        code: IRBuilder,
        x: IRPointer,
        pixel: int,
        maps: int,
        high: tuple[int, int],
        wide: tuple[int, int],
        of: Any,
    ):
        self.code, self.x, self.pixel, self.maps, self.of = code, x, pixel, maps, of
        self.high, self.wide, self.size = high, wide, SIZE if of is outputsBack else TILE
        self.lanes = next(lanes for lanes in (jit.lanes(4), 8, 4) if maps % lanes == 0)
        self.zeros = code.scratch("f32", maps)
        self.places = code.scratch("ptr", self.size * self.size)
        with code.loop(0, maps, self.lanes) as c:
            self.zeros.store(c, code.constant(0, IRType("f32", self.lanes)))

    def tile(self, n: IRValue, h: IRValue, w: IRValue, to: TileScratch, tile: IRValue, map: IRValue | int = 0) -> None:
        """Transform the tile in row h and column w of a sample, the maps from `map` on."""
        code, size = self.code, self.size
        a, b = h * SIZE - self.high[1], w * SIZE - self.wide[1]
        isInside = (a >= 0) & (a + size <= self.high[0]) & (b >= 0) & (b + size <= self.wide[0])
        start = ((n * self.high[0] + a) * self.wide[0] + b) * self.pixel + map
        with code.when(isInside):
            corner = self.x.at(start)
            with code.loop(0, self.maps, self.lanes, unroll=1) as c:
                self.transform(
                    lambda i, j: corner.at(c).load((i * self.wide[0] + j) * self.pixel, self.lanes), to, tile, c
                )
        with code.when(~isInside):
            self.look(a, b, start)
            with code.loop(0, self.maps, self.lanes, unroll=1) as c:
                self.transform(lambda i, j: self.there(i, j).load(c, self.lanes), to, tile, c)

    def look(self, a: IRValue, b: IRValue, start: IRValue) -> None:
        """Write down where each number of a tile at the border is: the first map of its pixel, or zeros."""
        code = self.code
        with code.loop(0, self.size, unroll=1) as i, code.loop(0, self.size, unroll=1) as j:
            h, w = a + i, b + j
            isThere = (h >= 0) & (h < self.high[0]) & (w >= 0) & (w < self.wide[0])
            place = code.select(isThere, start + (i * self.wide[0] + j) * self.pixel, 0)
            chosen = code.select(isThere, pointed(self.x.at(place)), pointed(self.zeros))
            self.places.store(i * self.size + j, chosen)

    def there(self, i: int, j: int) -> IRPointer:
        return IRPointer(self.code, self.places.load(i * self.size + j).name, "f32")

    def transform(self, load: Any, to: TileScratch, tile: IRValue, c: IRValue) -> None:
        square = [[load(i, j) for j in range(self.size)] for i in range(self.size)]
        for i, row in enumerate(both(self.code, self.of, square)):
            for j, value in enumerate(row):
                to.store(i * TILE + j, tile, c, value)


def pointed(place: IRPointer) -> IRValue:
    """A pointer as a value, to be chosen and kept."""
    return IRValue(place.code, place.name, IRType("ptr"))
