"""Fused epilogues: formulas applied to the sums of a GEMM or convolution while these are in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from puregraph.ops.formula import Formula
from puregraph.ops.native.llvm.instructions import IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec
from puregraph.ops.native.math import emit
from puregraph.ops.native.nests.nestscope import STORED


class EpilogueOperand(NamedTuple):
    """An operand over rows and columns of sums: its kind, its array, and its strides along rows, columns (0 or 1) and
    batch axes."""

    kind: str
    what: Any
    row: int
    column: int
    batch: tuple[int, ...] = ()


class Epilogue(EpilogueSpec):
    """Bias, activation, residual: lines of formulas over the sums, named `sums`; some of their results are stored."""

    def __init__(
        self,
        sums: str,
        loads: Mapping[str, EpilogueOperand],
        lines: Sequence[tuple[str, Formula]],
        stores: Mapping[str, EpilogueOperand],
    ):
        self.sums, self.loads, self.lines, self.stores = sums, dict(loads), list(lines), dict(stores)
        self.operands = {
            **{f"l_{k}": o for k, o in self.loads.items()},
            **{f"s_{k}": o for k, o in self.stores.items()},
        }

    @property
    def key(self) -> str:
        operands = [(k, o.kind, bool(o.row), o.column, [bool(b) for b in o.batch]) for k, o in self.operands.items()]
        return repr((self.sums, operands, [(n, str(f)) for n, f in self.lines]))

    @property
    def slots(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for k, o in self.operands.items():
            arguments[k] = o.what
            arguments |= {f"{k}_row": o.row} if o.row else {}
            arguments |= {f"{k}_b{i}": b for i, b in enumerate(o.batch) if b}
        return arguments

    def open(self, code: IRBuilder) -> None:
        self.pointers = {k: code.pointer(k, STORED[o.kind]) for k, o in self.operands.items()}
        self.rows = {k: code.integer(f"{k}_row") for k, o in self.operands.items() if o.row}
        self.steps = {  # type: ignore[assignment]
            (k, i): code.integer(f"{k}_b{i}") for k, o in self.operands.items() for i, b in enumerate(o.batch) if b
        }

    def enter(self, code: IRBuilder, indices: Sequence[object]) -> None:
        for k in self.pointers:
            for i, index in enumerate(indices):
                if (k, i) in self.steps:
                    self.pointers[k] = self.pointers[k].at(index * self.steps[k, i])  # type: ignore[call-overload]

    def put(
        self, code: IRBuilder, row: IRValue | int, column: IRValue | int, sums: IRValue, mask: IRValue | None = None
    ) -> None:
        lanes = sums.lanes
        values = {self.sums: sums}

        def get(name: str) -> IRValue:
            if name not in values:
                values[name] = self.read(code, name, row, column, IRType(sums.kind, lanes), mask)
            return values[name]

        for name, line in self.lines:
            values[name] = emit.emit(code, line, {n: get(n) for n in line.names})
        for name, operand in self.stores.items():
            value, stored = values[name], STORED[operand.kind]
            value = code.convert(value, stored, signed=value.kind != "i1")
            address = self.pointers[f"s_{name}"].at(row * self.rows[f"s_{name}"] if f"s_{name}" in self.rows else 0)
            address.store(column, code.splat(value, lanes), mask)

    def read(
        self,
        code: IRBuilder,
        name: str,
        row: IRValue | int,
        column: IRValue | int,
        vector: IRType,
        mask: IRValue | None,
    ) -> IRValue:
        """An operand, converted to the floats of the sums."""
        key, operand = f"l_{name}", self.loads[name]
        address = self.pointers[key].at(row * self.rows[key] if key in self.rows else 0)
        value = address.load(column, vector.lanes, mask) if operand.column else address.load()
        return value != 0 if operand.kind == "bool" else code.convert(value, vector.kind)
