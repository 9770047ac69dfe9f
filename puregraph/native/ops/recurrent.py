"""Recurrent: the twins of `kernels.recurrent` in native code: a task runs some samples through all moments.

What comes from outside is read as the numbers x of each moment, or as their sums, which a product has made for all
moments where there are too few samples to read W at every moment; the gradients of weights are made after, in another
product. Weights are packed, so that the sums read them in one line; a tile of them holds all gates of the same units.
Samples do not meet: how they are grouped changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.native.gemm.broadcastfma import BroadcastRows, BroadcastTile, broadcastFma, selectPointer, tileFor
from puregraph.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.native.llvm.irbuilder import IRBuilder
from puregraph.native.llvm.kernelcall import KernelCall
from puregraph.native.llvm.registertranspose import transposed
from puregraph.native.math.rnnactivations import Ratio, sigmoid, tanh


class SequenceOperand(NamedTuple):
    """Numbers of every sample and moment: the strides of both; what belongs together lies side by side."""

    what: Any
    strides: tuple[int, int]


class RecurrentSizes(NamedTuple):
    """Samples, moments, units: the numbers in a state, and inputs: those in x; 0 where the sums of x are given."""

    samples: int
    moments: int
    units: int
    inputs: int = 0


class NativeCell(NamedTuple):
    """What a cell is: its sums for each unit, its states, the numbers it keeps, and whether dp and dq differ."""

    kind: str
    gates: int
    states: int
    kept: int
    parted: bool = False


CELLS = {
    "tanh": NativeCell("tanh", 1, 1, 0),
    "relu": NativeCell("relu", 1, 1, 0),
    "lstm": NativeCell("lstm", 4, 2, 4),
    "gru": NativeCell("gru", 3, 1, 4, True),
}
BACK = 2  # vectors in a tile of the product back
MANY = 16  # samples that make it worth while to read W at every moment
LARGE = 1 << 19  # numbers of W, with more of which it is not
TILES = 4  # whose sums wait for each other


def readsInputs(kind: str, sizes: RecurrentSizes) -> bool:
    """Whether x itself is better given than its sums."""
    return sizes.samples >= MANY and 0 < sizes.inputs * sizes.units * CELLS[kind].gates <= LARGE


def packedSize(kind: str, units: int, rows: int | None = None) -> int:
    """How many numbers packed weights are, with so many rows for `run`, or for `back`."""
    cell = CELLS[kind]
    if rows is None:
        back = tileFor(BACK).columns
        return cell.gates * units * -(-units // back) * back
    tile = forwardTile(cell)
    width = perGate(cell, tile) * tile.lanes
    return rows * cell.gates * -(-units // width) * width


def pack(kind: str, weights: Any, stride: int, packed: Any, rows: int, units: int) -> list[KernelCall]:
    """Weights (rows, gates units), with a stride of rows, as `run` takes them."""
    cell = CELLS[kind]
    plan = RecurrentSpec(cell, forwardTile(cell))
    slots = {"U": weights, "uStride": stride, "packed": packed, "rows": rows, "units": units}
    key = f"{kind} {plan.tile}"
    return [KernelCall(f"pack {kind} {rows}x{units}", key, plan.pack, slots, -(-units // plan.width))]


def forwardTile(cell: NativeCell) -> BroadcastTile:
    """The tile of states that is computed at a time, smaller for cells with more gates."""
    return tileFor({1: 2, 3: 3, 4: 4}[cell.gates])


def fitted(tile: BroadcastTile, samples: int) -> BroadcastTile:
    """A tile of as many rows, or fewer, of which the least is in vain."""

    def cost(rows: int) -> int:
        return -(-samples // rows) * (rows * tile.vectors + rows + tile.vectors)

    return tile._replace(rows=min(range(tile.rows, 0, -1), key=cost))


def perGate(cell: NativeCell, tile: BroadcastTile) -> int:
    """Vectors of a tile that belong to one gate."""
    return tile.vectors // cell.gates


def run(
    kind: str,
    x: SequenceOperand,
    W: Any,
    U: Any,
    first: list[tuple[Any, int]],
    states: list[SequenceOperand],
    kept: SequenceOperand | None,
    sizes: RecurrentSizes,
    groups: int,
    b: Any = None,
    d: Any = None,
    on: SequenceOperand | None = None,
    reverse: bool = False,
    isFresh: bool = False,
) -> list[KernelCall]:
    """The states after every moment, and what is kept, as `forward` of the reference.

    `kind` is "tanh", "relu", "lstm" or "gru"; `W` and `U` are packed; `first` are the states before all moments with
    the stride of their samples (0: the same for all), `states` where those after them go, at a stride of 0 where only
    the last ones are wanted of a state other than h; `on` are bools, kind "i8"; `groups` is how many tasks the samples
    are to be split into; `isFresh` says that the first h is 0. Where there are no `inputs`, x are the sums x W, and W
    is nothing.
    """
    cell = CELLS[kind]
    slots = shared(sizes, groups, U, on) | tracks("x", x) | {"begin": 0 if isFresh else sizes.units}
    options = RecurrentOptions(
        reverse, on is not None, sizes.inputs > 0, b is not None, d is not None, kept is not None
    )
    plan = RecurrentSpec(cell, fitted(forwardTile(cell), slots["group"]), options)
    if sizes.inputs:
        slots |= {"W": W, "inputs": sizes.inputs}
    slots |= {name: what for name, what in (("b", b), ("d", d)) if what is not None}
    for name, (what, stride), track in zip("hc", first, states):
        slots |= {name + "First": what, name + "FirstSample": stride} | tracks(name, track)
    if kept is not None:
        slots |= tracks("kept", kept)
    name = f"{kind} {sizes.samples}x{sizes.moments}x{sizes.units}"
    return [KernelCall(name, repr(plan), plan.forward, slots, slots.pop("groups"))]


def back(
    kind: str,
    U: Any,
    uStride: int,
    packed: Any,
    first: list[tuple[Any, int]],
    states: list[SequenceOperand],
    kept: SequenceOperand | None,
    gy: SequenceOperand,
    dp: SequenceOperand,
    dq: SequenceOperand | None,
    grads: list[Any],
    sizes: RecurrentSizes,
    groups: int,
    on: SequenceOperand | None = None,
    reverse: bool = False,
) -> list[KernelCall]:
    """dp and, for "gru", dq of every moment, as `backward` of the reference; arguments as of `run`.

    `grads` (samples, units), one after another, hold the gradients of the last states, and then those of the first.
    """
    cell = CELLS[kind]
    slots = shared(sizes, groups, packed, on) | tracks("gy", gy) | tracks("dp", dp)
    plan = RecurrentSpec(
        cell, fitted(tileFor(BACK), slots["group"]), RecurrentOptions(reverse, on is not None, keeps=kept is not None)
    )
    for name, (what, stride), track, grad in zip("hc", first, states, grads):
        slots |= {name + "First": what, name + "FirstSample": stride, f"d{name}": grad} | tracks(name, track)
    if kept is not None:
        slots |= tracks("kept", kept)
    if cell.parted and dq is not None:
        slots |= tracks("dq", dq)
    pack = {"U": U, "uStride": uStride, "packed": packed, "units": sizes.units}
    name = f"{kind}Back {sizes.samples}x{sizes.moments}x{sizes.units}"
    return [
        KernelCall(f"pack {name}", repr(plan), plan.packBack, pack, -(-sizes.units // plan.tile.columns)),
        KernelCall(name, repr(plan), plan.backward, slots, slots.pop("groups")),
    ]


def shared(sizes: RecurrentSizes, groups: int, packed: Any, on: SequenceOperand | None) -> dict[str, Any]:
    """Slots of both directions; `groups` is how many tasks there are in the end."""
    group = -(-sizes.samples // max(1, min(groups, sizes.samples)))
    slots = {"samples": sizes.samples, "moments": sizes.moments, "units": sizes.units, "group": group, "packed": packed}
    return slots | ({} if on is None else tracks("on", on)) | {"groups": -(-sizes.samples // group)}


def tracks(name: str, track: SequenceOperand) -> dict[str, Any]:
    """The arguments of a kernel that say where a track is, and its strides."""
    return {name: track.what, name + "Sample": track.strides[0], name + "Moment": track.strides[1]}


class RecurrentOptions(NamedTuple):
    """What there is, and what is wanted."""

    reverse: bool = False
    lengths: bool = False
    inputs: bool = False
    b: bool = False
    d: bool = False
    keeps: bool = False


class RecurrentSpec(NamedTuple):
    """What the code of a kernel depends on."""

    cell: NativeCell
    tile: BroadcastTile
    options: RecurrentOptions = RecurrentOptions()

    @property
    def width(self) -> int:
        """Units of a tile."""
        return perGate(self.cell, self.tile) * self.tile.lanes

    def pack(self, code: IRBuilder) -> None:
        """packed[block, k, gate, unit] = U[k, gate units + block width + unit], 0 where there are no more units."""
        lanes, gates, width = self.tile.lanes, self.cell.gates, self.width
        U, stride, packed = code.pointer("U", "f32"), code.integer("uStride"), code.pointer("packed", "f32")
        rows, units = code.integer("rows"), code.integer("units")
        start = code.task * width
        to = packed.at(code.task * rows * (gates * width))
        with code.loop(0, rows, unroll=1) as k:
            for gate in range(gates):
                for u in range(0, width, lanes):
                    taken = U.load(k * stride + units * gate + start + u, lanes, code.mask(units - start - u, lanes))
                    to.store((k * gates + gate) * width + u, taken)

    def packBack(self, code: IRBuilder) -> None:
        """packed[block, k, unit] = U[block width + unit, k], 0 where there are no more units."""
        lanes, width = self.tile.lanes, self.tile.columns
        U, stride, packed = code.pointer("U", "f32"), code.integer("uStride"), code.pointer("packed", "f32")
        units = code.integer("units")
        start, count = code.task * width, units * self.cell.gates
        to = packed.at(code.task * count * width)
        with code.loop(0, width, lanes, unroll=1) as u, code.loop(0, count, lanes, unroll=1) as k:
            mask = code.mask(count - k, lanes)
            rows = [code.min(start + u + i, units - 1) for i in range(lanes)]
            taken = [U.load(row * stride + k, lanes, mask) for row in rows]
            live = code.mask(units - start - u, lanes)
            for i, column in enumerate(transposed(code, taken)):
                with code.when(k + i < count):
                    to.store((k + i) * width + u, code.select(live, column, 0.0))

    def forward(self, code: IRBuilder) -> None:
        RecurrentForward(code, self).write()

    def backward(self, code: IRBuilder) -> None:
        RecurrentBackward(code, self).write()


class StateRow(NamedTuple):
    """The numbers of every sample at one moment and the one before, of some track."""

    place: IRPointer
    sample: IRValue
    moment: IRValue

    def at(self, sample: IRValue, moment: IRValue) -> IRPointer:
        return self.place.at(sample * self.sample + moment * self.moment)


class RecurrentWriter:
    """What both directions have in common."""

    def __init__(self, code: IRBuilder, plan: RecurrentSpec):
        self.code, self.plan, self.cell, self.lanes = code, plan, plan.cell, plan.tile.lanes
        self.samples, self.moments, self.units = (code.integer(n) for n in ("samples", "moments", "units"))
        self.group, self.packed = code.integer("group"), code.pointer("packed", "f32")
        self.start = code.task * self.group
        self.live = code.min(self.group, self.samples - self.start)
        self.on = self.line("on", "i8") if plan.options.lengths else None
        self.names = "hc"[: plan.cell.states]
        self.first = {name: self.firstLine(name) for name in self.names}
        self.states = {name: self.line(name) for name in self.names}
        self.kept = self.line("kept") if plan.options.keeps else None

    def line(self, name: str, kind: str = "f32") -> StateRow:
        place = self.code.pointer(name, kind)
        return StateRow(place, self.code.integer(name + "Sample"), self.code.integer(name + "Moment"))

    def firstLine(self, name: str) -> tuple[IRPointer, IRValue]:
        return self.code.pointer(name + "First", "f32"), self.code.integer(name + "FirstSample")

    def moment(self, k: IRValue) -> IRValue:
        """The moment that is visited as the k-th, forward."""
        return self.moments - 1 - k if self.plan.options.reverse else k

    def before(self, name: str, k: IRValue) -> BroadcastRows:
        """A state of the samples of this task before the k-th moment that is visited."""
        code, line, (place, stride) = self.code, self.states[name], self.first[name]
        there = line.place.at(self.start * line.sample + self.moment(k - 1) * line.moment)
        isFirst = k == 0
        return BroadcastRows(
            selectPointer(code, isFirst, place.at(self.start * stride), there),
            code.select(isFirst, stride, line.sample),
        )

    def rows(self, line: StateRow, moment: IRValue) -> BroadcastRows:
        return BroadcastRows(line.place.at(self.start * line.sample + moment * line.moment), line.sample)

    def indices(self, row: IRValue, count: int) -> list[IRValue]:
        """The samples of a tile; the last one repeats, which does the same once more."""
        return [self.code.min(row + r, self.live - 1) for r in range(count)]

    def isOn(self, sample: IRValue, moment: IRValue) -> IRValue:
        return self.on.at(self.start + sample, moment).load() != 0 if self.on is not None else self.code.i64(1) == 1

    def mask(self, unit: IRValue) -> IRValue:
        return self.code.mask(self.units - unit, self.lanes)


class RecurrentForward(RecurrentWriter):
    """The kernel that goes through the moments and computes the states of each from those before.

    The sums of some tiles wait in scratch memory. Then cells go on in steps that are short chains of operations, each
    for many samples, so that chains run side by side.
    """

    def write(self) -> None:
        code, tile, width, options = self.code, self.plan.tile, self.plan.width, self.plan.options
        self.x, begin = self.line("x"), code.integer("begin")
        self.W, self.inputs = (code.pointer("W", "f32"), code.integer("inputs")) if options.inputs else (None, None)
        self.b = code.pointer("b", "f32") if options.b else None
        self.d = code.pointer("d", "f32") if options.d else None
        self.block = TILES * tile.rows
        self.waiting = code.scratch("f32", self.block * self.parts * width)
        with code.loop(0, self.moments, unroll=1) as k:
            moment = self.moment(k)
            old = {name: self.before(name, k) for name in self.names}
            new = {name: self.rows(line, moment) for name, line in self.states.items()}
            x = self.rows(self.x, moment)
            kept = None if self.kept is None else self.rows(self.kept, moment)
            with code.loop(0, self.units, width, unroll=1) as unit:
                with code.loop(0, self.live, self.block, unroll=1) as first:
                    last = code.min(first + self.block, self.live)
                    with code.loop(first, last, tile.rows, unroll=1) as row:
                        count = code.select(k == 0, begin, self.units)
                        self.tile(self.indices(row, tile.rows), row - first, unit, x, old["h"], count, kept)
                    for step in self.steps:
                        with code.loop(first, last, unroll=1) as row:
                            given = None if self.W is not None else x
                            for u in range(0, width, tile.lanes):
                                step(UnitVector(self, row, row - first, unit + u, moment, u, given, old, new, kept))

    @property
    def parts(self) -> int:
        """Sums of each unit."""
        return self.cell.gates + (self.cell.kind == "gru")

    def isApart(self, gate: int) -> bool:
        """Whether a gate needs what comes from outside and what U adds to it, not only both: the last one of a GRU."""
        return self.cell.kind == "gru" and gate == self.cell.gates - 1

    def tile(
        self,
        rows: list[IRValue],
        at: IRValue,
        unit: IRValue,
        x: BroadcastRows,
        h: BroadcastRows,
        count: IRValue,
        kept: BroadcastRows | None,
    ) -> None:
        """The sums of all gates for some samples by some units, over `count` numbers of h."""
        code, gates, width, lanes = self.code, range(self.cell.gates), self.plan.width, self.lanes
        far = [each for each in (kept, x if self.W is None else None) if each is not None]
        for place in (each.at(row) for each in far for row in rows):
            for g in gates:
                place.prefetch(self.units * g + unit)
        zeros = [code.constant(0.0, IRType("f32", lanes))] * (width // lanes)
        p = [[zeros if self.b is None else self.read(self.b, g, unit) for g in gates]] * len(rows)
        if self.W is not None:
            p = self.times(rows, x, self.W, self.inputs, self.inputs, unit, p)
        outer = zeros if self.d is None else self.read(self.d, 0, unit)
        starts = [[outer if self.isApart(g) else zeros for g in gates]] * len(rows)
        q = self.times(rows, h, self.packed, self.units, count, unit, starts)
        for r, (row, more) in enumerate(zip(q, p)):
            to = self.waiting.at((at + r) * (self.parts * width))
            both = [x if self.isApart(g) else [a + b for a, b in zip(x, y)] for g, x, y in zip(gates, row, more)]
            for i, vector in enumerate(v for gate in (both + more[-1:])[: self.parts] for v in gate):
                to.store(i * lanes, vector)

    def read(self, start: IRPointer, gate: int, unit: IRValue) -> list[IRValue]:
        """The vectors of a gate, for the units of a tile."""
        places = [unit + u for u in range(0, self.plan.width, self.lanes)]
        return [start.load(self.units * gate + place, self.lanes, self.mask(place)) for place in places]

    def times(
        self,
        rows: list[IRValue],
        x: BroadcastRows,
        weights: IRPointer,
        high: Any,
        count: Any,
        unit: IRValue,
        starts: list[list[list[IRValue]]],
    ) -> list[list[list[IRValue]]]:
        """[row][gate][vector] of starts + x times packed weights of that height, over `count` numbers of x."""
        lanes, width, gates = self.lanes, self.plan.width, self.cell.gates
        panel, places = weights.at(unit * (high * gates)), [x.at(row) for row in rows]
        across, each = range(0, gates * width, lanes), width // lanes
        found = broadcastFma(
            self.code,
            lanes,
            count,
            len(rows),
            lambda k, r: places[r].load(k),
            lambda k: [panel.load(k * (gates * width) + v, lanes) for v in across],
            [[vector for gate in row for vector in gate] for row in starts],
        )
        return [[row[g * each : (g + 1) * each] for g in range(gates)] for row in found]

    @property
    def steps(self) -> list[Callable[[UnitVector], None]]:
        """What a cell does with its sums."""
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
        rest = 1.0 / (both * f.under)
        at.put("c", self.code.fma(at.before("c"), both, g.over * f.under) * rest)
        at.wait(3, o.under)
        if at.kept is not None:
            other = rest * f.under
            for gate, value in enumerate((other * g.under, both * rest, g.over * i.under * other)):
                at.keep(gate, value)

    def lstmOutput(self, at: UnitVector) -> None:
        """h = o tanh(c), with one division."""
        under, t = at.sum(3, isGiven=False), tanh(self.code, at.after("c"))
        rest = 1.0 / (under * t.under)
        at.put("h", t.over * rest)
        at.keep(3, t.under * rest)

    def gru(self, at: UnitVector) -> None:
        """h = z h + (1 - z) g, g = tanh(p + r e)."""
        r, z, e = quotient(sigmoid(self.code, at.sum(0))), sigmoid(self.code, at.sum(1)), at.sum(2, isGiven=False)
        t = tanh(self.code, self.code.fma(r, e, at.sum(3, 2)))
        rest = 1.0 / (z.under * t.under)
        z, g = t.under * rest, t.over * z.under * rest
        at.put("h", self.code.fma(z, at.before("h") - g, g))
        for gate, value in enumerate((r, z, g, e)):
            at.keep(gate, value)


class UnitVector:
    """A vector of units of one sample at one moment."""

    def __init__(
        self,
        forward: RecurrentForward,
        row: IRValue,
        at: IRValue,
        place: IRValue,
        moment: IRValue,
        offset: int,
        x: BroadcastRows | None,
        old: dict[str, BroadcastRows],
        new: dict[str, BroadcastRows],
        kept: BroadcastRows | None,
    ):
        self.forward, self.code, self.lanes = forward, forward.code, forward.lanes
        self.row, self.place, self.mask = row, place, forward.mask(place)
        self.width, self.offset = forward.plan.width, offset
        self.sums = forward.waiting.at(at * (forward.parts * self.width))
        self.isOn = None if forward.on is None else forward.isOn(row, moment)
        self.x, self.old, self.new, self.kept = x, old, new, kept

    def sum(self, part: int, gate: int | None = None, isGiven: bool = True) -> IRValue:
        """One of the sums, with what is given of it."""
        value = self.sums.load(part * self.width + self.offset, self.lanes)
        if self.x is None or not isGiven:
            return value
        return value + self.read(self.x, part if gate is None else gate)

    def wait(self, part: int, value: IRValue) -> None:
        """Leave a number for the next step in place of a sum."""
        self.sums.store(part * self.width + self.offset, value)

    def read(self, rows: BroadcastRows, gate: int = 0) -> IRValue:
        start = rows.at(self.row)
        return start.load(self.forward.units * gate + self.place, self.lanes, self.mask)

    def before(self, name: str) -> IRValue:
        """A state before this moment."""
        return self.read(self.old[name])

    def after(self, name: str) -> IRValue:
        """A state after it."""
        return self.read(self.new[name])

    def put(self, name: str, value: IRValue) -> None:
        """A state after this moment, which stays what it was where the moment does not count."""
        if self.isOn is not None:
            value = self.code.select(self.isOn, value, self.before(name))
        self.new[name].at(self.row).store(self.place, value, self.mask)

    def keep(self, gate: int, value: IRValue) -> None:
        if self.kept is not None:
            self.kept.at(self.row).store(self.forward.units * gate + self.place, value, self.mask)


def quotient(ratio: Ratio) -> IRValue:
    """The number that a ratio is."""
    return ratio.over / ratio.under


class RecurrentBackward(RecurrentWriter):
    """Each moment first the cells, then the product back: what reaches the state before is added to what passed by."""

    def write(self) -> None:
        code, tile = self.code, self.plan.tile
        self.gy, self.dp = self.line("gy"), self.line("dp")
        self.dq = self.line("dq") if self.cell.parted else self.dp
        grads = {name: code.pointer(f"d{name}", "f32") for name in self.names}
        self.grads = {
            name: BroadcastRows(place.at(self.start * self.units), self.units) for name, place in grads.items()
        }
        with code.loop(0, self.moments, unroll=1) as back:
            k = self.moments - 1 - back
            moment = self.moment(k)
            before = {name: self.before(name, k) for name in self.names}
            with code.loop(0, self.live, unroll=1) as row:
                self.cells(row, moment, before)
            dq = self.rows(self.dq, moment)
            with code.loop(0, self.units, tile.columns, unroll=1) as unit:
                panel = self.packed.at(unit * (self.units * self.cell.gates))
                with code.loop(0, self.live, tile.rows, unroll=1) as row:
                    self.product(self.indices(row, tile.rows), unit, panel, dq)

    def cells(self, row: IRValue, moment: IRValue, before: dict[str, BroadcastRows]) -> None:
        """dp and dq of a sample at a moment; its gradients become those that pass by."""
        code, lanes = self.code, self.lanes
        after = {name: self.rows(line, moment).at(row) for name, line in self.states.items()}
        kept = None if self.kept is None else self.rows(self.kept, moment).at(row)
        gy, dp, dq = (self.rows(line, moment).at(row) for line in (self.gy, self.dp, self.dq))
        isOn = None if self.on is None else self.isOn(row, moment)
        with code.loop(0, self.units, lanes, unroll=1) as unit:
            mask = self.mask(unit)

            def read(place: IRPointer, gate: int = 0, unit: IRValue = unit, mask: IRValue = mask) -> IRValue:
                return place.load(self.units * gate + unit, lanes, mask)

            grads = {name: read(rows.at(row)) for name, rows in self.grads.items()}
            grads["h"] = grads["h"] + read(gy)
            passing = None
            if isOn is not None:
                passing = {name: code.select(isOn, 0.0, g) for name, g in grads.items()}
                grads = {name: code.select(isOn, g, 0.0) for name, g in grads.items()}
            gates = [read(kept, g) for g in range(self.cell.kept)] if kept is not None else []
            old = {name: read(rows.at(row)) for name, rows in before.items()}
            inner, outer, rest = self.step(gates, old, lambda name: read(after[name]), grads)
            for g, value in enumerate(inner):
                dp.store(self.units * g + unit, value, mask)
                if self.cell.parted:
                    dq.store(self.units * g + unit, outer[g], mask)
            for name, value in rest.items():
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
        """dp, dq, and of the gradients of the states before what does not come through q."""
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
        places, own = [dq.at(row) for row in rows], [self.grads["h"].at(row).at(unit) for row in rows]
        masks = [self.mask(unit + u) for u in across]
        found = broadcastFma(
            code,
            lanes,
            self.units * self.cell.gates,
            len(rows),
            lambda k, r: places[r].load(k),
            lambda k: [panel.load(k * tile.columns + u, lanes) for u in across],
            [[code.constant(0.0, IRType("f32", lanes))] * len(masks)] * len(rows),
        )
        before = [
            [place.load(u, lanes, mask) for u, mask in zip(across, masks)] for place in own
        ]  # all: a row may repeat
        for place, olds, values in zip(own, before, found):
            for u, mask, old, value in zip(across, masks, olds, values):
                place.store(u, old + value, mask)
