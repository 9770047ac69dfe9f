"""Recurrent cells in native code, see `recurrent.reference`: a task runs some samples through all time steps.

The inputs are x of each time step, or x W, computed by one GEMM for all time steps where there are too few samples to
read W at every step; the gradients of weights are computed afterwards, by another GEMM. Weights are packed, so that
they are read contiguously; a panel holds all gates of the same units. Samples are independent: grouping them into tasks
changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.ops.native.llvm.instructions import IRPointer, IRType, IRValue
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.product.native.broadcastfma import BroadcastRows, BroadcastTile, broadcastFma, selectPointer, tileFor
from puregraph.ops.recurrent.activations import Ratio, sigmoid, tanh

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided


class SequenceOperand(NamedTuple):
    """A sequence: an array with the strides of samples and time steps; the units of a step are contiguous."""

    what: Any
    strides: tuple[int, int]


class RecurrentSizes(NamedTuple):
    """Samples, time steps, units of a state, and inputs: the elements of x; 0 where x W is given."""

    samples: int
    timeSteps: int
    units: int
    inputs: int = 0


class NativeCell(NamedTuple):
    """A kind of cell: its gates, its states, the values it saves for backward, and whether dp and dq differ."""

    kind: str
    gates: int
    states: int
    saved: int
    parted: bool = False


CELLS = {
    "tanh": NativeCell("tanh", 1, 1, 0),
    "relu": NativeCell("relu", 1, 1, 0),
    "lstm": NativeCell("lstm", 4, 2, 4),
    "gru": NativeCell("gru", 3, 1, 4, True),
}
BACK = 2  # vectors in a tile of the backward product
REREAD_SAMPLES = 16  # samples from which reading W at every time step pays
REREAD_ELEMENTS = 1 << 19  # elements of W above which it does not
TILES = 4  # tiles whose sums are stored before the cells are computed


def readsInputs(kind: str, sizes: RecurrentSizes) -> bool:
    """True if the kernel should read x rather than x W."""
    return sizes.samples >= REREAD_SAMPLES and 0 < sizes.inputs * sizes.units * CELLS[kind].gates <= REREAD_ELEMENTS


def packedSize(kind: str, units: int, rows: int | None = None, real: str = "f32") -> int:
    """The number of elements of packed weights: for `run` with `rows` rows, for `back` without."""
    cell = CELLS[kind]
    if rows is None:
        back = tileFor(BACK, real).columns
        return cell.gates * units * -(-units // back) * back
    tile = forwardTile(cell, real)
    width = perGate(cell, tile) * tile.lanes
    return rows * cell.gates * -(-units // width) * width


def pack(
    kind: str, weights: Strided, stride: int, packed: Strided, rows: int, units: int, real: str = "f32"
) -> list[KernelCall]:
    """Pack weights (rows, gates units), with a stride of rows, for `run`."""
    cell = CELLS[kind]
    plan = RecurrentSpec(cell, forwardTile(cell, real))
    slots = {"U": weights, "uStride": stride, "packed": packed, "rows": rows, "units": units}
    key = f"{kind} {plan.tile}"
    return [KernelCall(f"pack {kind} {rows}x{units}", key, plan.pack, slots, -(-units // plan.width))]


def forwardTile(cell: NativeCell, real: str) -> BroadcastTile:
    """The register tile of the forward pass, with fewer vectors a gate for cells with more gates."""
    return tileFor({1: 2, 3: 3, 4: 4}[cell.gates], real)


def fittedTile(tile: BroadcastTile, samples: int) -> BroadcastTile:
    """The tile, with the number of rows that takes the least time for these samples."""

    def cost(rows: int) -> int:
        return -(-samples // rows) * (rows * tile.vectors + rows + tile.vectors)

    return tile._replace(rows=min(range(tile.rows, 0, -1), key=cost))


def perGate(cell: NativeCell, tile: BroadcastTile) -> int:
    """Vectors of a tile that belong to one gate."""
    return tile.vectors // cell.gates


def run(
    kind: str,
    x: SequenceOperand,
    W: Strided,
    U: Strided,
    first: list[tuple[Any, int]],
    states: list[SequenceOperand],
    saved: SequenceOperand | None,
    sizes: RecurrentSizes,
    groups: int,
    b: Strided | None = None,
    d: Any = None,
    on: SequenceOperand | None = None,
    reverse: bool = False,
    isFresh: bool = False,
    real: str = "f32",
) -> list[KernelCall]:
    """The states after every time step, and the saved values, as `forward` of the reference.

    `kind` is "tanh", "relu", "lstm" or "gru"; `W` and `U` are packed; `first` are the initial
    states with the stride of their samples (0: the same for all), `states` those after each step, with stride 0 if
    only the last of a state other than h is required; `on` is a mask of bools, kind "i8"; `groups` is the number of
    tasks; `isFresh` says that the initial h is 0. Without `inputs`, x is x W, and W is None.
    """
    cell = CELLS[kind]
    slots = commonSlots(sizes, groups, U, on) | sequenceSlots("x", x) | {"begin": 0 if isFresh else sizes.units}
    options = RecurrentOptions(
        reverse, on is not None, sizes.inputs > 0, b is not None, d is not None, saved is not None
    )
    plan = RecurrentSpec(cell, fittedTile(forwardTile(cell, real), slots["group"]), options)
    if sizes.inputs:
        slots |= {"W": W, "inputs": sizes.inputs}
    slots |= {name: what for name, what in (("b", b), ("d", d)) if what is not None}
    for name, (what, stride), track in zip("hc", first, states):
        slots |= {name + "First": what, name + "FirstSample": stride} | sequenceSlots(name, track)
    if saved is not None:
        slots |= sequenceSlots("saved", saved)
    name = f"{kind} {sizes.samples}x{sizes.timeSteps}x{sizes.units}"
    return [KernelCall(name, repr(plan), plan.forward, slots, slots.pop("groups"))]


def back(
    kind: str,
    U: Strided,
    uStride: int,
    packed: Strided,
    first: list[tuple[Any, int]],
    states: list[SequenceOperand],
    saved: SequenceOperand | None,
    gy: SequenceOperand,
    dp: SequenceOperand,
    dq: SequenceOperand | None,
    grads: list[Any],
    sizes: RecurrentSizes,
    groups: int,
    on: SequenceOperand | None = None,
    reverse: bool = False,
    real: str = "f32",
) -> list[KernelCall]:
    """dp and, for "gru", dq of every time step, as `backward` of the reference; arguments as of `run`.

    `grads` (samples, units), one after another, hold the gradients of the last states, and then those of the first.
    """
    cell = CELLS[kind]
    slots = commonSlots(sizes, groups, packed, on) | sequenceSlots("gy", gy) | sequenceSlots("dp", dp)
    plan = RecurrentSpec(
        cell,
        fittedTile(tileFor(BACK, real), slots["group"]),
        RecurrentOptions(reverse, on is not None, saves=saved is not None),
    )
    for name, (what, stride), track, grad in zip("hc", first, states, grads):
        slots |= {name + "First": what, name + "FirstSample": stride, f"d{name}": grad} | sequenceSlots(name, track)
    if saved is not None:
        slots |= sequenceSlots("saved", saved)
    if cell.parted and dq is not None:
        slots |= sequenceSlots("dq", dq)
    pack = {"U": U, "uStride": uStride, "packed": packed, "units": sizes.units}
    name = f"{kind}Back {sizes.samples}x{sizes.timeSteps}x{sizes.units}"
    return [
        KernelCall(f"pack {name}", repr(plan), plan.packBack, pack, -(-sizes.units // plan.tile.columns)),
        KernelCall(name, repr(plan), plan.backward, slots, slots.pop("groups")),
    ]


def commonSlots(sizes: RecurrentSizes, groups: int, packed: Strided, on: SequenceOperand | None) -> dict[str, Any]:
    """Arguments of both directions; `groups` becomes the number of tasks."""
    group = -(-sizes.samples // max(1, min(groups, sizes.samples)))
    slots = {
        "samples": sizes.samples,
        "timeSteps": sizes.timeSteps,
        "units": sizes.units,
        "group": group,
        "packed": packed,
    }
    return slots | ({} if on is None else sequenceSlots("on", on)) | {"groups": -(-sizes.samples // group)}


def sequenceSlots(name: str, track: SequenceOperand) -> dict[str, Any]:
    """The arguments of a sequence: its array and its strides."""
    return {name: track.what, name + "Sample": track.strides[0], name + "TimeStep": track.strides[1]}


class RecurrentOptions(NamedTuple):
    """The inputs that are present, and the outputs that are required."""

    reverse: bool = False
    lengths: bool = False
    inputs: bool = False
    b: bool = False
    d: bool = False
    saves: bool = False


class RecurrentSpec(NamedTuple):
    """The parameters of a kernel's code."""

    cell: NativeCell
    tile: BroadcastTile
    options: RecurrentOptions = RecurrentOptions()

    @property
    def real(self) -> str:
        """The kind of all elements."""
        return self.tile.real

    @property
    def width(self) -> int:
        """Units of a tile."""
        return perGate(self.cell, self.tile) * self.tile.lanes

    def pack(self, code: IRBuilder) -> None:
        """packed[block, k, gate, unit] = U[k, gate units + block width + unit], 0 where there are no more units."""
        lanes, gates, width = self.tile.lanes, self.cell.gates, self.width
        U, stride, packed = code.pointer("U", self.real), code.integer("uStride"), code.pointer("packed", self.real)
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
        U, stride, packed = code.pointer("U", self.real), code.integer("uStride"), code.pointer("packed", self.real)
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


class RecurrentForward(RecurrentWriter):
    """The forward kernel: computes the states of each time step from the previous ones.

    The sums of some tiles are stored in scratch memory. Then the cells are computed in steps that are short chains of
    operations, each for many samples, so that independent chains overlap.
    """

    def write(self) -> None:
        code, tile, width, options = self.code, self.plan.tile, self.plan.width, self.plan.options
        self.x, begin = self.line("x"), code.integer("begin")
        self.W, self.inputs = (
            (code.pointer("W", self.plan.real), code.integer("inputs")) if options.inputs else (None, None)
        )
        self.b = code.pointer("b", self.plan.real) if options.b else None
        self.d = code.pointer("d", self.plan.real) if options.d else None
        self.block = TILES * tile.rows
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
        if self.W is not None:
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
        high: Any,
        count: IRValue | int,
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
        r, z, e = quotient(sigmoid(self.code, at.sum(0))), sigmoid(self.code, at.sum(1)), at.sum(2, isGiven=False)
        t = tanh(self.code, self.code.fma(r, e, at.sum(3, 2)))
        inverse = 1.0 / (z.under * t.under)
        z, g = t.under * inverse, t.over * z.under * inverse
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
