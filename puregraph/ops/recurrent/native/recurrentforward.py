"""RecurrentForward: all time steps of some samples, gate by gate."""

from __future__ import annotations

from collections.abc import Callable

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.product.native.broadcastfma import BroadcastRows, broadcastFma
from puregraph.ops.recurrent.activations import Ratio, sigmoid, tanh
from puregraph.ops.recurrent.native.recurrentwriter import RecurrentWriter

STORED_TILES = 4  # tiles whose sums are stored before the cells are computed


class RecurrentForward(RecurrentWriter):
    """The forward kernel: computes the states of each time step from the previous ones.

    The sums of some tiles are stored in scratch memory. Then the cells are computed in steps that are short chains of
    operations, each for many samples, so that independent chains overlap.
    """

    def write(self) -> None:
        code, tile, width, options = self.code, self.plan.tile, self.plan.width, self.plan.options
        self.x, begin = self.line("x"), code.integer("begin")
        self.W = code.pointer("W", self.plan.real) if options.inputs else None
        self.inputs = code.integer("inputs") if options.inputs else None
        self.b = code.pointer("b", self.plan.real) if options.b else None
        self.d = code.pointer("d", self.plan.real) if options.d else None
        self.block = STORED_TILES * tile.rows
        self.accumulators = code.scratch(self.plan.real, self.block * self.parts * width)
        with code.loop(0, self.timeSteps, unroll=1) as k:
            timeStep = self.timeStep(k)
            old = {name: self.before(name, k) for name in self.names}
            new = {name: self.rows(line, timeStep) for name, line in self.states.items()}
            x = self.rows(self.x, timeStep)
            saved = None if self.saved is None else self.rows(self.saved, timeStep)
            with code.loop(0, self.units, width, unroll=1) as unit:
                with code.loop(0, self.live, self.block, unroll=1) as first:
                    last = code.min(first + self.block, self.live)
                    with code.loop(first, last, tile.rows, unroll=1) as row:
                        count = code.select(k == 0, begin, self.units)
                        self.tile(self.indices(row, tile.rows), row - first, unit, x, old["h"], count, saved)
                    for step in self.steps:
                        with code.loop(first, last, unroll=1) as row:
                            added = None if self.W is not None else x
                            for u in range(0, width, tile.lanes):
                                step(UnitVector(self, row, row - first, unit + u, timeStep, u, added, old, new, saved))

    @property
    def parts(self) -> int:
        """Accumulators of each unit."""
        return self.cell.gates + (self.cell.kind == "gru")

    def isApart(self, gate: int) -> bool:
        """True if a gate needs x W and h U separately, not only their sum: the last gate of a GRU."""
        return self.cell.kind == "gru" and gate == self.cell.gates - 1

    def tile(
        self,
        rows: list[IRValue],
        at: IRValue,
        unit: IRValue,
        x: BroadcastRows,
        h: BroadcastRows,
        count: IRValue,
        saved: BroadcastRows | None,
    ) -> None:
        """The sums of all gates for some samples by some units, over `count` elements of h."""
        code, gates, width, lanes = self.code, range(self.cell.gates), self.plan.width, self.lanes
        prefetched = [source for source in (saved, x if self.W is None else None) if source is not None]
        for address in (source.at(row) for source in prefetched for row in rows):
            for g in gates:
                address.prefetch(self.units * g + unit)
        zeros = [code.constant(0.0, IRType(self.plan.real, lanes))] * (width // lanes)
        p = [[zeros if self.b is None else self.read(self.b, g, unit) for g in gates]] * len(rows)
        if self.W is not None and self.inputs is not None:
            p = self.times(rows, x, self.W, self.inputs, self.inputs, unit, p)
        outer = zeros if self.d is None else self.read(self.d, 0, unit)
        starts = [[outer if self.isApart(g) else zeros for g in gates]] * len(rows)
        q = self.times(rows, h, self.packed, self.units, count, unit, starts)
        for r, (row, more) in enumerate(zip(q, p)):
            to = self.accumulators.at((at + r) * (self.parts * width))
            both = [x if self.isApart(g) else [a + b for a, b in zip(x, y)] for g, x, y in zip(gates, row, more)]
            for i, vector in enumerate(v for gate in (both + more[-1:])[: self.parts] for v in gate):
                to.store(i * lanes, vector)

    def read(self, start: IRPointer, gate: int, unit: IRValue) -> list[IRValue]:
        """The vectors of a gate, for the units of a tile."""
        addresses = [unit + u for u in range(0, self.plan.width, self.lanes)]
        return [start.load(self.units * gate + address, self.lanes, self.mask(address)) for address in addresses]

    def times(
        self,
        rows: list[IRValue],
        x: BroadcastRows,
        weights: IRPointer,
        high: IRValue,
        count: IRValue,
        unit: IRValue,
        starts: list[list[list[IRValue]]],
    ) -> list[list[list[IRValue]]]:
        """[row][gate][vector] of starts + x times packed weights with `high` rows, over `count` elements of x."""
        lanes, width, gates = self.lanes, self.plan.width, self.cell.gates
        panel, addresses = weights.at(unit * (high * gates)), [x.at(row) for row in rows]
        across, vectorsPerGate = range(0, gates * width, lanes), width // lanes
        sums = broadcastFma(
            self.code,
            lanes,
            count,
            len(rows),
            lambda k, r: addresses[r].load(k),
            lambda k: [panel.load(k * (gates * width) + v, lanes) for v in across],
            [[vector for gate in row for vector in gate] for row in starts],
        )
        return [[row[g * vectorsPerGate : (g + 1) * vectorsPerGate] for g in range(gates)] for row in sums]

    @property
    def steps(self) -> list[Callable[[UnitVector], None]]:
        """The steps that compute a cell from its sums."""
        if self.cell.kind == "lstm":
            return [self.lstmState, self.lstmOutput]
        return [self.gru] if self.cell.kind == "gru" else [self.simple]

    def simple(self, at: UnitVector) -> None:
        """h = tanh(a) or max(a, 0)."""
        a = at.sum(0)
        at.put("h", quotient(tanh(self.code, a)) if self.cell.kind == "tanh" else self.code.select(a < 0.0, 0.0, a))

    def lstmState(self, at: UnitVector) -> None:
        """c = f c + i g, with one division."""
        i, f, o = (sigmoid(self.code, at.sum(gate)) for gate in (0, 1, 3))
        g = tanh(self.code, at.sum(2))
        both = i.under * g.under
        inverse = 1.0 / (both * f.under)
        at.put("c", self.code.fma(at.before("c"), both, g.over * f.under) * inverse)
        at.defer(3, o.under)
        if at.saved is not None:
            other = inverse * f.under
            for gate, value in enumerate((other * g.under, both * inverse, g.over * i.under * other)):
                at.save(gate, value)

    def lstmOutput(self, at: UnitVector) -> None:
        """h = o tanh(c), with one division."""
        under, t = at.sum(3, isGiven=False), tanh(self.code, at.after("c"))
        inverse = 1.0 / (under * t.under)
        at.put("h", t.over * inverse)
        at.save(3, t.under * inverse)

    def gru(self, at: UnitVector) -> None:
        """h = z h + (1 - z) g, g = tanh(p + r e)."""
        r, update, e = quotient(sigmoid(self.code, at.sum(0))), sigmoid(self.code, at.sum(1)), at.sum(2, isGiven=False)
        t = tanh(self.code, self.code.fma(r, e, at.sum(3, 2)))
        inverse = 1.0 / (update.under * t.under)
        z, g = t.under * inverse, t.over * update.under * inverse
        at.put("h", self.code.fma(z, at.before("h") - g, g))
        for gate, value in enumerate((r, z, g, e)):
            at.save(gate, value)


class UnitVector:
    """A vector of units of one sample at one time step."""

    def __init__(
        self,
        forward: RecurrentForward,
        row: IRValue,
        at: IRValue,
        address: IRValue,
        timeStep: IRValue,
        offset: int,
        x: BroadcastRows | None,
        old: dict[str, BroadcastRows],
        new: dict[str, BroadcastRows],
        saved: BroadcastRows | None,
    ):
        self.forward, self.code, self.lanes = forward, forward.code, forward.lanes
        self.row, self.address, self.mask = row, address, forward.mask(address)
        self.width, self.offset = forward.plan.width, offset
        self.sums = forward.accumulators.at(at * (forward.parts * self.width))
        self.isOn = None if forward.on is None else forward.isOn(row, timeStep)
        self.x, self.old, self.new, self.saved = x, old, new, saved

    def sum(self, part: int, gate: int | None = None, isGiven: bool = True) -> IRValue:
        """A sum of the gates, plus x W if that is an input."""
        value = self.sums.load(part * self.width + self.offset, self.lanes)
        if self.x is None or not isGiven:
            return value
        return value + self.read(self.x, part if gate is None else gate)

    def defer(self, part: int, value: IRValue) -> None:
        """Store a value for the next step instead of a sum."""
        self.sums.store(part * self.width + self.offset, value)

    def read(self, rows: BroadcastRows, gate: int = 0) -> IRValue:
        start = rows.at(self.row)
        return start.load(self.forward.units * gate + self.address, self.lanes, self.mask)

    def before(self, name: str) -> IRValue:
        """A state before this time step."""
        return self.read(self.old[name])

    def after(self, name: str) -> IRValue:
        """A state after it."""
        return self.read(self.new[name])

    def put(self, name: str, value: IRValue) -> None:
        """Store a state after this time step; where the step is masked, the state stays unchanged."""
        if self.isOn is not None:
            value = self.code.select(self.isOn, value, self.before(name))
        self.new[name].at(self.row).store(self.address, value, self.mask)

    def save(self, gate: int, value: IRValue) -> None:
        if self.saved is not None:
            self.saved.at(self.row).store(self.forward.units * gate + self.address, value, self.mask)


def quotient(ratio: Ratio) -> IRValue:
    """The value of a ratio."""
    return ratio.over / ratio.under
