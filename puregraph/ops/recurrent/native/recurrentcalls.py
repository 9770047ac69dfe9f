"""Recurrent cells in native code, see `recurrent.reference`: a task runs some samples through all time steps.

The inputs are x of each time step, or x W, computed by one GEMM for all time steps where there are too few samples to
read W at every step; the gradients of weights are computed afterwards, by another GEMM. Weights are packed, so that
they are read contiguously; a panel holds all gates of the same units. Samples are independent: grouping them into tasks
changes no result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.opensize import largest, numberOf, sized, smallest
from puregraph.ops.native.llvm.irbuilder import IRBuilder
from puregraph.ops.native.llvm.kernelcall import KernelCall
from puregraph.ops.native.llvm.registertranspose import transposed
from puregraph.ops.product.native.broadcastfma import BroadcastTile, tileFor
from puregraph.ops.recurrent.native.recurrentbackward import TILE_VECTORS, RecurrentBackward
from puregraph.ops.recurrent.native.recurrentforward import RecurrentForward
from puregraph.ops.recurrent.native.recurrentoperands import CELLS, NativeCell, RecurrentSizes, SequenceOperand

if TYPE_CHECKING:
    from puregraph.core.protocols import Strided


REREAD_SAMPLES = 16  # samples from which reading W at every time step pays
REREAD_ELEMENTS = 1 << 19  # elements of W above which it does not


def readsInputs(kind: str, sizes: RecurrentSizes) -> bool:
    """True if the kernel should read x rather than x W."""
    return sizes.samples >= REREAD_SAMPLES and 0 < sizes.inputs * sizes.units * CELLS[kind].gates <= REREAD_ELEMENTS


def packedSize(kind: str, units: int, rows: int | None = None, real: str = "f32") -> int:
    """The number of elements of packed weights: for `run` with `rows` rows, for `back` without."""
    cell = CELLS[kind]
    if rows is None:
        back = tileFor(TILE_VECTORS, real).columns
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
        return -(-numberOf(samples) // rows) * (rows * tile.vectors + rows + tile.vectors)

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
    name = sized("{} {}x{}x{}", kind, sizes.samples, sizes.timeSteps, sizes.units)
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
        fittedTile(tileFor(TILE_VECTORS, real), slots["group"]),
        RecurrentOptions(reverse, on is not None, saves=saved is not None),
    )
    for name, (what, stride), track, grad in zip("hc", first, states, grads):
        slots |= {name + "First": what, name + "FirstSample": stride, f"d{name}": grad} | sequenceSlots(name, track)
    if saved is not None:
        slots |= sequenceSlots("saved", saved)
    if cell.parted and dq is not None:
        slots |= sequenceSlots("dq", dq)
    pack = {"U": U, "uStride": uStride, "packed": packed, "units": sizes.units}
    name = sized("{}Back {}x{}x{}", kind, sizes.samples, sizes.timeSteps, sizes.units)
    return [
        KernelCall(
            f"pack {kind}Back {sizes.units}", repr(plan), plan.packBack, pack, -(-sizes.units // plan.tile.columns)
        ),
        KernelCall(name, repr(plan), plan.backward, slots, slots.pop("groups")),
    ]


def commonSlots(sizes: RecurrentSizes, groups: int, packed: Strided, on: SequenceOperand | None) -> dict[str, Any]:
    """Arguments of both directions; `groups` becomes the number of tasks."""
    group = -(-sizes.samples // largest(1, smallest(groups, sizes.samples)))
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
