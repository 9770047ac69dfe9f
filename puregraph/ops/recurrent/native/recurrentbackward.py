"""RecurrentBackward: backpropagation through time of some samples."""

from __future__ import annotations

from collections.abc import Callable

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.product.native.broadcastfma import BroadcastRows, broadcastFma
from puregraph.ops.recurrent.activations import tanh
from puregraph.ops.recurrent.native.recurrentforward import quotient
from puregraph.ops.recurrent.native.recurrentwriter import RecurrentWriter

TILE_VECTORS = 2  # vectors in a tile of the backward product


class RecurrentBackward(RecurrentWriter):
    """The backward kernel: at each time step the gradients of the cells, then dq U', added to the gradient of h."""

    def write(self) -> None:
        code, tile = self.code, self.plan.tile
        self.gy, self.dp = self.line("gy"), self.line("dp")
        self.dq = self.line("dq") if self.cell.parted else self.dp
        grads = {name: code.pointer(f"d{name}", self.plan.real) for name in self.names}
        self.grads = {
            name: BroadcastRows(address.at(self.start * self.units), self.units) for name, address in grads.items()
        }
        with code.loop(0, self.timeSteps, unroll=1) as back:
            k = self.timeSteps - 1 - back
            timeStep = self.timeStep(k)
            before = {name: self.before(name, k) for name in self.names}
            with code.loop(0, self.live, unroll=1) as row:
                self.cells(row, timeStep, before)
            dq = self.rows(self.dq, timeStep)
            with code.loop(0, self.units, tile.columns, unroll=1) as unit:
                panel = self.packed.at(unit * (self.units * self.cell.gates))
                with code.loop(0, self.live, tile.rows, unroll=1) as row:
                    self.product(self.indices(row, tile.rows), unit, panel, dq)

    def cells(self, row: IRValue, timeStep: IRValue, before: dict[str, BroadcastRows]) -> None:
        """dp and dq of a sample at a time step; its state gradients become those that bypass the gates."""
        code, lanes = self.code, self.lanes
        after = {name: self.rows(line, timeStep).at(row) for name, line in self.states.items()}
        saved = None if self.saved is None else self.rows(self.saved, timeStep).at(row)
        gy, dp, dq = (self.rows(line, timeStep).at(row) for line in (self.gy, self.dp, self.dq))
        isOn = None if self.on is None else self.isOn(row, timeStep)
        with code.loop(0, self.units, lanes, unroll=1) as unit:
            mask = self.mask(unit)

            def read(address: IRPointer, gate: int = 0, unit: IRValue = unit, mask: IRValue = mask) -> IRValue:
                return address.load(self.units * gate + unit, lanes, mask)

            grads = {name: read(rows.at(row)) for name, rows in self.grads.items()}
            grads["h"] = grads["h"] + read(gy)
            passing = None
            if isOn is not None:
                passing = {name: code.select(isOn, 0.0, g) for name, g in grads.items()}
                grads = {name: code.select(isOn, g, 0.0) for name, g in grads.items()}
            gates = [read(saved, g) for g in range(self.cell.saved)] if saved is not None else []
            old = {name: read(rows.at(row)) for name, rows in before.items()}
            inner, outer, stateGrads = self.step(gates, old, lambda name: read(after[name]), grads)
            for g, value in enumerate(inner):
                dp.store(self.units * g + unit, value, mask)
                if self.cell.parted:
                    dq.store(self.units * g + unit, outer[g], mask)
            for name, value in stateGrads.items():
                if passing is not None:
                    value = value + passing[name]
                self.grads[name].at(row).store(unit, value, mask)

    def step(
        self,
        gates: list[IRValue],
        before: dict[str, IRValue],
        after: Callable[[str], IRValue],
        grads: dict[str, IRValue],
    ) -> tuple[list[IRValue], list[IRValue], dict[str, IRValue]]:
        """dp, dq, and the gradients of the states before, without those through q."""
        code, dh = self.code, grads["h"]
        zero = code.constant(0.0, dh.type)
        if self.cell.kind == "lstm":
            i, f, g, o = gates
            t = quotient(tanh(code, after("c")))
            dc = code.fma(dh * o, 1.0 - t * t, grads["c"])
            da = [
                dc * g * (i * (1.0 - i)),
                dc * before["c"] * (f * (1.0 - f)),
                dc * i * (1.0 - g * g),
                dh * t * (o * (1.0 - o)),
            ]
            return da, da, {"h": zero, "c": dc * f}
        if self.cell.kind == "gru":
            r, z, g, e = gates
            dg = dh * (1.0 - z) * (1.0 - g * g)
            dr, dz = dg * e * (r * (1.0 - r)), dh * (before["h"] - g) * (z * (1.0 - z))
            return [dr, dz, dg], [dr, dz, dg * r], {"h": dh * z}
        h = after("h")
        da = [dh * (1.0 - h * h) if self.cell.kind == "tanh" else code.select(h > 0.0, dh, 0.0)]
        return da, da, {"h": zero}

    def product(self, rows: list[IRValue], unit: IRValue, panel: IRPointer, dq: BroadcastRows) -> None:
        """The gradient of h, of some samples by some units, += dq U'."""
        code, lanes, tile = self.code, self.lanes, self.plan.tile
        across = range(0, tile.columns, lanes)
        addresses, targets = [dq.at(row) for row in rows], [self.grads["h"].at(row).at(unit) for row in rows]
        masks = [self.mask(unit + u) for u in across]
        sums = broadcastFma(
            code,
            lanes,
            self.units * self.cell.gates,
            len(rows),
            lambda k, r: addresses[r].load(k),
            lambda k: [panel.load(k * tile.columns + u, lanes) for u in across],
            [[code.constant(0.0, IRType(self.plan.real, lanes))] * len(masks)] * len(rows),
        )
        before = [
            [address.load(u, lanes, mask) for u, mask in zip(across, masks)] for address in targets
        ]  # all: a row may repeat
        for address, olds, values in zip(targets, before, sums):
            for u, mask, old, value in zip(across, masks, olds, values):
                address.store(u, old + value, mask)
