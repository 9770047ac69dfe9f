"""Recurrent: the twins of `kernels.recurrent` in native code: a task runs some samples through all moments.

What comes from outside, p, is made before for all moments in one product, and the gradients of weights after, in
another; here is only what one moment needs of the one before. Weights are packed once a run, so that the products read
them in one line; a tile of them holds all gates of the same units, so that the cell is computed while its sums are in
registers. Samples do not meet: how they are grouped changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.native.code import Code, Pointer, Type, Value
from puregraph.native.powers import exp, tanh
from puregraph.native.sums import Rows, Tile, chosen, sums, tileHere
from puregraph.native.turn import turned
from puregraph.native.work import Work


class Track(NamedTuple):
    """Numbers of every sample and moment: the strides of both; what belongs together lies side by side."""

    what: Any
    strides: tuple[int, int]


class Sizes(NamedTuple):
    """Samples, moments, and units: the numbers in a state."""

    samples: int
    moments: int
    units: int


class Cell(NamedTuple):
    """What a cell is: its sums for each unit, its states, the numbers it keeps, and whether dp and dq differ."""

    kind: str
    gates: int
    states: int
    kept: int
    parted: bool = False


CELLS = {
    "tanh": Cell("tanh", 1, 1, 0),
    "relu": Cell("relu", 1, 1, 0),
    "lstm": Cell("lstm", 4, 2, 4),
    "gru": Cell("gru", 3, 1, 4, True),
}
BACK = 2  # vectors in a tile of the product back


def packedSize(kind: str, units: int) -> int:
    """How many numbers the packed weights are, either way."""
    cell, tile = CELLS[kind], forwardTile(CELLS[kind])
    width = perGate(cell, tile) * tile.lanes
    back = tileHere(BACK).columns
    return cell.gates * units * max(-(-units // width) * width, -(-units // back) * back)


def forwardTile(cell: Cell) -> Tile:
    """The tile of states that is computed at a time, smaller for cells with more gates."""
    return tileHere({1: 2, 3: 3, 4: 4}[cell.gates])


def fitted(tile: Tile, samples: int) -> Tile:
    """A tile of as many rows, or fewer, of which the least is in vain."""

    def cost(rows: int) -> int:
        return -(-samples // rows) * (rows * tile.vectors + rows + tile.vectors)

    return tile._replace(rows=min(range(tile.rows, 0, -1), key=cost))


def perGate(cell: Cell, tile: Tile) -> int:
    """Vectors of a tile that belong to one gate."""
    return tile.vectors // cell.gates


def run(
    kind: str,
    p: Track,
    U: Any,
    uStride: int,
    packed: Any,
    first: list[tuple[Any, int]],
    states: list[Track],
    kept: Track | None,
    sizes: Sizes,
    groups: int,
    d: Any = None,
    on: Track | None = None,
    reverse: bool = False,
) -> list[Work]:
    """The states after every moment, and what is kept, as `forward` of the reference.

    `kind` is "tanh", "relu", "lstm" or "gru"; `packed` is room for `packedSize` numbers; `first` are the states before
    all moments with the stride of their samples (0: the same for all); `on` are bools, kind "i8"; `groups` is how many
    tasks the samples are to be split into.
    """
    cell = CELLS[kind]
    slots = shared(sizes, groups, packed, on) | tracks("p", p)
    plan = Plan(cell, fitted(forwardTile(cell), slots["group"]), reverse, on is not None, d is not None)
    for name, (what, stride), track in zip("hc", first, states):
        slots |= {name + "First": what, name + "FirstSample": stride} | tracks(name, track)
    if kept is not None:
        slots |= tracks("kept", kept)
    if d is not None:
        slots["d"] = d
    width = plan.width
    pack = {"U": U, "uStride": uStride, "packed": packed, "units": sizes.units}
    name = f"{kind} {sizes.samples}x{sizes.moments}x{sizes.units}"
    return [
        Work(f"pack {name}", repr(plan), plan.pack, pack, -(-sizes.units // width)),
        Work(name, repr(plan), plan.forward, slots, slots.pop("groups")),
    ]


def back(
    kind: str,
    U: Any,
    uStride: int,
    packed: Any,
    first: list[tuple[Any, int]],
    states: list[Track],
    kept: Track | None,
    gy: Track,
    dp: Track,
    dq: Track | None,
    grads: list[Any],
    sizes: Sizes,
    groups: int,
    on: Track | None = None,
    reverse: bool = False,
) -> list[Work]:
    """dp and, for "gru", dq of every moment, as `backward` of the reference; arguments as of `run`.

    `grads` (samples, units), one after another, hold the gradients of the last states, and then those of the first.
    """
    cell = CELLS[kind]
    slots = shared(sizes, groups, packed, on) | tracks("gy", gy) | tracks("dp", dp)
    plan = Plan(cell, fitted(tileHere(BACK), slots["group"]), reverse, on is not None, False)
    for name, (what, stride), track, grad in zip("hc", first, states, grads):
        slots |= {name + "First": what, name + "FirstSample": stride, f"d{name}": grad} | tracks(name, track)
    if kept is not None:
        slots |= tracks("kept", kept)
    if cell.parted and dq is not None:
        slots |= tracks("dq", dq)
    pack = {"U": U, "uStride": uStride, "packed": packed, "units": sizes.units}
    name = f"{kind}Back {sizes.samples}x{sizes.moments}x{sizes.units}"
    return [
        Work(f"pack {name}", repr(plan), plan.packBack, pack, -(-sizes.units // plan.tile.columns)),
        Work(name, repr(plan), plan.backward, slots, slots.pop("groups")),
    ]


def shared(sizes: Sizes, groups: int, packed: Any, on: Track | None) -> dict[str, Any]:
    """Slots of both directions; `groups` is how many tasks there are in the end."""
    group = -(-sizes.samples // max(1, min(groups, sizes.samples)))
    slots = {"samples": sizes.samples, "moments": sizes.moments, "units": sizes.units, "group": group, "packed": packed}
    return slots | ({} if on is None else tracks("on", on)) | {"groups": -(-sizes.samples // group)}


def tracks(name: str, track: Track) -> dict[str, Any]:
    """The arguments of a kernel that say where a track is, and its strides."""
    return {name: track.what, name + "Sample": track.strides[0], name + "Moment": track.strides[1]}


class Plan(NamedTuple):
    """What the code of a kernel depends on."""

    cell: Cell
    tile: Tile
    reverse: bool
    lengths: bool
    d: bool

    @property
    def width(self) -> int:
        """Units of a tile."""
        return perGate(self.cell, self.tile) * self.tile.lanes

    def pack(self, code: Code) -> None:
        """packed[block, k, gate, unit] = U[k, gate units + block width + unit], 0 where there are no more units."""
        lanes, gates, width = self.tile.lanes, self.cell.gates, self.width
        U, stride, packed = code.pointer("U", "f32"), code.integer("uStride"), code.pointer("packed", "f32")
        units = code.integer("units")
        start = code.task * width
        to = packed.at(code.task * units * (gates * width))
        with code.loop(0, units, unroll=1) as k:
            for gate in range(gates):
                for u in range(0, width, lanes):
                    taken = U.load(k * stride + units * gate + start + u, lanes, code.mask(units - start - u, lanes))
                    to.store((k * gates + gate) * width + u, taken)

    def packBack(self, code: Code) -> None:
        """packed[block, k, unit] = U[block width + unit, k], 0 where there are no more units."""
        lanes, width = self.tile.lanes, self.tile.columns
        U, stride, packed = code.pointer("U", "f32"), code.integer("uStride"), code.pointer("packed", "f32")
        units = code.integer("units")
        start, count = code.task * width, units * self.cell.gates
        to = packed.at(code.task * count * width)
        with code.loop(0, width, lanes, unroll=1) as u, code.loop(0, count, lanes, unroll=1) as k:
            mask = code.mask(count - k, lanes)
            rows = [code.least(start + u + i, units - 1) for i in range(lanes)]
            taken = [U.load(row * stride + k, lanes, mask) for row in rows]
            live = code.mask(units - start - u, lanes)
            for i, column in enumerate(turned(code, taken)):
                with code.when(k + i < count):
                    to.store((k + i) * width + u, code.select(live, column, 0.0))

    def forward(self, code: Code) -> None:
        Forward(code, self).write()

    def backward(self, code: Code) -> None:
        Backward(code, self).write()


class Line(NamedTuple):
    """The numbers of every sample at one moment and the one before, of some track."""

    place: Pointer
    sample: Value
    moment: Value

    def at(self, sample: Value, moment: Value) -> Pointer:
        return self.place.at(sample * self.sample + moment * self.moment)


class Writer:
    """What both directions have in common."""

    def __init__(self, code: Code, plan: Plan):
        self.code, self.plan, self.cell, self.lanes = code, plan, plan.cell, plan.tile.lanes
        self.samples, self.moments, self.units = (code.integer(n) for n in ("samples", "moments", "units"))
        self.group, self.packed = code.integer("group"), code.pointer("packed", "f32")
        self.start = code.task * self.group
        self.live = code.least(self.group, self.samples - self.start)
        self.on = self.line("on", "i8") if plan.lengths else None
        self.names = "hc"[: plan.cell.states]
        self.first = {name: self.firstLine(name) for name in self.names}
        self.states = {name: self.line(name) for name in self.names}
        self.kept = self.line("kept") if plan.cell.kept else None

    def line(self, name: str, kind: str = "f32") -> Line:
        place = self.code.pointer(name, kind)
        return Line(place, self.code.integer(name + "Sample"), self.code.integer(name + "Moment"))

    def firstLine(self, name: str) -> tuple[Pointer, Value]:
        return self.code.pointer(name + "First", "f32"), self.code.integer(name + "FirstSample")

    def moment(self, k: Value) -> Value:
        """The moment that is visited as the k-th, forward."""
        return self.moments - 1 - k if self.plan.reverse else k

    def before(self, name: str, k: Value) -> Rows:
        """A state of the samples of this task before the k-th moment that is visited."""
        code, line, (place, stride) = self.code, self.states[name], self.first[name]
        there = line.place.at(self.start * line.sample + self.moment(k - 1) * line.moment)
        isFirst = k == 0
        return Rows(
            chosen(code, isFirst, place.at(self.start * stride), there), code.select(isFirst, stride, line.sample)
        )

    def rows(self, line: Line, moment: Value) -> Rows:
        return Rows(line.place.at(self.start * line.sample + moment * line.moment), line.sample)

    def indices(self, row: Value, count: int) -> list[Value]:
        """The samples of a tile; the last one repeats, which does the same once more."""
        return [self.code.least(row + r, self.live - 1) for r in range(count)]

    def isOn(self, sample: Value, moment: Value) -> Value:
        return self.on.at(self.start + sample, moment).load() != 0 if self.on is not None else self.code.whole(1) == 1

    def mask(self, unit: Value) -> Value:
        return self.code.mask(self.units - unit, self.lanes)

    def sigmoid(self, x: Value) -> Value:
        return 1.0 / (exp(self.code, -x) + 1.0)


class Forward(Writer):
    """The kernel that goes through the moments and computes the states of each from those before."""

    def write(self) -> None:
        code, tile, width = self.code, self.plan.tile, self.plan.width
        self.p = self.line("p")
        self.d = code.pointer("d", "f32") if self.plan.d else None
        with code.loop(0, self.moments, unroll=1) as k:
            moment = self.moment(k)
            old = {name: self.before(name, k) for name in self.names}
            new = {name: self.rows(line, moment) for name, line in self.states.items()}
            p = self.rows(self.p, moment)
            kept = None if self.kept is None else self.rows(self.kept, moment)
            with code.loop(0, self.units, width, unroll=1) as unit:
                panel = self.packed.at(unit * (self.units * self.cell.gates))
                with code.loop(0, self.live, tile.rows, unroll=1) as row:
                    self.tile(self.indices(row, tile.rows), unit, moment, panel, p, old, new, kept)

    def tile(
        self,
        rows: list[Value],
        unit: Value,
        moment: Value,
        panel: Pointer,
        p: Rows,
        old: dict[str, Rows],
        new: dict[str, Rows],
        kept: Rows | None,
    ) -> None:
        """Some samples by some units: the sums of all gates, then the cell."""
        code, lanes, gates, width = self.code, self.lanes, self.cell.gates, self.plan.width
        for row in rows:
            for g in range(gates):
                p.at(row).prefetch(self.units * g + unit)
                if kept is not None:
                    kept.at(row).prefetch(self.units * g + unit)
        h = [old["h"].at(row) for row in rows]
        zero = code.constant(0.0, Type("f32", lanes))
        across = range(0, gates * width, lanes)
        found = sums(
            code,
            lanes,
            self.units,
            len(rows),
            lambda k, r: h[r].load(k),
            lambda k: [panel.load(k * (gates * width) + x, lanes) for x in across],
            [[zero] * len(across) for _ in rows],
        )
        each = width // lanes
        for row, q in zip(rows, found):
            for u in range(each):
                place = unit + u * lanes
                mask = self.mask(place)
                outer = [p.at(row).load(self.units * g + place, lanes, mask) for g in range(gates)]
                before = {name: state.at(row).load(place, lanes, mask) for name, state in old.items()}
                after, keep = self.step(outer, [q[g * each + u] for g in range(gates)], before, place, mask)
                isOn = None if self.on is None else self.isOn(row, moment)
                for name, value in after.items():
                    if isOn is not None:
                        value = code.select(isOn, value, before[name])
                    new[name].at(row).store(place, value, mask)
                for g, value in enumerate(keep):
                    if kept is not None:
                        kept.at(row).store(self.units * g + place, value, mask)

    def step(
        self, p: list[Value], q: list[Value], before: dict[str, Value], place: Value, mask: Value
    ) -> tuple[dict[str, Value], list[Value]]:
        """The states after a moment, and what is kept."""
        code = self.code
        if self.cell.kind == "lstm":
            i, f, g, o = (x + y for x, y in zip(p, q))
            i, f, g, o = self.sigmoid(i), self.sigmoid(f), tanh(code, g), self.sigmoid(o)
            c = code.fma(f, before["c"], i * g)
            return {"h": o * tanh(code, c), "c": c}, [i, f, g, o]
        if self.cell.kind == "gru":
            r, z, e = self.sigmoid(p[0] + q[0]), self.sigmoid(p[1] + q[1]), q[2]
            if self.d is not None:
                e = e + self.d.load(place, self.lanes, mask)
            g = tanh(code, code.fma(r, e, p[2]))
            return {"h": code.fma(z, before["h"] - g, g)}, [r, z, g, e]
        h = p[0] + q[0]
        return {"h": tanh(code, h) if self.cell.kind == "tanh" else code.select(h < 0.0, 0.0, h)}, []


class Backward(Writer):
    """Each moment first the cells, then the product back: what reaches the state before is added to what passed by."""

    def write(self) -> None:
        code, tile = self.code, self.plan.tile
        self.gy, self.dp = self.line("gy"), self.line("dp")
        self.dq = self.line("dq") if self.cell.parted else self.dp
        grads = {name: code.pointer(f"d{name}", "f32") for name in self.names}
        self.grads = {name: Rows(place.at(self.start * self.units), self.units) for name, place in grads.items()}
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

    def cells(self, row: Value, moment: Value, before: dict[str, Rows]) -> None:
        """dp and dq of a sample at a moment; its gradients become those that pass by."""
        code, lanes = self.code, self.lanes
        after = {name: self.rows(line, moment).at(row) for name, line in self.states.items()}
        kept = None if self.kept is None else self.rows(self.kept, moment).at(row)
        gy, dp, dq = (self.rows(line, moment).at(row) for line in (self.gy, self.dp, self.dq))
        isOn = None if self.on is None else self.isOn(row, moment)
        with code.loop(0, self.units, lanes, unroll=1) as unit:
            mask = self.mask(unit)

            def read(place: Pointer, gate: int = 0, unit: Value = unit, mask: Value = mask) -> Value:
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
        gates: list[Value],
        before: dict[str, Value],
        after: Callable[[str], Value],
        grads: dict[str, Value],
    ) -> tuple[list[Value], list[Value], dict[str, Value]]:
        """dp, dq, and of the gradients of the states before what does not come through q."""
        code, dh = self.code, grads["h"]
        zero = code.constant(0.0, dh.type)
        if self.cell.kind == "lstm":
            i, f, g, o = gates
            t = tanh(code, after("c"))
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

    def product(self, rows: list[Value], unit: Value, panel: Pointer, dq: Rows) -> None:
        """The gradient of h, of some samples by some units, += dq U'."""
        code, lanes, tile = self.code, self.lanes, self.plan.tile
        across = range(0, tile.columns, lanes)
        places, own = [dq.at(row) for row in rows], [self.grads["h"].at(row).at(unit) for row in rows]
        masks = [self.mask(unit + u) for u in across]
        found = sums(
            code,
            lanes,
            self.units * self.cell.gates,
            len(rows),
            lambda k, r: places[r].load(k),
            lambda k: [panel.load(k * tile.columns + u, lanes) for u in across],
            [[place.load(u, lanes, mask) for u, mask in zip(across, masks)] for place in own],
        )
        for place, values in zip(own, found):
            for u, mask, value in zip(across, masks, values):
                place.store(u, value, mask)
