"""RecurrentWriter: the rows of states that both directions of a recurrent kernel share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from puregraph.ops.native.llvm.instructions import IRPointer, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.product.native.broadcastfma import BroadcastRows, selectPointer

if TYPE_CHECKING:
    from puregraph.ops.recurrent.native.recurrentcalls import RecurrentSpec


class StateRow(NamedTuple):
    """A sequence in the code of a kernel: its pointer and strides."""

    address: IRPointer
    sample: IRValue
    timeStep: IRValue

    def at(self, sample: IRValue, timeStep: IRValue) -> IRPointer:
        return self.address.at(sample * self.sample + timeStep * self.timeStep)


class RecurrentWriter:
    """The base of both directions."""

    def __init__(self, code: IRBuilder, plan: RecurrentSpec):
        code.flags = ""  # the tile follows the threads: LLVM must not contract to an fma in one tile, not in another
        self.code, self.plan, self.cell, self.lanes = code, plan, plan.cell, plan.tile.lanes
        self.samples, self.timeSteps, self.units = (code.integer(n) for n in ("samples", "timeSteps", "units"))
        self.group, self.packed = code.integer("group"), code.pointer("packed", plan.real)
        self.start = code.task * self.group
        self.live = code.min(self.group, self.samples - self.start)
        self.on = self.line("on", "i8") if plan.options.lengths else None
        self.names = "hc"[: plan.cell.states]
        self.first = {name: self.firstLine(name) for name in self.names}
        self.states = {name: self.line(name) for name in self.names}
        self.saved = self.line("saved") if plan.options.saves else None

    def line(self, name: str, kind: str | None = None) -> StateRow:
        address = self.code.pointer(name, kind or self.plan.real)
        return StateRow(address, self.code.integer(name + "Sample"), self.code.integer(name + "TimeStep"))

    def firstLine(self, name: str) -> tuple[IRPointer, IRValue]:
        return self.code.pointer(name + "First", self.plan.real), self.code.integer(name + "FirstSample")

    def timeStep(self, k: IRValue) -> IRValue:
        """The k-th time step that is visited, forward."""
        return self.timeSteps - 1 - k if self.plan.options.reverse else k

    def before(self, name: str, k: IRValue) -> BroadcastRows:
        """A state of the samples of this task before the k-th time step that is visited."""
        code, line, (address, stride) = self.code, self.states[name], self.first[name]
        there = line.address.at(self.start * line.sample + self.timeStep(k - 1) * line.timeStep)
        isFirst = k == 0
        return BroadcastRows(
            selectPointer(code, isFirst, address.at(self.start * stride), there),
            code.select(isFirst, stride, line.sample),
        )

    def rows(self, line: StateRow, timeStep: IRValue) -> BroadcastRows:
        return BroadcastRows(line.address.at(self.start * line.sample + timeStep * line.timeStep), line.sample)

    def indices(self, row: IRValue, count: int) -> list[IRValue]:
        """The samples of a tile; the last one repeats."""
        return [self.code.min(row + r, self.live - 1) for r in range(count)]

    def isOn(self, sample: IRValue, timeStep: IRValue) -> IRValue:
        return self.on.at(self.start + sample, timeStep).load() != 0 if self.on is not None else self.code.i64(1) == 1

    def mask(self, unit: IRValue) -> IRValue:
        return self.code.mask(self.units - unit, self.lanes)
