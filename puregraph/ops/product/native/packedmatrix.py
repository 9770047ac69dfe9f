"""Packed matrices: the second factor of a product, packed ahead by a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import sized
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.product.native.microkernel import Microkernel
from puregraph.ops.product.native.pack import CHUNK, MatrixOperand, PackedMatrix, copyPanel, layoutOf, withKnownStride
from puregraph.ops.product.native.packpairs import copyPanelPairs

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided
    from puregraph.ops.ir.value import Value


def packed(
    b: Strided,
    n: int,
    k: int,
    strides: tuple[int, int],
    workspace: Callable[[int], Any],
    lanes: int,
    vectors: int = 2,
    real: str = "f32",
    halves: bool = False,
) -> tuple[PackedMatrix, list[KernelCall]]:
    """b[k, n] packed once for several products, whose tiles have `vectors` vectors; `workspace(count)` allocates it."""
    to = PackedMatrix(workspace(packedSize(n, k, vectors, lanes, halves)), k, n, vectors, lanes)
    return to, pack(b, n, k, strides, to.array, lanes, vectors, real, halves)


def packedSize(n: int, k: int, vectors: int, lanes: int, halves: bool = False) -> int:
    """Elements of packed b[k, n]: panels are `lanes` steps of k apart, the last ends with whole vectors of k."""
    tile = Microkernel(1, vectors, lanes, halves=halves)
    steps = -(-k // tile.group)
    panels, rows = -(-n // tile.width), -(-steps // lanes) * lanes
    return ((panels - 1) * (steps + lanes) + rows) * tile.width if panels else 0


def pack(
    b: Any,
    n: int,
    k: int,
    strides: tuple[int, int],
    to: Value,
    lanes: int,
    vectors: int,
    real: str = "f32",
    halves: bool = False,
) -> list[KernelCall]:
    """The kernel call that packs b[k, n]."""
    tile, copy = Microkernel(1, vectors, lanes, real, halves), copyPanelPairs if halves else copyPanel
    layout = layoutOf(strides, (k, n))
    panels, chunks = -(-n // tile.width), max(1, -(-k // CHUNK))

    def write(code: IRBuilder) -> None:
        start, goal = code.pointer("b", real), code.pointer("packed", tile.factor)
        rows, columns, bStrides = code.integer("k"), code.integer("n"), (code.integer("bRow"), code.integer("bColumn"))
        matrix = withKnownStride(MatrixOperand(start, rows, columns, bStrides), layout)
        chunks = (rows + (CHUNK - 1)) / CHUNK
        panel, row = code.task / chunks, code.task % chunks * CHUNK
        count = code.min(rows - row, CHUNK)
        address = goal.at((panel * (tile.steps(rows) + lanes) + tile.steps(row)) * tile.width)
        copy(code, matrix, layout, row, panel * tile.width, count, tile, address)

    slots = {"b": b, "packed": to, "k": k, "n": n, "bRow": strides[0], "bColumn": strides[1]}
    if n == 0 or k == 0:
        return []
    return [KernelCall(sized("pack {}x{}", k, n), f"pack {layout} {tile.key}", write, slots, panels * chunks)]
