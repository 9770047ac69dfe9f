"""The values of a loop nest in native code: operands read and written, and each line computed where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from puregraph.core.opensize import floating
from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import INTEGERS, LoopNest, Reduce, ReducedNest, isAxis, startOf
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue, IRVariable
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.math import emit

Sums = dict[str, list[IRVariable]]  # the accumulators of each reduction, one for each vector
STORED = {"f32": "f32", "f64": "f64", "bool": "i8", **{kind: kind for kind in INTEGERS}}


def lanesOf(nest: LoopNest) -> int:
    """The elements of a vector register of the kind that a nest computes in."""
    return jit.lanes(8 if nest.kind in ("f64", "i64", "u64") else 4)


def scaled(shape: ReducedNest) -> dict[str, tuple[Formula, float]]:
    """For each line that is a name times or over a number, such as a mean: the line with a factor, and the factor.

    Such numbers often follow from sizes, so they are arguments. In float32 a division is a product, see `emit.quick`.
    Lines that are reduced keep their numbers: a sum of products is computed by fma.
    """
    reduced = {x.of for _, x in shape.nest.lines if isinstance(x, Reduce)}
    lines: dict[str, tuple[Formula, float]] = {}
    for name, line in shape.nest.lines:
        if isinstance(line, Reduce) or name in reduced or shape.nest.kind not in ("f32", "f64"):
            continue
        op, args = line.term.op, line.term.args
        if op not in ("*", "/") or args[0].op != "name" or args[1].op != "number":
            continue
        value = floating(args[1].value)
        if not 2.0**-100 < abs(value) < 2.0**100:
            continue
        if op == "/" and shape.nest.kind == "f32":
            op, value = "*", 1 / value
        of = args[0].value
        lines[name] = Formula(f"{of} {op} {of}Factor"), value
    return lines


class NestCode:
    """Writes the code of a nest."""

    def __init__(self, code: IRBuilder, shape: ReducedNest):
        self.code, self.shape, self.nest = code, shape, shape.nest
        self.lanes = lanesOf(self.nest)
        self.pointers: dict[str, IRPointer] = {}
        self.strides: dict[tuple[str, int], IRValue | int] = {}
        for k, o in shape.operands.items():
            self.pointers[k] = code.pointer(k, STORED[o.kind])
            for a, s in enumerate(o.strides):
                if s:
                    self.strides[k, a] = 1 if s == 1 and a == shape.inner else code.integer(f"{k}_{a}")
        self.extents = [code.integer(f"n_{a}") for a in range(len(self.nest.space))]
        self.whole = code.integer("whole") if self.nest.ragged else None
        self.scaled = {
            n: (line, code.convert(code.slot(f"factor_{n}", "f64"), self.nest.kind))
            for n, (line, _) in scaled(shape).items()
        }

    def offset(self, operand: str, indices: Mapping[int, IRValue]) -> IRValue | int:
        """The offset of an element from the operand's start."""
        total: IRValue | int = 0
        for a, i in indices.items():
            if (operand, a) in self.strides:
                step = self.strides[operand, a]
                move = i if isinstance(step, int) else i * step
                total = move if isinstance(total, int) and total == 0 else total + move
        return total

    def indicesOf(self, index: IRValue, axes: Sequence[int]) -> dict[int, IRValue]:
        """A flat index of outer axes as an index of each."""
        indices = dict[int, IRValue]()
        for a in reversed(axes):
            isFirst = a == self.shape.outer[0]
            indices[a] = index if isFirst else index % self.extents[a]
            index = index if isFirst else index // self.extents[a]
        return indices

    def extent(self, axis: int, indices: Mapping[int, IRValue]) -> IRValue:
        """The length of an axis, at these indices of those before it."""
        if self.nest.ragged and self.nest.ragged[0] == axis and self.whole is not None:
            return self.code.min(self.extents[axis], self.whole - indices[0] * self.extents[axis])
        return self.extents[axis]

    def read(self, name: str, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None) -> IRValue:
        """An element of an operand, or `lanes` elements along the last axis."""
        code, key = self.code, f"l_{name}"
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 0):
            element = pointer.load()
        elif isinstance(step, int):
            element = pointer.load(0, lanes, mask)
        else:
            element = pointer.gather(code.iota(lanes) * step, mask)
        kind = self.nest.loads[name].kind
        return element != 0 if kind == "bool" else code.convert(element, self.nest.kind)

    def write(
        self, name: str, value: IRValue, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None
    ) -> None:
        """Store a result, converted to its kind."""
        code, key = self.code, f"s_{name}"
        stored = STORED[self.nest.stores[name].kind]
        if value.kind == "i1":
            value = code.convert(value, stored, signed=False)
        value = code.splat(code.convert(value, stored), lanes)
        pointer = self.pointers[key].at(self.offset(key, indices))
        step = self.strides.get((key, self.shape.inner), 0)
        if lanes == 1 or (isinstance(step, int) and step == 1):
            pointer.store(0, value, mask)
        elif isinstance(step, int):
            pointer.store(0, code.extract(value, 0))
        else:
            for i in range(lanes):
                if mask is None:
                    pointer.store(step * i, code.extract(value, i))
                else:
                    with code.when(code.extract(mask, i)):
                        pointer.store(step * i, code.extract(value, i))

    def join(self, how: str, a: IRValue, b: IRValue) -> IRValue:
        if how in ("max", "min"):
            table = emit.WHOLE if self.nest.kind in INTEGERS else emit.EMIT
            return table["maximum" if how == "max" else "minimum"](self.code, a, b)
        return a + b if how == "sum" else a * b

    def start(self, how: str, lanes: int) -> IRValue:
        return self.code.constant(startOf(how, self.nest.kind), IRType(self.nest.kind, lanes))

    def sums(self, reductions: Iterable[str], count: int) -> Sums:
        """New accumulators: `count` vectors of each reduction."""
        return {
            n: [self.code.variable(self.start(self.shape.reductions[n].how, self.lanes)) for _ in range(count)]
            for n in reductions
        }

    def add(self, sums: Sums, more: Sums) -> None:
        for n, totals in sums.items():
            for total, part in zip(totals, more[n]):
                total.value = self.join(self.shape.reductions[n].how, total.value, part.value)


class Scope:
    """The values of a nest at one index or vector of indices, each computed once, when it is first needed."""

    def __init__(
        self, writer: NestCode, indices: Mapping[int, IRValue], lanes: int, mask: IRValue | None, outer: Scope | None
    ):
        self.writer, self.indices, self.lanes, self.mask, self.outer = writer, indices, lanes, mask, outer
        self.values: dict[str, IRValue] = {}

    def get(self, name: str) -> IRValue:
        if self.outer is not None and not self.writer.shape.varies.get(name, True):
            return self.outer.get(name)
        if name not in self.values:
            self.values[name] = self.make(name)
        return self.values[name]

    def make(self, name: str) -> IRValue:
        writer = self.writer
        code, kind = writer.code, writer.nest.kind
        if name in writer.nest.loads:
            return writer.read(name, self.indices, self.lanes, self.mask)
        if isAxis(name):
            axis = int(name[4:])
            index = self.indices[axis]
            if axis == writer.shape.inner and self.lanes > 1:
                index = code.iota(self.lanes) + index
            return code.convert(index, kind)
        line = writer.shape.lines[name]
        if isinstance(line, Reduce):
            raise ValueError(f"{name} is wanted before it is complete")
        values = {n: self.get(n) for n in line.names}
        if name in writer.scaled:
            line, factor = writer.scaled[name]
            values |= {n: factor for n in line.names if n not in values}
        return emit.emitIntegers(code, line, values, kind) if kind in INTEGERS else emit.emit(code, line, values, kind)

    def joined(self, reduction: Reduce, total: IRValue, start: IRValue | None = None) -> IRValue:
        """An accumulator joined with the value here; `start` fills lanes that are off. A product is added by an fma."""
        writer, line = self.writer, self.writer.shape.lines.get(reduction.of)
        code = writer.code
        isSum = reduction.how == "sum" and start is None and writer.nest.kind not in INTEGERS
        if isSum and isinstance(line, Formula) and reduction.of not in self.values:
            values = {n: self.get(n) for n in line.names}
            factors = emit.factorsOf(code, line, values, writer.nest.kind)
            if factors is not None:
                return code.call("fmuladd", *(code.splat(x, self.lanes) for x in factors), total)
        value = code.splat(self.get(reduction.of), self.lanes)
        if start is not None and self.mask is not None:
            value = code.select(self.mask, value, start)
        return writer.join(reduction.how, total, value)
