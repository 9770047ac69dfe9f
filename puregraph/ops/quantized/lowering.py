"""Quantized lowering: products and convolutions of bytes as native kernel calls."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.ops.convolution.channels import pixelStride, toChannelsLast
from puregraph.ops.convolution.windowgeometry import window
from puregraph.ops.ir.elementlayout import OutputTiling, collapsed, elementStrides, isRowMajor, toRowMajor
from puregraph.ops.ir.value import Call, Value
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.bytedot import BYTES
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.native.nests.epilogue import Epilogue
from puregraph.ops.native.threads import pool
from puregraph.ops.operation import declared, op
from puregraph.ops.quantized.native.bytedepthwise import blockOrder, depthwiseBytes, depthwiseLanes
from puregraph.ops.quantized.native.byteproduct import ByteTile, byteProduct, byteTile
from puregraph.ops.quantized.native.byterows import MatrixRows, WindowRows
from puregraph.ops.quantized.native.packbytes import ByteMatrix, packBytes
from puregraph.ops.quantized.native.requantization import Requantization, SumOperand
from puregraph.ops.quantized.reference import convolveIntegers, multiplyIntegers

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

KINDS = {"uint8": "u8", "int8": "i8", "int32": "i32", "float32": "f32", "float64": "f64"}
NAMES = ("factor", "offset", "yScale", "yZero")
BYTE = np.dtype(np.int8)
NOTHING = np.zeros(1, np.uint8)  # the zero point of unsigned bytes without one


def productTiling(call: Call) -> OutputTiling | None:
    """All axes but the last are rows, if the result has no gaps."""
    (y,) = call.outs
    isTiled = areBytes(*call.arguments[:2]) and y.ndim > 1 and isRowMajor(y)
    return OutputTiling(tuple(range(y.ndim - 1)), y.ndim - 1) if isTiled else None


def mapTiling(call: Call) -> OutputTiling | None:
    """A row for each pixel, a column for each channel."""
    (y,) = call.outs
    isTiled = areBytes(*call.arguments[:2]) and y.ndim in (3, 4, 5) and pixelStride(y) is not None
    return OutputTiling((0, *range(2, y.ndim)), 1) if isTiled else None


@op(multiplyIntegers).lower
def lowerMultiplyIntegers(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Matrices of bytes; all axes but the last of a are rows, if b is one matrix."""
    a, b, aZero, bZero, bias, rounding = [*call.arguments, *[None] * 4][:6]
    options = call.options
    aZero, bZero = options.get("aZero", aZero), options.get("bZero", bZero)
    bias, rounding = options.get("bias", bias), options.get("rounding", rounding)
    (y,) = call.outs
    isSplit = a.ndim > 2 and prod(b.shape[:-2]) > 1
    if a.ndim < 2 or b.ndim < 2 or not areBytes(a, b) or isSplit and a.shape[:-2] != b.shape[:-2]:
        return None
    groups = prod(b.shape[:-2])
    k, n = b.shape[-2:]
    m = y.size // n // groups
    ending = requantization(y, epilogue, (aZero, bZero, bias, rounding), b)
    if (
        ending is None
        or not isRowMajor(y)
        or not isOne(aZero)
        and aZero.shape != (m, 1)
        or isSplit
        and not isOne(aZero)
    ):
        return None
    where, before = rowsOf(a, workspace)
    ending = ending._replace(groupRows=m)
    tile = byteTile(m, n, jit.lanes(4))
    rows = MatrixRows(where, rowStep(a) or k, m * k, a.dtype == np.int8)
    group, (tap, column) = collapsed(list(zip(b.shape[:-2], elementStrides(b)[:-2]))), elementStrides(b)[-2:]
    if group is None:
        return None
    matrix = ByteMatrix(b, groups, k, n, 1, (group, tap, 0, column if n > 1 else 1), b.dtype == np.int8)
    packed, packing = packedBytes(b, matrix, tile, workspace)
    name = f"product of bytes {m}x{k}x{n}"
    return [*before, *packing, *byteProduct(name, rows, packed, ending, (groups, m, n, k), tile, pool.threads())]


@op(convolveIntegers).lower
def lowerConvolveIntegers(call: Call, epilogue: EpilogueSpec, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """Feature maps of bytes, channels last."""
    x, W, xZero, wZero, bias, rounding, stride, pad, dilation, groups = call.arguments
    (y,) = call.outs
    if not areBytes(x, W) or x.ndim not in (3, 4, 5) or pixelStride(y) is None or not isOne(xZero):
        return None
    win = window(x.shape[2:], W.shape[2:], stride, pad, dilation)
    channels, n, m = W.shape[1], W.shape[0] // groups, y.size // W.shape[0]
    k, taps = channels * prod(W.shape[2:]), prod(W.shape[2:])
    ending = requantization(y, epilogue, (xZero, wZero, bias, rounding), W)
    if ending is None or not isRowMajor(W):
        return None
    where, pixel, before = toChannelsLast(x, workspace)
    ending = ending._replace(groupColumns=n)
    isSigned, isMerged = x.dtype == np.int8, groups == 1 and win.dilation[-1] == 1 and pixel == channels
    space, outputs, size, step = (threeOf(v, 1) for v in (x.shape[2:], win.count, win.size, win.stride))
    first, dilation = threeOf([p[0] for p in win.pad], 0), threeOf(win.dilation, 1)
    windows = WindowRows(where, pixel, channels, space, outputs, size, step, first, dilation, isSigned, isMerged)
    if channels == n == 1 < groups:
        return [*before, *depthwise(W, windows, ending, (m, groups, taps), workspace)]
    tile, rows = byteTile(m, n, jit.lanes(4)), MatrixRows(where, pixel, channels, isSigned)
    isPointwise = taps == prod(win.stride) == 1 and not any(map(any, win.pad))
    matrix = ByteMatrix(W, groups, k, n, channels, (n * k, 1, taps, k), W.dtype == np.int8)
    packed, packing = packedBytes(W, matrix, tile, workspace)
    name = f"convolution of bytes {k}x{n}, {groups} groups" if groups > 1 else f"convolution of bytes {m}x{k}x{n}"
    source, sizes = rows if isPointwise else windows, (groups, m, n, k)
    return [*before, *packing, *byteProduct(name, source, packed, ending, sizes, tile, pool.threads())]


def depthwise(
    W: Value, rows: WindowRows, ending: Requantization, sizes: tuple[int, int, int], workspace: LoweringWorkspace
) -> list[KernelCall]:
    """A convolution of each channel with its own filter; `sizes`: output pixels, channels, taps."""
    m, channels, taps = sizes
    lanes = depthwiseLanes(channels)
    width = BYTES * lanes
    filters = ByteMatrix(W, 1, taps, channels, 1, (0, 1, 0, taps), W.dtype == np.int8)
    order, ending = blockOrder(lanes), ending._replace(groupColumns=0)
    to, packing = workspace.packed(W, filters.bytesOf(width), lambda to: packBytes(filters, to, width, lanes, order))
    return [*packing, *depthwiseBytes(f"depthwise bytes {m}x{channels}x{taps}", rows, to, ending, sizes, lanes)]


def lowerWithoutTail(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The same without the formulas that follow."""
    (y,) = call.outs
    if declared(call.function, "tiling")(call) is None:
        return None
    row = y.shape[-1] if call.function is multiplyIntegers else pixelStride(y) or 0
    plain = EpilogueSpec(y, row, (), KINDS[y.dtype.name])
    return declared(call.function, "lower")(call, plain, workspace)


op(multiplyIntegers).declare(tiling=productTiling, untiled=lowerWithoutTail)
op(convolveIntegers).declare(tiling=mapTiling, untiled=lowerWithoutTail)


def areBytes(*values: Any) -> bool:
    """True if all are Values of bytes with at least one element."""
    return all(type(v) is Value and v.dtype.name in ("uint8", "int8") and 0 not in v.shape for v in values)


def isOne(value: Any) -> bool:
    """True if an operand is missing, or a single number."""
    return value is None or value.size == 1


def threeOf(values: Any, front: int) -> tuple[int, int, int]:
    """Values of up to three axes, with some for missing ones in front."""
    one, two, three = (front,) * (3 - len(values)) + tuple(values)
    return one, two, three


def rowStep(a: Value) -> int | None:
    """The stride of the rows of a, whose elements are contiguous; None if rows cannot be merged."""
    *rows, last = elementStrides(a)
    step = collapsed(list(zip(a.shape[:-1], rows)))
    return step if last == 1 or a.shape[-1] == 1 else None


def rowsOf(a: Value, workspace: LoweringWorkspace) -> tuple[Any, list[KernelCall]]:
    """The rows of a, copied if they are not contiguous."""
    return (a, []) if rowStep(a) else toRowMajor(a, workspace)


def packedBytes(
    b: Value, matrix: ByteMatrix, tile: ByteTile, workspace: LoweringWorkspace
) -> tuple[Any, list[KernelCall]]:
    """The packed factor, and the kernel calls that pack it, unless it is kept."""
    return workspace.packed(b, matrix.bytesOf(tile.width), lambda to: packBytes(matrix, to, tile.width, tile.lanes))


def requantization(y: Value, epilogue: EpilogueSpec, operands: tuple, b: Value) -> Requantization | None:
    """The requantization of the sums; None for operands that are not stored as expected."""
    aZero, bZero, bias, rounding = operands
    bZero = None if isZero(bZero, b) else bZero
    named = {"aZero": aZero, "bZero": bZero, "bias": bias} | dict(zip(NAMES, rounding or ()))
    made = {}
    for name, value in named.items():
        if value is not None:
            if type(value) is not Value or value.dtype.name not in KINDS or not isRowMajor(value):
                return None
            made[name] = SumOperand(value, KINDS[value.dtype.name], int(value.size > 1))
    if bZero is None and b.dtype == np.uint8:
        made["bZero"] = SumOperand(NOTHING, "u8", 0)
    kinds = {"bias": ("i32",), "factor": ("f32", "f64"), "offset": ("f32", "f64"), "yScale": ("f32",)}
    if any(made[name].kind not in kinds[name] for name in made.keys() & kinds.keys()):
        return None
    if any(made[name].kind not in ("u8", "i8") for name in made.keys() & {"aZero", "bZero", "yZero"}):
        return None
    if any(made[name].step for name in made.keys() & {"yScale", "yZero"}):
        return None
    if "offset" in made and made["offset"].kind != made["factor"].kind:
        return None
    if y.dtype == np.int32 and isinstance(epilogue, Epilogue) and epilogue.sums in epilogue.stores:
        return None  # as floats, sums would be rounded
    return Requantization(epilogue, KINDS[y.dtype.name], 0, 0, **made, isRectified=bool(rounding and rounding[-1]))


def isZero(value: Any, b: Value) -> bool:
    """True if a zero point of b is known to be 0, and so needs no correction."""
    if value is None:
        return True
    isKnown = type(value) is Value and value.root.role == "constant"
    return b.dtype == np.int8 and isKnown and not np.any(value.root.source)
