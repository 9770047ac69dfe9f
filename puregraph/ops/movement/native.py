"""Writes in place as native code: a task copies the new rows of one sample and head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from puregraph.ops.gather.native import overVectors
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import SIZES
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.ops.ir.value import Value


def writeAt(
    cache: Value, rows: Value, strides: Sequence[int], offset: Value, kind: str, index: str = "i64"
) -> list[KernelCall]:
    """cache[n, h, offset[n] + i] = rows[n, h, i], of elements of `kind`; `strides` are those of the rows (n, h, t)."""
    n, h, length, width = cache.shape
    slots: dict[str, Any] = {"cache": cache, "rows": rows, "offset": offset, "heads": h, "length": length}
    slots |= {"width": width, "count": rows.shape[2]}
    slots |= {f"rows{axis}": stride for axis, stride in zip(("Sample", "Head", "Row"), strides)}
    name = f"write {rows.shape[2]} rows of {n * h}x{length}x{width}"
    return [KernelCall(name, f"{kind} {index}", partial(writeRows, kind=kind, index=index), slots, n * h)]


def writeRows(code: IRBuilder, kind: str, index: str) -> None:
    """Copy the rows of a sample and head whose positions are inside the cache."""
    cache, rows, offset = code.pointer("cache", kind), code.pointer("rows", kind), code.pointer("offset", index)
    heads, length, width, count = (code.integer(name) for name in ("heads", "length", "width", "count"))
    sampleStep, headStep, rowStep = (code.integer(f"rows{axis}") for axis in ("Sample", "Head", "Row"))
    sample, head = code.task // heads, code.task % heads
    first = code.convert(offset.at(sample).load(), "i64")
    low, high = code.max(0 - first, 0), code.min(length - first, count)
    source, target = rows.at(sample * sampleStep + head * headStep), cache.at(code.task * length * width)
    lanes = jit.lanes(SIZES[kind])
    with code.loop(low, code.max(high, low), unroll=1) as i:
        row, to = source.at(i * rowStep), target.at((first + i) * width)
        overVectors(code, width, lanes, lambda c, mask: to.store(c, row.load(c, lanes, mask), mask))
