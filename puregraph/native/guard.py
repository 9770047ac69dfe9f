"""Guard: what is looked at before a run: whether whole numbers lie within bounds, whether numbers are those they were.

Both go through lists in memory, so that one work does all of it, and note what they find in the bits of a number.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from puregraph.native.code import Code, Pointer, Value
from puregraph.native.work import Work

AXES = 3
WORDS = 5 + 2 * AXES  # address, low, limit, ignored, isIgnoring; then sizes and strides in bytes, the inner axis last
WRONG, OTHER = 1, 2  # bits of the flag


def bounded(records: Any, count: int, flag: Any, kind: str = "i64") -> list[Work]:
    """WRONG where an x is below `low`, or not below `limit`, unless it is `ignored`, for `count` records of WORDS."""
    slots = {"records": records, "count": count, "flag": flag}
    return [Work(f"bounds of {count}", kind, partial(writeBounded, kind), slots, 1)]


def writeBounded(kind: str, code: Code) -> None:
    """For each record all of its numbers."""
    records, flag, count = code.pointer("records", "i64"), code.pointer("flag", "i64"), code.integer("count")
    bad = code.variable(code.whole(0))
    with code.loop(0, count, unroll=1) as i:
        record = records.at(i * WORDS)
        address, low, limit, ignored = (record.load(k) for k in range(4))
        ignores = record.load(4) != 0
        sizes, steps = ([record.load(5 + k) for k in range(start, 2 * AXES, 2)] for start in (0, 1))
        with code.loop(0, sizes[0], unroll=1) as a, code.loop(0, sizes[1], unroll=1) as b:
            row = address + a * steps[0] + b * steps[1]
            with code.loop(0, sizes[2], unroll=4) as c:
                x = code.convert(code.numbersAt(row + c * steps[2], kind).load(), "i64")
                isWrong = ((x < low) | (x >= limit)) & ~(ignores & (x == ignored))
                bad.value = bad.value | code.convert(isWrong, "i64")
    note(code, flag, bad.value != 0, WRONG)


def compared(places: Any, kept: Any, count: int, flag: Any) -> list[Work]:
    """OTHER where a number of 32 bits, at one of the addresses in `places`, is not that in `kept`; it is put there."""
    slots = {"places": places, "kept": kept, "count": count, "flag": flag}
    return [Work(f"samples {count}", "", writeCompared, slots, 1)]


def writeCompared(code: Code) -> None:
    """Number by number, by their bits."""
    places, kept, flag = (code.pointer(n, k) for n, k in (("places", "i64"), ("kept", "i32"), ("flag", "i64")))
    count = code.integer("count")
    bad = code.variable(code.whole(0))
    with code.loop(0, count, unroll=4) as i:
        now, before = code.numbersAt(places.load(i), "i32").load(), kept.load(i)
        kept.store(i, now)
        bad.value = bad.value | code.convert(now != before, "i64")
    note(code, flag, bad.value != 0, OTHER)


def note(code: Code, flag: Pointer, condition: Value, bit: int) -> None:
    """Set a bit of the flag."""
    with code.when(condition):
        flag.store(0, flag.load() | bit)
