"""Code: the text of one native kernel in LLVM's language, written by Python: numbers, vectors, loops.

    code = Code()
    x, y = code.pointer("x", "f32"), code.pointer("y", "f32")
    n = code.integer("n")
    with code.loop(0, n, 16) as i:
        live = code.mask(n - i, 16)
        y.store(i, x.load(i, 16, live) * 2.0 + 1.0, live)
    code.text()

A kernel is `void kernel(ptr args, i64 task, ptr scratch)`: `args` has a slot of eight bytes for each pointer and whole
number, in the order in which they were asked for (`code.slots`); `task` is which part of the work to do; `scratch` is
memory of the running thread, of which `code.room` gives pieces. What varies (accumulators) is a `Variable`; all else is
computed once where it stands. A number or a scalar meeting a vector is repeated for all its lanes.

Source    LLVM Language Reference Manual
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
}
SIZES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1, "ptr": 8}
LINE = 64  # bytes that scratch pieces are aligned to
Number = Union["IRValue", float, int]


class IRType(NamedTuple):
    """A kind of number, and how many of them: `lanes` above one is a vector."""

    kind: str
    lanes: int = 1

    @property
    def text(self) -> str:
        return TEXTS[self.kind] if self.lanes == 1 else f"<{self.lanes} x {TEXTS[self.kind]}>"

    @property
    def suffix(self) -> str:
        """As the names of intrinsics spell it."""
        kind = {"ptr": "p0"}.get(self.kind, self.kind)
        return kind if self.lanes == 1 else f"v{self.lanes}{kind}"

    @property
    def isFloat(self) -> bool:
        return self.kind[0] == "f"


class IRValue:
    """A number, or a vector of numbers, that the code computes; Python's operators write more code."""

    __slots__ = ("code", "name", "type")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: IRBuilder, name: str, type: IRType):
        self.code, self.name, self.type = code, name, type

    @property
    def lanes(self) -> int:
        return self.type.lanes

    @property
    def kind(self) -> str:
        return self.type.kind

    def renamed(self, code: IRBuilder, name: str) -> IRValue:
        return IRValue(code, name, self.type)

    def __add__(self, other: Number) -> IRValue:
        return self.code.binary("fadd", "add", self, other)

    def __radd__(self, other: Number) -> IRValue:
        return self.code.binary("fadd", "add", other, self)

    def __sub__(self, other: Number) -> IRValue:
        return self.code.binary("fsub", "sub", self, other)

    def __rsub__(self, other: Number) -> IRValue:
        return self.code.binary("fsub", "sub", other, self)

    def __mul__(self, other: Number) -> IRValue:
        return self.code.binary("fmul", "mul", self, other)

    def __rmul__(self, other: Number) -> IRValue:
        return self.code.binary("fmul", "mul", other, self)

    def __truediv__(self, other: Number) -> IRValue:
        return self.code.binary("fdiv", "sdiv", self, other)

    def __rtruediv__(self, other: Number) -> IRValue:
        return self.code.binary("fdiv", "sdiv", other, self)

    def __floordiv__(self, other: Number) -> IRValue:
        """Whole numbers that are not negative."""
        return self.code.binary("fdiv", "udiv", self, other)

    def __mod__(self, other: Number) -> IRValue:
        """Whole numbers that are not negative."""
        return self.code.binary("frem", "urem", self, other)

    def __and__(self, other: Number) -> IRValue:
        return self.code.binary("and", "and", self, other)

    def __or__(self, other: Number) -> IRValue:
        return self.code.binary("or", "or", self, other)

    def __xor__(self, other: Number) -> IRValue:
        return self.code.binary("xor", "xor", self, other)

    def __lshift__(self, other: Number) -> IRValue:
        return self.code.binary("shl", "shl", self, other)

    def __rshift__(self, other: Number) -> IRValue:
        return self.code.binary("lshr", "lshr", self, other)

    def __neg__(self) -> IRValue:
        if self.type.isFloat:
            return self.code.emit(f"fneg {self.type.text} {self.name}", self.type)
        return 0 - self

    def __invert__(self) -> IRValue:
        return self ^ (1 if self.kind == "i1" else -1)

    def __lt__(self, other: Number) -> IRValue:
        return self.code.compare("olt", "slt", self, other)

    def __le__(self, other: Number) -> IRValue:
        return self.code.compare("ole", "sle", self, other)

    def __gt__(self, other: Number) -> IRValue:
        return self.code.compare("ogt", "sgt", self, other)

    def __ge__(self, other: Number) -> IRValue:
        return self.code.compare("oge", "sge", self, other)

    def __eq__(self, other: Any) -> IRValue:  # type: ignore[override]
        return self.code.compare("oeq", "eq", self, other)

    def __ne__(self, other: Any) -> IRValue:  # type: ignore[override]
        return self.code.compare("une", "ne", self, other)

    def __bool__(self) -> bool:
        raise TypeError("what native code computes is not known while it is written: use code.when or code.select")


class IRPointer:
    """Where numbers of one kind lie; indices count numbers."""

    __slots__ = ("code", "kind", "name")

    def __init__(self, code: IRBuilder, name: str, kind: str):
        self.code, self.name, self.kind = code, name, kind

    def renamed(self, code: IRBuilder, name: str) -> IRPointer:
        return IRPointer(code, name, self.kind)

    def at(self, index: Number) -> IRPointer:
        """The place `index` numbers further."""
        if isinstance(index, int) and index == 0:
            return self
        i = self.code.whole(index)
        kind = TEXTS["i8" if self.kind == "i1" else self.kind]
        found = self.code.emit(f"getelementptr inbounds {kind}, ptr {self.name}, i64 {i.name}", IRType("ptr"))
        return IRPointer(self.code, found.name, self.kind)

    def cast(self, kind: str) -> IRPointer:
        return IRPointer(self.code, self.name, kind)

    def load(self, index: Number = 0, lanes: int = 1, mask: IRValue | None = None) -> IRValue:
        """The number there, or `lanes` of them in a row; with a mask, 0 in lanes that are off, which are not read."""
        code, place, of = self.code, self.at(index).name, IRType(self.kind, lanes)
        if mask is None:
            return code.emit(f"load {of.text}, ptr {place}, align {SIZES[self.kind]}", of)
        zero = code.constant(0, of)
        take = f"@llvm.masked.load.{of.suffix}.p0"
        code.declare(f"declare {of.text} {take}(ptr, i32, <{lanes} x i1>, {of.text})")
        align = f"i32 {SIZES[self.kind]}"
        return code.emit(
            f"call {of.text} {take}(ptr {place}, {align}, {mask.type.text} {mask.name}, {of.text} {zero.name})", of
        )

    def store(self, index: Number, value: IRValue, mask: IRValue | None = None) -> None:
        """Write a number, or a vector of them in a row; with a mask, only its lanes that are on."""
        code, place, of = self.code, self.at(index).name, value.type
        if value.kind != self.kind:
            raise TypeError(f"wanted {self.kind} to store, got {value.kind}")
        if mask is None:
            code.line(f"store {of.text} {value.name}, ptr {place}, align {SIZES[self.kind]}")
            return
        put = f"@llvm.masked.store.{of.suffix}.p0"
        code.declare(f"declare void {put}({of.text}, ptr, i32, <{of.lanes} x i1>)")
        align = f"i32 {SIZES[self.kind]}"
        code.line(f"call void {put}({of.text} {value.name}, ptr {place}, {align}, {mask.type.text} {mask.name})")

    def gather(self, indices: IRValue, mask: IRValue | None = None) -> IRValue:
        """The numbers at several indices; 0 in the lanes that are off, which are not read."""
        code, lanes, of = self.code, indices.lanes, IRType(self.kind, indices.lanes)
        places = code.emit(
            f"getelementptr inbounds {TEXTS[self.kind]}, ptr {self.name}, {indices.type.text} {indices.name}",
            IRType("ptr", lanes),
        )
        mask = code.constant(1, IRType("i1", lanes)) if mask is None else mask
        zero, take = code.constant(0, of), f"@llvm.masked.gather.{of.suffix}.v{lanes}p0"
        code.declare(f"declare {of.text} {take}(<{lanes} x ptr>, i32, <{lanes} x i1>, {of.text})")
        given = f"<{lanes} x ptr> {places.name}, i32 {SIZES[self.kind]}, {mask.type.text} {mask.name}"
        given += f", {of.text} {zero.name}"
        return code.emit(f"call {of.text} {take}({given})", of)

    def prefetch(self, index: Number = 0, near: bool = True) -> None:
        """Ask for the line there ahead of its use: into the nearest cache, or only the one behind it."""
        self.code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        place = self.at(index).name
        self.code.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 {3 if near else 2}, i32 1)")


class IRVariable:
    """A number or vector that changes while the code runs: `v.value = v.value + x`."""

    __slots__ = ("code", "name", "type")

    def __init__(self, code: IRBuilder, name: str, type: IRType):
        self.code, self.name, self.type = code, name, type

    @property
    def value(self) -> IRValue:
        return self.code.emit(f"load {self.type.text}, ptr {self.name}", self.type)

    @value.setter
    def value(self, new: Number) -> None:
        new = self.code.cast(new, self.type)
        self.code.line(f"store {self.type.text} {new.name}, ptr {self.name}")


class IRBuilder:
    """The text of a kernel in the making. With `contract`, x y + z may be rounded once, as is fastest."""

    def __init__(self, contract: bool = True):
        self.flags = "contract " if contract else ""
        self.slots: list[str] = []
        self.scratchBytes = 0
        self.head: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.hints: list[str] = []
        self.count = 0
        self.parts: dict[str, str] = {}
        self.task = IRValue(self, "%task", IRType("i64"))

    # What comes in --------------------------------------------------------------------------------------------------

    def pointer(self, name: str, kind: str) -> IRPointer:
        """An argument: the address of numbers of a kind."""
        return IRPointer(self, self.slot(name, "ptr").name, kind)

    def integer(self, name: str) -> IRValue:
        """An argument: a whole number."""
        return self.slot(name, "i64")

    def slot(self, name: str, kind: str) -> IRValue:
        self.slots.append(name)
        place, value = self.fresh(), self.fresh()
        self.head += [
            f"{place} = getelementptr inbounds i64, ptr %args, i64 {len(self.slots) - 1}",
            f"{value} = load {TEXTS[kind]}, ptr {place}, align 8",
        ]
        return IRValue(self, value, IRType(kind))

    def numbersAt(self, address: IRValue, kind: str) -> IRPointer:
        """The numbers at an address that was read from memory."""
        return IRPointer(self, self.emit(f"inttoptr i64 {address.name} to ptr", IRType("ptr")).name, kind)

    def room(self, kind: str, count: int) -> IRPointer:
        """Scratch memory of this thread for `count` numbers; its content does not outlive the task."""
        start = self.scratchBytes
        self.scratchBytes += -(-count * SIZES[kind] // LINE) * LINE
        name = self.fresh()
        self.head.append(f"{name} = getelementptr inbounds i8, ptr %scratch, i64 {start}")
        return IRPointer(self, name, kind)

    # Numbers --------------------------------------------------------------------------------------------------------

    def constant(self, value: float, type: IRType) -> IRValue:
        text = literal(value, type.kind)
        if type.lanes > 1:
            text = (
                "zeroinitializer"
                if value == 0 and text[0] != "-" and not text.startswith("0x8")
                else vectorOf(text, type)
            )
        return IRValue(self, text, type)

    def whole(self, x: Number) -> IRValue:
        """As an index."""
        return x if isinstance(x, IRValue) else self.constant(x, IRType("i64"))

    def cast(self, x: Number, type: IRType) -> IRValue:
        """A Python number, or a scalar, as this type; the kind of a Value is not changed."""
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
        one = self.emit(f"insertelement {of.text} poison, {x.type.text} {x.name}, i32 0", of)
        return self.emit(f"shufflevector {of.text} {one.name}, {of.text} poison, <{lanes} x i32> zeroinitializer", of)

    def shuffle(self, x: IRValue, y: IRValue, lanes: Sequence[int]) -> IRValue:
        """The lanes of x, then y, by number."""
        picks = ", ".join(f"i32 {i}" for i in lanes)
        of = IRType(x.kind, len(lanes))
        return self.emit(
            f"shufflevector {x.type.text} {x.name}, {y.type.text} {y.name}, <{len(lanes)} x i32> <{picks}>", of
        )

    def lane(self, x: IRValue, index: int) -> IRValue:
        return self.emit(f"extractelement {x.type.text} {x.name}, i32 {index}", IRType(x.kind))

    def insert(self, x: IRValue, value: IRValue, index: int) -> IRValue:
        return self.emit(f"insertelement {x.type.text} {x.name}, {value.type.text} {value.name}, i32 {index}", x.type)

    def alike(self, *values: Number) -> list[IRValue]:
        """The values as one type: that of the widest of them."""
        known = [v for v in values if isinstance(v, IRValue)]
        most = max(known, key=lambda v: v.lanes).type
        return [self.cast(v, most) for v in values]

    def binary(self, real: str, whole: str, x: Number, y: Number) -> IRValue:
        a, b = self.alike(x, y)
        op = f"{real} {self.flags}" if a.type.isFloat else f"{whole} "
        return self.emit(f"{op}{a.type.text} {a.name}, {b.name}", a.type)

    def compare(self, real: str, whole: str, x: Number, y: Number) -> IRValue:
        a, b = self.alike(x, y)
        op = f"fcmp {real}" if a.type.isFloat else f"icmp {whole}"
        return self.emit(f"{op} {a.type.text} {a.name}, {b.name}", IRType("i1", a.lanes))

    def select(self, condition: IRValue, x: Number, y: Number) -> IRValue:
        """x where the condition holds, else y."""
        a, b = self.alike(x, y)
        if a.lanes < condition.lanes:
            a, b = self.splat(a, condition.lanes), self.splat(b, condition.lanes)
        return self.emit(
            f"select {condition.type.text} {condition.name}, {a.type.text} {a.name}, {b.type.text} {b.name}", a.type
        )

    def call(self, intrinsic: str, *values: Number, flags: str = "") -> IRValue:
        """One of LLVM's functions of numbers of one type that gives that type: fma, sqrt, rint, fabs, maxnum, ..."""
        given = self.alike(*values)
        of = given[0].type
        name = f"@llvm.{intrinsic}.{of.suffix}"
        self.declare(f"declare {of.text} {name}({', '.join([of.text] * len(given))})")
        return self.emit(f"call {flags}{of.text} {name}({', '.join(f'{of.text} {v.name}' for v in given)})", of)

    def fma(self, x: Number, y: Number, z: Number) -> IRValue:
        """x y + z, rounded once."""
        return self.call("fma", x, y, z)

    def total(self, x: IRValue) -> IRValue:
        """The sum of all lanes, in a tree."""
        return self.fold(x, lambda a, b: a + b)

    def fold(self, x: IRValue, join: Any) -> IRValue:
        """All lanes joined in a tree: the upper half with the lower until one is left."""
        lanes = x.lanes
        while lanes > 2:
            lanes //= 2
            x = join(self.shuffle(x, x, range(lanes)), self.shuffle(x, x, range(lanes, 2 * lanes)))
        return join(self.lane(x, 0), self.lane(x, 1)) if lanes == 2 else x

    def convert(self, x: IRValue, kind: str, signed: bool = True) -> IRValue:
        """The same number as another kind: floats are cut towards zero to whole ones."""
        if x.kind == kind:
            return x
        of = IRType(kind, x.lanes)
        fromFloat, toFloat, signed = x.type.isFloat, of.isFloat, signed and x.kind != "i1"
        if fromFloat and toFloat:
            op = "fpext" if SIZES[kind] > SIZES[x.kind] else "fptrunc"
        elif fromFloat:
            op = "fptosi" if signed else "fptoui"
        elif toFloat:
            op = "sitofp" if signed else "uitofp"
        elif kind == "i1":
            return x != 0
        else:
            grows = SIZES[kind] > SIZES[x.kind] or x.kind == "i1"
            op = ("sext" if signed else "zext") if grows else "trunc"
        return self.emit(f"{op} {x.type.text} {x.name} to {of.text}", of)

    def bits(self, x: IRValue, kind: str) -> IRValue:
        """The very bits as another kind of the same size."""
        of = IRType(kind, x.lanes)
        return self.emit(f"bitcast {x.type.text} {x.name} to {of.text}", of)

    def steps(self, lanes: int, kind: str = "i64") -> IRValue:
        """0, 1, 2, ... by lane."""
        of = IRType(kind, lanes)
        return IRValue(self, f"<{', '.join(f'{TEXTS[kind]} {literal(i, kind)}' for i in range(lanes))}>", of)

    def mask(self, count: Number, lanes: int) -> IRValue:
        """On in the first `count` lanes."""
        return self.steps(lanes) < self.splat(self.whole(count), lanes)

    def least(self, x: Number, y: Number) -> IRValue:
        """The smaller of two whole numbers."""
        a, b = self.alike(x, y)
        return self.select(a < b, a, b)

    # Flow -----------------------------------------------------------------------------------------------------------

    def variable(self, value: IRValue) -> IRVariable:
        name = self.fresh()
        self.head.append(f"{name} = alloca {value.type.text}")
        made = IRVariable(self, name, value.type)
        made.value = value
        return made

    @contextmanager
    def loop(self, start: Number, stop: Number, step: Number = 1, unroll: int | None = None) -> Iterator[IRValue]:
        """For each index from `start` while it is below `stop`; `unroll` says how many turns to write out, 1: none."""
        stop, step = self.whole(stop), self.whole(step)
        index = self.variable(self.whole(start))
        head, body, end = self.label(), self.label(), self.label()
        self.line(f"br label %{head}")
        self.lines.append(f"{head}:")
        i = index.value
        self.line(f"br i1 {(i < stop).name}, label %{body}, label %{end}")
        self.lines.append(f"{body}:")
        yield i
        index.value = i + step
        hint = "" if unroll is None else f", !llvm.loop {self.hint(unroll)}"
        self.line(f"br label %{head}{hint}")
        self.lines.append(f"{end}:")

    @contextmanager
    def when(self, condition: IRValue) -> Iterator[None]:
        """Only if the condition, of one lane, holds."""
        body, end = self.label(), self.label()
        self.line(f"br i1 {condition.name}, label %{body}, label %{end}")
        self.lines.append(f"{body}:")
        yield
        self.line(f"br label %{end}")
        self.lines.append(f"{end}:")

    def part(self, name: str, given: Sequence[IRValue | IRPointer], write: Callable[..., None]) -> None:
        """Call a function that is compiled by itself: its loops have all registers; equal names are one function.

        `write(code, *given)` writes it, with what is given as the function knows it; it has no slots and no scratch.
        """
        kinds = ["ptr" if isinstance(x, IRPointer) else x.type.text for x in given]
        if name not in self.parts:
            inner = IRBuilder()
            inner.flags, inner.declared, inner.hints, inner.parts = self.flags, self.declared, self.hints, self.parts
            names = [inner.fresh() for _ in given]
            write(inner, *(x.renamed(inner, name) for x, name in zip(given, names)))
            head = f"define internal void @{name}({', '.join(f'{k} {n}' for k, n in zip(kinds, names))}) #1 {{"
            self.parts[name] = "\n".join([head, *inner.head, *inner.lines, "ret void", "}"])
        self.line(f"call void @{name}({', '.join(f'{k} {x.name}' for k, x in zip(kinds, given))})")

    def hint(self, unroll: int) -> str:
        name = f"!{2 * len(self.hints)}"
        what = '!"llvm.loop.unroll.disable"' if unroll == 1 else f'!"llvm.loop.unroll.count", i32 {unroll}'
        self.hints.append(
            f"{name} = distinct !{{{name}, !{2 * len(self.hints) + 1}}}\n!{2 * len(self.hints) + 1} = !{{{what}}}"
        )
        return name

    # Writing --------------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    def emit(self, text: str, type: IRType) -> IRValue:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return IRValue(self, name, type)

    def declare(self, text: str) -> None:
        self.declared[text] = None

    def text(self) -> str:
        """The whole kernel."""
        return "\n".join(
            [
                *self.declared,
                *self.parts.values(),
                "define void @kernel(ptr noalias %args, i64 %task, ptr noalias %scratch) #0 {",
                *self.head,
                *self.lines,
                "ret void",
                "}",
                'attributes #0 = { nounwind "no-trapping-math"="true" }',
                'attributes #1 = { noinline nounwind "no-trapping-math"="true" }',
                *self.hints,
                "",
            ]
        )


def literal(value: float, kind: str) -> str:
    """A number as LLVM reads it: floats by the bits of the double that is equal to them."""
    if kind[0] != "f":
        return str(int(value))
    if kind == "f32":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def vectorOf(text: str, type: IRType) -> str:
    """A constant in all lanes, as LLVM writes it."""
    return f"<{', '.join([f'{TEXTS[type.kind]} {text}'] * type.lanes)}>"
