"""Transposing nests, without reductions: some arrays are contiguous along one axis, the rest along another.

A block computes a square tile of both axes. Arrays of the other order go through shared memory, so that neighbouring
threads always read and write neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from puregraph.ops.cuda.nests.nestwriter import NestWriter
from puregraph.ops.cuda.runtime.launch import Launch
from puregraph.ops.formula.loopnest import LoopNest, ReducedNest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

TILE_SIDE = 32  # rows and columns of a tile
THREAD_ROWS = 8  # rows of threads of a block
MIN_TILED_LENGTH = 8  # fewest elements along each of the two axes for which tiles pay off
MAX_TRANSPOSED_ARRAYS = 5  # maximum number of transposed arrays: each has a tile in shared memory


def otherAxis(nest: LoopNest) -> int | None:
    """The axis, besides the last, that is contiguous in some arrays that have both."""
    inner = len(nest.space) - 1
    operands = [*nest.loads.values(), *nest.stores.values()]
    for a in range(inner):
        transposed = [o for o in operands if isTransposed(o.strides, a)]
        if (
            transposed
            and len(transposed) <= MAX_TRANSPOSED_ARRAYS
            and min(nest.space[a], nest.space[inner]) >= MIN_TILED_LENGTH
        ):
            return a
    return None


def isTransposed(strides: tuple[int, ...], axis: int) -> bool:
    """True if an array is contiguous along an axis and not along the last one, unless that has one element."""
    return strides[axis] == 1 and strides[-1] not in (0, 1)


def tileLaunch(nest: LoopNest, axis: int) -> Launch:
    """The launch of a nest without reductions, by tiles along an axis and the last."""
    shape = ReducedNest(nest, frozenset(range(len(nest.space))))
    return TransposeWriter(shape, axis).write()


class TransposeWriter(NestWriter):
    """Writes the text of tiles."""

    def __init__(self, shape: ReducedNest, axis: int):
        super().__init__(shape, 1)
        self.axis = axis
        self.here: dict[int, str] = {}
        self.loads = [n for n, o in shape.nest.loads.items() if isTransposed(o.strides, axis)]
        self.stores = [n for n, o in shape.nest.stores.items() if isTransposed(o.strides, axis)]

    def write(self) -> Launch:
        nest, inner, axis = self.nest, self.shape.inner, self.axis
        others = [a for a in range(inner) if a != axis]
        across, down = (-(-nest.space[a] // TILE_SIDE) for a in (inner, axis))
        for n in (*self.loads, *self.stores):
            self.line(f"__shared__ {self.T} t_{n}[{TILE_SIDE}][{TILE_SIDE + 1}];")
        self.fixed(nest.stores, {})
        tiles = self.number("tiles", across * down)
        self.line(f"const {self.I} other = blockIdx.x / {tiles}, tile = blockIdx.x - other * {tiles};")
        self.line(f"const {self.I} row = tile / {self.number('across', across)};")
        self.line(f"const {self.I} top = row * {TILE_SIDE}, left = (tile - row * across) * {TILE_SIDE};")
        self.outer = self.unravel("other", others)
        if self.loads:
            with self.transposed():
                for n in self.loads:
                    self.line(f"t_{n}[y][threadIdx.x] = load(l_{n}, {self.offset(f'l_{n}', self.here)});")
            self.line("__syncthreads();")
        self.here = {**self.outer, axis: "p", inner: "q"}
        with self.block(f"for (int y = threadIdx.y; y < {TILE_SIDE}; y += {THREAD_ROWS})"):
            self.line(f"const {self.I} p = top + y, q = left + threadIdx.x;")
            with self.inside():
                kept = {n: f"t_{n}[threadIdx.x][y]" for n in self.loads}
                self.elements(self.here, list(nest.stores), {}, "1", kept)
        if self.stores:
            self.line("__syncthreads();")
            with self.transposed():
                for n in self.stores:
                    self.line(f"store(s_{n}, {self.offset(f's_{n}', self.here)}, t_{n}[y][threadIdx.x]);")
        return self.launch("tiles", across * down * prod(nest.space[a] for a in others), (TILE_SIDE, THREAD_ROWS, 1))

    @contextmanager
    def transposed(self) -> Iterator[None]:
        """The positions of a tile, neighbouring threads along the other axis."""
        self.here = {**self.outer, self.axis: "p", self.shape.inner: "q"}
        with self.block(f"for (int y = threadIdx.y; y < {TILE_SIDE}; y += {THREAD_ROWS})"):
            self.line(f"const {self.I} p = top + threadIdx.x, q = left + y;")
            with self.inside():
                yield

    def inside(self) -> AbstractContextManager:
        """A block for positions inside the space."""
        space = self.nest.space
        ends = self.number(f"n{self.axis}", space[self.axis]), self.number("columns", space[-1])
        return self.block(f"if (p < {ends[0]} && q < {ends[1]})")

    def put(self, name: str, indices: Mapping[int, str], values: str, v: str = "v", offset: str | None = None) -> None:
        if name in self.stores:
            self.line(f"t_{name}[threadIdx.x][y] = {values}[0];")
        else:
            super().put(name, indices, values, v, offset)
