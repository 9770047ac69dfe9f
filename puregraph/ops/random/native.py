"""Philox: the uniform random numbers of `random.reference` in native code, equal to the last bit.

Block b of four words of 64 bits is ten rounds of the counter (b + 1, 0, counter, 0) under the key (key, 0).

Source    Salmon, Moraes, Dror, Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from puregraph.core.opensize import sized
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided

FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
ADDED = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
PHILOX_ROUNDS = 10
TASK_NUMBERS = 1 << 13  # random numbers of a task
FORMS = {"f32": ("i32", 8, 24), "f64": ("i64", 4, 53)}  # kind of the integers, their number in a block, random bits


def uniform(y: Strided, count: int, key: object, counter: Any, kind: str = "f32") -> list[KernelCall]:
    """y[i] for i < count as `reference.uniform`; key and counter are read from memory as it runs."""
    slots = {"y": y, "count": count, "key": key, "counter": counter}
    return [KernelCall(sized("uniform {}", count), kind, partial(writeUniform, kind), slots, -(-count // TASK_NUMBERS))]


def writeUniform(kind: str, code: IRBuilder) -> None:
    """y = bits of Philox / 2ⁿ, from 0 to below 1: key and counter are read as the kernel runs."""
    integerKind, many, bits = FORMS[kind]
    y, count = code.pointer("y", kind), code.integer("count")
    key, counter = code.pointer("key", "i64").load(), code.pointer("counter", "i64").load()
    keys = scheduled(code, key)
    start = code.task * TASK_NUMBERS
    with code.loop(start, code.min(start + TASK_NUMBERS, count), many, unroll=1) as i:
        words = block(code, keys, i // many + 1, counter)
        drawn = code.constant(0, IRType("i64", 4))
        for lane, word in enumerate(words):
            drawn = code.insert(drawn, word, lane)
        number = bitsAs(code, drawn, IRType(integerKind, many)) >> (8 * {"i32": 4, "i64": 8}[integerKind] - bits)
        y.store(i, code.convert(number, kind) * 2.0**-bits, code.mask(count - i, many))


def bitsAs(code: IRBuilder, x: IRValue, of: IRType) -> IRValue:
    """The same bits as lanes of another size."""
    return x if x.type == of else code.emit(f"bitcast {x.type.text} {x.name} to {of.text}", of)


def scheduled(code: IRBuilder, key: IRValue) -> list[tuple[IRValue, IRValue]]:
    """The keys of all rounds."""
    return [(key + signed(ADDED[0] * r), code.i64(signed(ADDED[1] * r))) for r in range(PHILOX_ROUNDS)]


def block(code: IRBuilder, keys: list[tuple[IRValue, IRValue]], number: IRValue, counter: IRValue) -> list[IRValue]:
    """The four words of a block."""
    a, b, c, d = number, code.i64(0), counter, code.i64(0)
    for first, second in keys:
        (low, high), (less, more) = product(code, a, FACTORS[0]), product(code, c, FACTORS[1])
        a, b, c, d = more ^ b ^ first, less, high ^ d ^ second, low
    return [a, b, c, d]


def product(code: IRBuilder, x: IRValue, factor: int) -> tuple[IRValue, IRValue]:
    """The low and the high half of the product of two unsigned integers."""
    word = IRType("i64")
    wide = code.emit(f"zext i64 {x.name} to i128", word)
    wideProduct = code.emit(f"mul i128 {wide.name}, {factor}", word)
    upper = code.emit(f"lshr i128 {wideProduct.name}, 64", word)
    return code.emit(f"trunc i128 {wideProduct.name} to i64", word), code.emit(f"trunc i128 {upper.name} to i64", word)


def signed(x: int) -> int:
    """The low 64 bits as a signed number."""
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >> 63 else x
