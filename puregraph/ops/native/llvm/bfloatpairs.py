"""bfloat16 pairs: two bfloat16 numbers in 32 bits, rounded from float32, and their products summed in float32.

AVX512-BF16 has an instruction for each operation. For other CPUs the same bits are computed by generic code, which is
slower than float32, and is there for tests.

Source    Intel 64 and IA-32 Architectures Software Developer's Manual, VCVTNE2PS2BF16, VDPBF16PS
"""

from __future__ import annotations

import numpy as np

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

LANES = (4, 8, 16)  # lanes of float32 of the instructions' vectors
SIGN, INFINITE, LEAST, QUIET = 0x80000000, 0x7F800000, 0x00800000, 0x40
DOT = "@llvm.x86.avx512bf16.dpbf16ps"
ROUND = "@llvm.x86.avx512bf16.cvtne2ps2bf16"


def pairDot(code: IRBuilder, sums: IRValue, a: IRValue, b: IRValue) -> IRValue:
    """sums + a1 b1 + a0 b0, where lanes of a and b are pairs (a0, a1): each sum is rounded, denormals count as zero."""
    if hasInstructions(sums.lanes):
        name, kinds = f"{DOT}.{32 * sums.lanes}", [x.type.text for x in (sums, a, b)]
        code.declare(f"declare {kinds[0]} {name}({', '.join(kinds)})")
        operands = ", ".join(f"{x.type.text} {x.name}" for x in (sums, a, b))
        return code.emit(f"call {kinds[0]} {name}({operands})", sums.type)
    sums = flushed(code, sums)
    for part in (high, low):
        x, y = (flushed(code, part(code, pair)) for pair in (a, b))
        sums = flushed(code, code.fma(x, y, sums))
    return sums


def interleavedPairs(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The pairs (x_i, y_i) of two vectors of float32, rounded to nearest even."""
    if hasInstructions(x.lanes):
        halves = roundedHalves(code, x, y)
        order = [i + half for i in range(x.lanes) for half in (0, x.lanes)]
        return pairsFrom(code, code.shuffle(halves, halves, order))
    return roundedBits(code, x) | roundedBits(code, y) << 16


def contiguousPairs(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The pairs (x_0, x_1), (x_2, x_3), ... of the lanes of x followed by those of y, rounded to nearest even."""
    if hasInstructions(x.lanes):
        return pairsFrom(code, roundedHalves(code, x, y))
    even, odd = (code.shuffle(x, y, range(start, 2 * x.lanes, 2)) for start in (0, 1))
    return interleavedPairs(code, even, odd)


def hasInstructions(lanes: int) -> bool:
    """True if code for vectors of this many float32 may use the instructions."""
    return lanes in LANES and jit.multipliesBfloat16()


def roundedHalves(code: IRBuilder, x: IRValue, y: IRValue) -> IRValue:
    """The lanes of x, then those of y, as 16 bits each, by the instruction."""
    name, kind, of = f"{ROUND}.{32 * x.lanes}", x.type.text, IRType("i16", 2 * x.lanes)
    code.declare(f"declare {of.text} {name}({kind}, {kind})")
    return code.emit(f"call {of.text} {name}({kind} {y.name}, {kind} {x.name})", of)


def pairsFrom(code: IRBuilder, halves: IRValue) -> IRValue:
    """Neighbours of 16 bits as pairs."""
    of = IRType("i32", halves.lanes // 2)
    return code.emit(f"bitcast {halves.type.text} {halves.name} to {of.text}", of)


def roundedBits(code: IRBuilder, x: IRValue) -> IRValue:
    """bfloat16 in the lower half of each lane: NaN stays NaN, denormals become zero."""
    bits = code.convert(code.bitcast(x, "i32"), "u32")
    magnitude, top = bits & (SIGN - 1), bits >> 16
    rounded = (bits + 0x7FFF + (top & 1)) >> 16
    rounded = code.select(magnitude > INFINITE, top | QUIET, rounded)
    return code.convert(code.select(magnitude < LEAST, top & 0x8000, rounded), "i32")


def low(code: IRBuilder, pair: IRValue) -> IRValue:
    """The first number of each pair as float32."""
    return code.bitcast(pair << 16, "f32")


def high(code: IRBuilder, pair: IRValue) -> IRValue:
    """The second number of each pair as float32."""
    return code.bitcast(pair & -0x10000, "f32")


def flushed(code: IRBuilder, x: IRValue) -> IRValue:
    """x with zeros of the same sign in place of denormals."""
    bits = code.convert(code.bitcast(x, "i32"), "u32")
    isSmall = (bits & (SIGN - 1)) < LEAST
    return code.bitcast(code.convert(code.select(isSmall, bits & SIGN, bits), "i32"), "f32")


def roundedToBfloat16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16 as the kernels do, in float32: the reference in numpy."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    magnitude = bits & (SIGN - 1)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    rounded = np.where(magnitude > INFINITE, bits & 0xFFFF0000 | QUIET << 16, rounded)
    return np.where(magnitude < LEAST, bits & SIGN, rounded).astype(np.uint32).view(np.float32)
