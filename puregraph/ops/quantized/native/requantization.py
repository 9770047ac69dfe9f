"""Requantization: from the sums of products of bytes to integers of 32 bits, or to bytes, scaled and rounded.

sum (a - aZero) (b - bZero) = sum a b - aZero sum b - bZero sum a + k aZero bZero, all modulo 2^32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec

OFFSET = 128  # between signed bytes and the unsigned ones that are multiplied, and the other way round
ENDS = {"u8": (0, 255), "i8": (-128, 127)}


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


class RequantizationWriter:
    """Writes the code of a Requantization into one kernel."""

    def __init__(self, of: Requantization, code: IRBuilder):
        self.of, self.code = of, code
        self.groupRows, self.groupColumns = code.integer("groupRows"), code.integer("groupColumns")
        self.firstRow, self.firstColumn = code.i64(0), code.i64(0)
        of.ending.open(code)
        self.pointers = {name: code.pointer(name, operand.kind) for name, operand in of.operands.items()}

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

    def put(
        self,
        row: IRValue,
        column: IRValue,
        sums: IRValue,
        columnSums: IRValue,
        aZero: IRValue,
        rowSum: IRValue | None,
        mask: IRValue,
    ) -> None:
        """Take the sums of some columns of a row. `rowSum`: sum a - k aZero, where b has a zero point."""
        code, lanes = self.code, sums.lanes
        sums = sums - aZero * columnSums
        if rowSum is not None:
            sums = sums - rowSum * self.zeroOf("bZero", column, lanes, mask)
        if self.of.bias is not None:
            sums = sums + self.read("bias", column, lanes, mask)
        if self.of.factor is not None:
            sums = self.rounded(sums, column, mask)
        if type(self.of.ending) is not EpilogueSpec:
            sums = code.convert(sums, "f32")
        self.of.ending.put(code, self.firstRow + row, self.firstColumn + column, code.splat(sums, lanes), mask)

    def rounded(self, sums: IRValue, column: IRValue, mask: IRValue) -> IRValue:
        """Sums scaled, rounded to the nearest integer, half to even, and kept within the bytes."""
        code, of, lanes = self.code, self.of, sums.lanes
        value = code.convert(sums, of.factor.kind) * self.read("factor", column, lanes, mask)  # type: ignore[union-attr]
        if of.offset is not None:
            value = value + self.read("offset", column, lanes, mask)
        value = code.convert(value, "f32")
        if of.isRectified:
            value = code.select(value > 0, value, 0)
        if of.yScale is not None:
            value = value / self.pointers["yScale"].load()
        zero = code.convert(code.convert(self.pointers["yZero"].load(), "i32"), "f32")
        value = code.call("rint", value) + zero
        low, high = (float(end) for end in ENDS[of.kind])
        value = code.select(value < low, low, value)
        value = code.select(value > high, high, value)
        return code.convert(code.convert(value, "i32"), of.kind)
