"""Winograd tiles: overlapping tiles of an image gathered, transformed, and stored for matrix products."""

from __future__ import annotations

from typing import Any

from puregraph.ops.convolution.native.winogradmath import POSITIONS, TILE, TILE_OUTPUTS, both, outputsBack
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

PADDING_ELEMENTS = 16  # elements of padding between positions, so that positions do not share cache sets


class TileScratch:
    """Scratch memory for the 36 positions of some tiles, with some channels each."""

    def __init__(self, code: IRBuilder, tiles: int, channels: int):
        self.code, self.channels = code, channels
        self.pitch = tiles * channels + PADDING_ELEMENTS
        self.memory = code.scratch("f32", POSITIONS * self.pitch)

    def at(self, position: IRValue | int, tile: IRValue, channel: IRValue | int) -> IRValue:
        return tile * self.channels + position * self.pitch + channel

    def load(self, position: int, tile: IRValue, channel: IRValue | int, lanes: int) -> IRValue:
        return self.memory.load(self.at(position, tile, channel), lanes)

    def store(self, position: int, tile: IRValue, channel: IRValue | int, value: IRValue) -> None:
        self.memory.store(self.at(position, tile, channel), value)


class TileReader:
    """Writes the code that transforms a tile of each channel; elements outside the image are zero.

    `of` transforms TILE or, for gradients of outputs, TILE_OUTPUTS elements; `high` and `wide` are the length and the
    padding before of an axis.
    """

    def __init__(
        self,
        code: IRBuilder,
        x: IRPointer,
        pixel: int,
        channels: int,
        high: tuple[int, int],
        wide: tuple[int, int],
        of: Any,
    ):
        self.code, self.x, self.pixel, self.channels, self.of = code, x, pixel, channels, of
        self.high, self.wide, self.size = high, wide, TILE_OUTPUTS if of is outputsBack else TILE
        self.lanes = next(lanes for lanes in (jit.lanes(4), 8, 4) if channels % lanes == 0)
        self.zeros = code.scratch("f32", channels)
        self.addresses = code.scratch("ptr", self.size * self.size)
        with code.loop(0, channels, self.lanes) as c:
            self.zeros.store(c, code.constant(0, IRType("f32", self.lanes)))

    def tile(
        self, n: IRValue, h: IRValue, w: IRValue, to: TileScratch, tile: IRValue, channel: IRValue | int = 0
    ) -> None:
        """Transform the tile in row h and column w of a sample, the channels from `channel` on."""
        code, size = self.code, self.size
        a, b = h * TILE_OUTPUTS - self.high[1], w * TILE_OUTPUTS - self.wide[1]
        isInside = (a >= 0) & (a + size <= self.high[0]) & (b >= 0) & (b + size <= self.wide[0])
        start = ((n * self.high[0] + a) * self.wide[0] + b) * self.pixel + channel
        with code.when(isInside):
            corner = self.x.at(start)
            with code.loop(0, self.channels, self.lanes, unroll=1) as c:
                self.transform(
                    lambda i, j: corner.at(c).load((i * self.wide[0] + j) * self.pixel, self.lanes), to, tile, c
                )
        with code.when(~isInside):
            self.storeAddresses(a, b, start)
            with code.loop(0, self.channels, self.lanes, unroll=1) as c:
                self.transform(lambda i, j: self.addressOf(i, j).load(c, self.lanes), to, tile, c)

    def storeAddresses(self, a: IRValue, b: IRValue, start: IRValue) -> None:
        """Store the address of each pixel of a tile at the border, or that of zeros for one outside."""
        code = self.code
        with code.loop(0, self.size, unroll=1) as i, code.loop(0, self.size, unroll=1) as j:
            h, w = a + i, b + j
            isInside = (h >= 0) & (h < self.high[0]) & (w >= 0) & (w < self.wide[0])
            offset = code.select(isInside, start + (i * self.wide[0] + j) * self.pixel, 0)
            chosen = code.select(isInside, pointed(self.x.at(offset)), pointed(self.zeros))
            self.addresses.store(i * self.size + j, chosen)

    def addressOf(self, i: int, j: int) -> IRPointer:
        return IRPointer(self.code, self.addresses.load(i * self.size + j).name, "f32")

    def transform(self, load: Any, to: TileScratch, tile: IRValue, c: IRValue) -> None:
        square = [[load(i, j) for j in range(self.size)] for i in range(self.size)]
        for i, row in enumerate(both(self.code, self.of, square)):
            for j, value in enumerate(row):
                to.store(i * TILE + j, tile, c, value)


def pointed(pointer: IRPointer) -> IRValue:
    """A pointer as a value, to be selected and stored."""
    return IRValue(pointer.code, pointer.name, IRType("ptr"))
