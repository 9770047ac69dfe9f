"""Input checks before a run: whether the integers of inputs are within bounds.

One kernel call checks a list of records in memory and sets a flag.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

MAX_AXES = 3
# address, low, limit, ignored, isIgnoring; then sizes and strides in bytes, the inner axis last
RECORD_WORDS = 5 + 2 * MAX_AXES


def bounded(records: AnyArray, count: int, flag: AnyArray, kind: str = "i64") -> list[KernelCall]:
    """Set the flag where an x is below `low`, or not below `limit`, and not `ignored`, for `count` records."""
    slots = {"records": records, "count": count, "flag": flag}
    return [KernelCall(f"bounds of {count}", kind, partial(writeBounded, kind), slots, 1)]


def writeBounded(kind: str, code: IRBuilder) -> None:
    """The loop nest over records and their elements."""
    records, flag, count = code.pointer("records", "i64"), code.pointer("flag", "i64"), code.integer("count")
    bad = code.variable(code.i64(0))
    with code.loop(0, count, unroll=1) as i:
        record = records.at(i * RECORD_WORDS)
        address, low, limit, ignored = (record.load(k) for k in range(4))
        ignores = record.load(4) != 0
        sizes, steps = ([record.load(5 + k) for k in range(start, 2 * MAX_AXES, 2)] for start in (0, 1))
        with code.loop(0, sizes[0], unroll=1) as a, code.loop(0, sizes[1], unroll=1) as b:
            row = address + a * steps[0] + b * steps[1]
            with code.loop(0, sizes[2], unroll=4) as c:
                x = code.convert(code.pointerTo(row + c * steps[2], kind).load(), "i64")
                isWrong = ((x < low) | (x >= limit)) & ~(ignores & (x == ignored))
                bad.value = bad.value | code.convert(isWrong, "i64")
    with code.when(bad.value != 0):
        flag.store(0, code.i64(1))
