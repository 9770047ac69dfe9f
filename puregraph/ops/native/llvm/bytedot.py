"""Byte dots: in each lane of 32 bits, four unsigned bytes times four signed ones, added to a sum.

AVX512-VNNI and AVX-VNNI have an instruction for it. Elsewhere the bytes are widened; sums are integers, so the bits are
the same.

Source    Intel 64 and IA-32 Architectures Software Developer's Manual, VPDPBUSD, PMADDWD
"""

from __future__ import annotations

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder

BYTES = 4  # bytes of a lane
DOT = {16: "avx512.vpdpbusd.512", 8: "avx512.vpdpbusd.256", 4: "avx512.vpdpbusd.128"}
PAIRS = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}


def byteDot(code: IRBuilder, sums: IRValue, a: IRValue, b: IRValue) -> IRValue:
    """sums + a0 b0 + a1 b1 + a2 b2 + a3 b3 modulo 2^32, where lanes of a are unsigned bytes, of b signed ones."""
    lanes = sums.lanes
    if multipliesBytes(lanes):
        return call(code, DOT[lanes], sums.type, sums, a, b)
    if multipliesPairs(lanes):
        a, b = (inHalves(code, x) for x in (a, b))
        even = call(code, PAIRS[lanes], sums.type, a & 0xFF, signedShift(code, b << 8, 8))
        return sums + (even + call(code, PAIRS[lanes], sums.type, a >> 8, signedShift(code, b, 8)))
    for i in range(BYTES):
        left, right = a >> 8 * i & 0xFF, signedShift(code, b << 8 * (BYTES - 1 - i), 24)
        sums = sums + left * right
    return sums


def multipliesBytes(lanes: int) -> bool:
    """True if the CPU has the instruction for vectors of this many lanes; unknown, so False, of a CPU by its name."""
    known = jit.features.split(",")
    return "+avx512vnni" in known and (lanes == 16 or lanes in DOT and "+avx512vl" in known)


def multipliesPairs(lanes: int) -> bool:
    """True if the CPU multiplies 16-bit integers and adds neighbours, in vectors of this many lanes."""
    return jit.processor() == "x86" and lanes in PAIRS and (lanes < 16 or "+avx512bw" in jit.features.split(","))


def inHalves(code: IRBuilder, x: IRValue) -> IRValue:
    """Lanes of 32 bits as twice as many of 16 bits."""
    of = IRType("i16", 2 * x.lanes)
    return code.emit(f"bitcast {x.type.text} {x.name} to {of.text}", of)


def signedShift(code: IRBuilder, x: IRValue, bits: int) -> IRValue:
    """x shifted right, with its sign in the upper bits."""
    return code.binary("", "ashr", x, bits)


def call(code: IRBuilder, name: str, of: IRType, *operands: IRValue) -> IRValue:
    """A call of an intrinsic of x86."""
    kinds = ", ".join(x.type.text for x in operands)
    code.declare(f"declare {of.text} @llvm.x86.{name}({kinds})")
    return code.emit(f"call {of.text} @llvm.x86.{name}({', '.join(f'{x.type.text} {x.name}' for x in operands)})", of)
