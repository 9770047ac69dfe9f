"""Requantization: from the sums of products of bytes to integers of 32 bits, or to bytes, scaled and rounded.

sum (a - aZero) (b - bZero) = sum a b - aZero sum b - bZero sum a + k aZero bZero, all modulo 2^32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec

OFFSET = 128  # between signed bytes and the unsigned ones that are multiplied, and the other way round
MAGIC = 1.5 * (1 << 23)  # a float32 plus this is rounded to an integer, half to even, in the lowest bits
ENDS = {"u8": (0.0, 255.0), "i8": (-128.0, 127.0)}


class SumOperand(NamedTuple):
    """Numbers for the rows or columns of sums: where, their kind, and the stride, 0 if one serves all."""

    what: Any
    kind: str
    step: int


class Requantization(NamedTuple):
    """The conversion of sums to int32 or to bytes (`kind`), in front of an epilogue.

    Groups are `groupRows` rows of the result apart, or `groupColumns` columns. With a `factor`,
    y = round((sums factor + offset) / yScale) + yZero in the kind of the factor, where the quotient is of float32.
    """

    ending: EpilogueSpec
    kind: str
    groupRows: int
    groupColumns: int
    aZero: SumOperand | None = None
    bZero: SumOperand | None = None
    bias: SumOperand | None = None
    factor: SumOperand | None = None
    offset: SumOperand | None = None
    yScale: SumOperand | None = None
    yZero: SumOperand | None = None
    isRectified: bool = False

    @property
    def operands(self) -> dict[str, SumOperand]:
        """The operands that there are, by name."""
        names = ("aZero", "bZero", "bias", "factor", "offset", "yScale", "yZero")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def key(self) -> str:
        operands = [(name, operand.kind, operand.step) for name, operand in self.operands.items()]
        return f"{self.ending.key} {self.kind} {operands} {self.isRectified:d}"

    @property
    def slots(self) -> dict[str, Any]:
        slots = {"groupRows": self.groupRows, "groupColumns": self.groupColumns}
        return slots | {name: operand.what for name, operand in self.operands.items()} | self.ending.slots

    def open(self, code: IRBuilder) -> RequantizationWriter:
        """Read the arguments."""
        return RequantizationWriter(self, code)


class ColumnOperands(NamedTuple):
    """The operands of some columns, in registers; `addend` is added to the integer sums."""

    column: IRValue
    mask: IRValue
    columnSums: IRValue
    addend: IRValue | None
    bZero: Any
    factor: Any
    offset: Any


class RequantizationWriter:
    """Writes the code of a Requantization into one kernel."""

    def __init__(self, of: Requantization, code: IRBuilder):
        self.of, self.code = of, code
        self.groupRows, self.groupColumns = code.integer("groupRows"), code.integer("groupColumns")
        self.firstRow, self.firstColumn = code.i64(0), code.i64(0)
        of.ending.open(code)
        self.pointers = {name: code.pointer(name, operand.kind) for name, operand in of.operands.items()}
        if of.factor is not None:
            self.openRounding()

    def openRounding(self) -> None:
        """Read what rounds: bounds that, with the zero point, are the ends of the bytes, or 0 in place of a ReLU."""
        code, of = self.code, self.of
        self.zero = self.pointers["yZero"].load()
        zero = code.convert(code.convert(self.zero, "i32"), "f32")
        self.low, self.high = (end - zero for end in ENDS[of.kind])
        self.yScale = None if of.yScale is None else self.pointers["yScale"].load()
        if of.isRectified:
            isNegative = code.constant(False, IRType("i1")) if self.yScale is None else self.yScale < 0
            self.low, self.high = code.select(isNegative, self.low, 0.0), code.select(isNegative, 0.0, self.high)

    def enter(self, group: IRValue) -> None:
        """Select a group."""
        self.firstRow, self.firstColumn = group * self.groupRows, group * self.groupColumns
        for name, operand in self.of.operands.items():
            if operand.step and name != "aZero":
                self.pointers[name] = self.pointers[name].at(group * self.groupColumns)

    def fill(self) -> IRValue:
        """The zero point of a as it is stored, which stands for padding."""
        if self.of.aZero is None or self.of.aZero.step:
            return self.code.constant(0, IRType("u8"))
        return self.pointers["aZero"].cast("u8").load()

    def zeroOf(self, name: str, index: IRValue, lanes: int, mask: IRValue | None = None) -> IRValue:
        """A zero point as int32, as of the bytes that are multiplied."""
        operand = getattr(self.of, name)
        isVector = operand.step and lanes > 1
        value = (
            self.pointers[name].load(index, lanes, mask)
            if isVector
            else self.pointers[name].load(index if operand.step else 0)
        )
        wide = self.code.convert(value, "i32")
        if name == "aZero":
            return wide + OFFSET if operand.kind == "i8" else wide
        return wide if operand.kind == "i8" else wide - OFFSET

    def read(self, name: str, column: IRValue, lanes: int, mask: IRValue) -> IRValue:
        """An operand of the columns."""
        isVector = getattr(self.of, name).step
        return self.pointers[name].load(column, lanes, mask) if isVector else self.pointers[name].load()

    def aZero(self, row: IRValue, isSigned: bool) -> IRValue:
        """The zero point of a row of a, as of the unsigned bytes that are multiplied."""
        if self.of.aZero is None:
            return self.code.constant(OFFSET if isSigned else 0, IRType("i32"))
        return self.zeroOf("aZero", row, 1)

    def columns(self, column: IRValue, columnSums: IRValue, aZero: IRValue, mask: IRValue) -> ColumnOperands:
        """Read the operands of some columns, once for all rows; `columnSums`: sum b."""
        of, lanes = self.of, columnSums.lanes
        addend = None if of.bias is None else self.read("bias", column, lanes, mask)
        if not self.hasRowZeros:
            shift = 0 - aZero * columnSums
            addend = shift if addend is None else shift + addend
        factor, offset = (
            None if getattr(of, name) is None else self.read(name, column, lanes, mask) for name in ("factor", "offset")
        )
        bZero = None if of.bZero is None else self.zeroOf("bZero", column, lanes, mask)
        return ColumnOperands(column, mask, columnSums, addend, bZero, factor, offset)

    @property
    def hasRowZeros(self) -> bool:
        """True if each row of a has a zero point."""
        return self.of.aZero is not None and bool(self.of.aZero.step)

    def put(self, row: IRValue, at: ColumnOperands, sums: IRValue, aZero: IRValue, rowSum: IRValue | None) -> None:
        """Take the sums of some columns of a row. `rowSum`: sum a - k aZero, where b has a zero point."""
        code, lanes = self.code, sums.lanes
        if self.hasRowZeros:
            sums = sums - aZero * at.columnSums
        if rowSum is not None:
            sums = sums - rowSum * at.bZero
        if at.addend is not None:
            sums = sums + at.addend
        if at.factor is not None:
            sums = self.rounded(sums, at)
        if type(self.of.ending) is not EpilogueSpec:
            sums = code.convert(sums, "f32")
        self.of.ending.put(code, self.firstRow + row, self.firstColumn + at.column, code.splat(sums, lanes), at.mask)

    def rounded(self, sums: IRValue, at: ColumnOperands) -> IRValue:
        """Sums scaled, rounded to the nearest integer, half to even, and kept within the bytes."""
        code, of = self.code, self.of
        value = code.convert(sums, at.factor.kind) * at.factor
        if at.offset is not None:
            value = value + at.offset
        value = code.convert(value, "f32")
        if self.yScale is not None:
            value = value / self.yScale
        value = code.select(value > self.low, value, self.low)
        value = code.select(value < self.high, value, self.high)
        value = value + MAGIC
        bits = code.emit(f"bitcast {value.type.text} {value.name} to <{value.lanes} x i32>", IRType("i32", value.lanes))
        return code.convert(bits, of.kind) + self.zero
