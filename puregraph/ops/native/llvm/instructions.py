"""Instructions: typed values of LLVM IR, and the operations that compute new ones from them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Union

TEXTS = {
    "f32": "float",
    "f64": "double",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "i1": "i1",
    "ptr": "ptr",
    **{f"u{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
}
SIZES = {"f32": 4, "f64": 8, "i1": 1, "ptr": 8, **{f"{sign}{8 * n}": n for sign in "iu" for n in (1, 2, 4, 8)}}
Number = Union["IRValue", float, int]


class IRType(NamedTuple):
    """An element type and a number of lanes: with more than one it is a vector."""

    kind: str
    lanes: int = 1

    @property
    def text(self) -> str:
        """The type in LLVM IR."""
        return TEXTS[self.kind] if self.lanes == 1 else f"<{self.lanes} x {TEXTS[self.kind]}>"

    @property
    def suffix(self) -> str:
        """The type in the names of intrinsics."""
        kind = {"ptr": "p0"}.get(self.kind, self.kind).replace("u", "i")
        return kind if self.lanes == 1 else f"v{self.lanes}{kind}"

    @property
    def isFloat(self) -> bool:
        return self.kind[0] == "f"

    @property
    def isUnsigned(self) -> bool:
        """True if integers are compared, extended and divided as unsigned."""
        return self.kind[0] == "u"


def arithmetic(real: str, integer: str) -> Callable[[IRValue, Number], IRValue]:
    """An operator that appends one instruction to floats, and another to integers."""
    return lambda x, y: x.code.binary(real, integer, x, y)


def reflected(real: str, integer: str) -> Callable[[IRValue, Number], IRValue]:
    """The operator where the left side is a Python number."""
    return lambda x, y: x.code.binary(real, integer, y, x)


def comparison(real: str, integer: str) -> Callable[[IRValue, Number], IRValue]:
    """An operator that compares floats by one predicate, and integers by another."""
    return lambda x, y: x.code.compare(real, integer, x, y)


class IRValue:
    """A scalar or vector that the code computes; Python's operators append instructions."""

    __slots__ = ("code", "name", "type")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: Instructions, name: str, type: IRType):
        self.code, self.name, self.type = code, name, type

    @property
    def lanes(self) -> int:
        return self.type.lanes

    @property
    def kind(self) -> str:
        return self.type.kind

    def renamed(self, code: Instructions, name: str) -> IRValue:
        return IRValue(code, name, self.type)

    __add__, __radd__ = arithmetic("fadd", "add"), reflected("fadd", "add")
    __sub__, __rsub__ = arithmetic("fsub", "sub"), reflected("fsub", "sub")
    __mul__, __rmul__ = arithmetic("fmul", "mul"), reflected("fmul", "mul")
    __truediv__, __rtruediv__ = arithmetic("fdiv", "sdiv"), reflected("fdiv", "sdiv")
    __floordiv__ = arithmetic("fdiv", "udiv")  # for floats and non-negative integers
    __mod__ = arithmetic("frem", "urem")  # likewise
    __and__ = arithmetic("and", "and")
    __or__ = arithmetic("or", "or")
    __xor__ = arithmetic("xor", "xor")
    __lshift__ = arithmetic("shl", "shl")
    __rshift__ = arithmetic("lshr", "lshr")
    __lt__, __le__ = comparison("olt", "slt"), comparison("ole", "sle")
    __gt__, __ge__ = comparison("ogt", "sgt"), comparison("oge", "sge")
    __eq__: Any = comparison("oeq", "eq")
    __ne__: Any = comparison("une", "ne")

    def __neg__(self) -> IRValue:
        if self.type.isFloat:
            return self.code.emit(f"fneg {self.type.text} {self.name}", self.type)
        return 0 - self

    def __invert__(self) -> IRValue:
        return self ^ (1 if self.kind == "i1" else -1)

    def __bool__(self) -> bool:
        raise TypeError("a value of native code is not known while the code is written: use code.when or code.select")


class IRPointer:
    """The address of elements of one kind; indices count elements."""

    __slots__ = ("code", "kind", "name")

    def __init__(self, code: Instructions, name: str, kind: str):
        self.code, self.name, self.kind = code, name, kind

    def renamed(self, code: Instructions, name: str) -> IRPointer:
        return IRPointer(code, name, self.kind)

    def at(self, index: Number) -> IRPointer:
        """The address `index` elements further."""
        if isinstance(index, int) and index == 0:
            return self
        i = self.code.i64(index)
        kind = TEXTS["i8" if self.kind == "i1" else self.kind]
        address = self.code.emit(f"getelementptr inbounds {kind}, ptr {self.name}, i64 {i.name}", IRType("ptr"))
        return IRPointer(self.code, address.name, self.kind)

    def cast(self, kind: str) -> IRPointer:
        return IRPointer(self.code, self.name, kind)

    def load(self, index: Number = 0, lanes: int = 1, mask: IRValue | None = None) -> IRValue:
        """The element at the address, or `lanes` contiguous ones; masked lanes are 0 and not read."""
        code, address, of = self.code, self.at(index).name, IRType(self.kind, lanes)
        if mask is None:
            return code.emit(f"load {of.text}, ptr {address}, align {SIZES[self.kind]}", of)
        zero = code.constant(0, of)
        take = f"@llvm.masked.load.{of.suffix}.p0"
        code.declare(f"declare {of.text} {take}(ptr, i32, <{lanes} x i1>, {of.text})")
        align = f"i32 {SIZES[self.kind]}"
        return code.emit(
            f"call {of.text} {take}(ptr {address}, {align}, {mask.type.text} {mask.name}, {of.text} {zero.name})", of
        )

    def store(self, index: Number, value: IRValue, mask: IRValue | None = None) -> None:
        """Store an element, or a vector of contiguous ones; with a mask, only its lanes that are on."""
        code, address, of = self.code, self.at(index).name, value.type
        if value.kind != self.kind:
            raise TypeError(f"wanted {self.kind} to store, got {value.kind}")
        if mask is None:
            code.line(f"store {of.text} {value.name}, ptr {address}, align {SIZES[self.kind]}")
            return
        put = f"@llvm.masked.store.{of.suffix}.p0"
        code.declare(f"declare void {put}({of.text}, ptr, i32, <{of.lanes} x i1>)")
        align = f"i32 {SIZES[self.kind]}"
        code.line(f"call void {put}({of.text} {value.name}, ptr {address}, {align}, {mask.type.text} {mask.name})")

    def gather(self, indices: IRValue, mask: IRValue | None = None) -> IRValue:
        """The elements at a vector of indices; lanes that are masked off are 0 and not read."""
        code, lanes, of = self.code, indices.lanes, IRType(self.kind, indices.lanes)
        addresses = code.emit(
            f"getelementptr inbounds {TEXTS[self.kind]}, ptr {self.name}, {indices.type.text} {indices.name}",
            IRType("ptr", lanes),
        )
        mask = code.constant(1, IRType("i1", lanes)) if mask is None else mask
        zero, take = code.constant(0, of), f"@llvm.masked.gather.{of.suffix}.v{lanes}p0"
        code.declare(f"declare {of.text} {take}(<{lanes} x ptr>, i32, <{lanes} x i1>, {of.text})")
        args = f"<{lanes} x ptr> {addresses.name}, i32 {SIZES[self.kind]}, {mask.type.text} {mask.name}"
        args += f", {of.text} {zero.name}"
        return code.emit(f"call {of.text} {take}({args})", of)

    def prefetch(self, index: Number = 0, near: bool = True) -> None:
        """Software prefetch of the cache line there: into L1, or only into L2."""
        self.code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        address = self.at(index).name
        self.code.line(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 {3 if near else 2}, i32 1)")


class IRVariable:
    """A scalar or vector that changes as the code runs: `v.value = v.value + x`."""

    __slots__ = ("code", "name", "type")

    def __init__(self, code: Instructions, name: str, type: IRType):
        self.code, self.name, self.type = code, name, type

    @property
    def value(self) -> IRValue:
        return self.code.emit(f"load {self.type.text}, ptr {self.name}", self.type)

    @value.setter
    def value(self, new: Number) -> None:
        new = self.code.cast(new, self.type)
        self.code.line(f"store {self.type.text} {new.name}, ptr {self.name}")


class Instructions:
    """Operations on values: each appends instructions to `lines`, and gives the value that they compute."""

    def __init__(self, contract: bool = True):
        self.flags = "contract " if contract else ""
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.count = 0

    def fresh(self) -> str:
        """The name of a new value."""
        self.count += 1
        return f"%v{self.count}"

    def emit(self, text: str, type: IRType) -> IRValue:
        """Append an instruction; the value it computes."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return IRValue(self, name, type)

    def line(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(text)

    def declare(self, text: str) -> None:
        """Declare an intrinsic, once."""
        self.declared[text] = None

    def pointerTo(self, address: IRValue, kind: str) -> IRPointer:
        """An address that was read from memory, as a pointer."""
        return IRPointer(self, self.emit(f"inttoptr i64 {address.name} to ptr", IRType("ptr")).name, kind)

    def constant(self, value: float, type: IRType) -> IRValue:
        text = literal(value, type.kind)
        if type.lanes > 1:
            text = (
                "zeroinitializer"
                if value == 0 and text[0] != "-" and not text.startswith("0x8")
                else vectorOf(text, type)
            )
        return IRValue(self, text, type)

    def i64(self, x: Number) -> IRValue:
        """An integer, or a Python number as a constant of 64 bits."""
        return x if isinstance(x, IRValue) else self.constant(x, IRType("i64"))

    def cast(self, x: Number, type: IRType) -> IRValue:
        """A Python number, or a scalar, as this type; the kind of a value is not converted."""
        if not isinstance(x, IRValue):
            return self.constant(x, type)
        if x.kind != type.kind or x.lanes not in (1, type.lanes):
            raise TypeError(f"wanted {type.text}, got {x.type.text}")
        return self.splat(x, type.lanes) if x.lanes != type.lanes else x

    def splat(self, x: IRValue, lanes: int) -> IRValue:
        """A scalar in every lane."""
        if lanes == x.lanes:
            return x
        of = IRType(x.kind, lanes)
        inserted = self.emit(f"insertelement {of.text} poison, {x.type.text} {x.name}, i32 0", of)
        return self.emit(
            f"shufflevector {of.text} {inserted.name}, {of.text} poison, <{lanes} x i32> zeroinitializer", of
        )

    def shuffle(self, x: IRValue, y: IRValue, lanes: Sequence[int]) -> IRValue:
        """A vector of lanes picked by index from x followed by y."""
        picks = ", ".join(f"i32 {i}" for i in lanes)
        of = IRType(x.kind, len(lanes))
        return self.emit(
            f"shufflevector {x.type.text} {x.name}, {y.type.text} {y.name}, <{len(lanes)} x i32> <{picks}>", of
        )

    def extract(self, x: IRValue, index: int) -> IRValue:
        return self.emit(f"extractelement {x.type.text} {x.name}, i32 {index}", IRType(x.kind))

    def insert(self, x: IRValue, value: IRValue, index: int) -> IRValue:
        return self.emit(f"insertelement {x.type.text} {x.name}, {value.type.text} {value.name}, i32 {index}", x.type)

    def broadcast(self, *values: Number) -> list[IRValue]:
        """The values as one type: scalars are broadcast to the widest of them."""
        known = [v for v in values if isinstance(v, IRValue)]
        most = max(known, key=lambda v: v.lanes).type
        return [self.cast(v, most) for v in values]

    def binary(self, real: str, integer: str, x: Number, y: Number) -> IRValue:
        a, b = self.broadcast(x, y)
        op = f"{real} {self.flags}" if a.type.isFloat else f"{integer} "
        return self.emit(f"{op}{a.type.text} {a.name}, {b.name}", a.type)

    def compare(self, real: str, integer: str, x: Number, y: Number) -> IRValue:
        a, b = self.broadcast(x, y)
        op = f"fcmp {real}" if a.type.isFloat else f"icmp {integer.replace('s', 'u') if a.type.isUnsigned else integer}"
        return self.emit(f"{op} {a.type.text} {a.name}, {b.name}", IRType("i1", a.lanes))

    def select(self, condition: IRValue, x: Number, y: Number) -> IRValue:
        """x where the condition holds, else y, lane by lane."""
        a, b = self.broadcast(x, y)
        if a.lanes < condition.lanes:
            a, b = self.splat(a, condition.lanes), self.splat(b, condition.lanes)
        return self.emit(
            f"select {condition.type.text} {condition.name}, {a.type.text} {a.name}, {b.type.text} {b.name}", a.type
        )

    def call(self, intrinsic: str, *values: Number, flags: str = "") -> IRValue:
        """A call of an LLVM intrinsic whose operands and result have one type: fma, sqrt, rint, fabs, maxnum, ..."""
        operands = self.broadcast(*values)
        of = operands[0].type
        name = f"@llvm.{intrinsic}.{of.suffix}"
        self.declare(f"declare {of.text} {name}({', '.join([of.text] * len(operands))})")
        return self.emit(f"call {flags}{of.text} {name}({', '.join(f'{of.text} {v.name}' for v in operands)})", of)

    def fma(self, x: Number, y: Number, z: Number) -> IRValue:
        """Fused multiply-add: x y + z, rounded once."""
        return self.call("fma", x, y, z)

    def sumLanes(self, x: IRValue) -> IRValue:
        """Horizontal sum: of all lanes, in a tree."""
        return self.reduce(x, lambda a, b: a + b)

    def reduce(self, x: IRValue, join: Any) -> IRValue:
        """Horizontal reduction: the upper half of the lanes joined with the lower until one is left."""
        lanes = x.lanes
        while lanes > 2:
            lanes //= 2
            x = join(self.shuffle(x, x, range(lanes)), self.shuffle(x, x, range(lanes, 2 * lanes)))
        return join(self.extract(x, 0), self.extract(x, 1)) if lanes == 2 else x

    def convert(self, x: IRValue, kind: str, signed: bool = True) -> IRValue:
        """The value as another kind: floats are truncated towards zero to integers."""
        if x.kind == kind:
            return x
        of = IRType(kind, x.lanes)
        if x.type.text == of.text:
            return IRValue(self, x.name, of)
        signed = signed and x.kind != "i1" and not x.type.isUnsigned
        fromFloat, toFloat = x.type.isFloat, of.isFloat
        if fromFloat and toFloat:
            op = "fpext" if SIZES[kind] > SIZES[x.kind] else "fptrunc"
        elif fromFloat:
            op = "fptosi" if signed and not of.isUnsigned else "fptoui"
        elif toFloat:
            op = "sitofp" if signed else "uitofp"
        elif kind == "i1":
            return x != 0
        else:
            grows = SIZES[kind] > SIZES[x.kind] or x.kind == "i1"
            op = ("sext" if signed else "zext") if grows else "trunc"
        return self.emit(f"{op} {x.type.text} {x.name} to {of.text}", of)

    def bitcast(self, x: IRValue, kind: str) -> IRValue:
        """The same bits as another kind of the same size."""
        of = IRType(kind, x.lanes)
        return self.emit(f"bitcast {x.type.text} {x.name} to {of.text}", of)

    def iota(self, lanes: int, kind: str = "i64") -> IRValue:
        """The vector 0, 1, 2, ..."""
        of = IRType(kind, lanes)
        return IRValue(self, f"<{', '.join(f'{TEXTS[kind]} {literal(i, kind)}' for i in range(lanes))}>", of)

    def mask(self, count: Number, lanes: int) -> IRValue:
        """A mask whose first `count` lanes are on."""
        return self.iota(lanes) < self.splat(self.i64(count), lanes)

    def min(self, x: Number, y: Number) -> IRValue:
        """The smaller of two integers."""
        a, b = self.broadcast(x, y)
        return self.select(a < b, a, b)

    def max(self, x: Number, y: Number) -> IRValue:
        """The larger of two integers."""
        a, b = self.broadcast(x, y)
        return self.select(a < b, b, a)


def literal(value: float, kind: str) -> str:
    """A constant as LLVM reads it: floats as the bits of the equal double."""
    if kind[0] != "f":
        number = int(value)
        return str(number - (1 << 8 * SIZES[kind]) if kind != "i1" and number >= 1 << 8 * SIZES[kind] - 1 else number)
    if kind == "f32":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def vectorOf(text: str, type: IRType) -> str:
    """A vector constant with the same value in all lanes, as LLVM reads it."""
    return f"<{', '.join([f'{TEXTS[type.kind]} {text}'] * type.lanes)}>"
