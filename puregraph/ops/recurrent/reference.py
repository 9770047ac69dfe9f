"""Recurrent cells, run along time and backpropagated; plain functions, which numpy's protocols carry to any array.

Running a cell is a composite kernel: compiled as a whole, and traced through by everything else.

A cell is a pair of functions of one time step,

    step(p, weights, *states) -> (states after it, values kept for the gradient)
    back(U, before, after, kept, grads) -> (dp, dq, gradients of the states before it)

where p = x W + b is the input's part, and q the part of U: p + h U is p + q.
`before` and `after` are the states around the time step; the first state is h. `kept` holds one array, or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from puregraph.core.tracer import arrayLike
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.nests.contiguous import copied
from puregraph.ops.cuda.runtime.launch import THREADS, TICKETS, Launch, Scratch, blocksFor, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats, defined, read, stored
from puregraph.ops.formula import Formula
from puregraph.ops.kernel import Halves, compositeKernel, kernel
from puregraph.ops.product.cuda.epilogue import EpilogueOperandText, EpilogueText
from puregraph.ops.product.cuda.implicitgemm import ContractionOperand, Space, contraction
from puregraph.ops.recurrent.cellsplit import cellSplit


@kernel
def alive(lengths, count):
    """A mask of the `count` time steps within each length.

    Shapes    lengths (n,) integers -> (n, count) of bools
    Raises    IndexError if a length is below 0 or above the count
    """
    wrong = lengths[(lengths < 0) | (lengths > count)]
    if wrong.size:
        raise IndexError(f"wanted lengths from 0 to {count}, the time steps of x, got {wrong[0]}")
    return arrayLike(lengths, np.arange(count)) < lengths[:, None]


@alive.shape
def alive(lengths, count):
    """(n, count) of bools."""
    return (lengths.shape[0], count), np.dtype(bool)


@alive.cuda
def alive(on, lengths, count):
    """A thread a time step."""
    if not on.size:
        return []
    axes = axesOf(on.shape, {"to": stridesOf(on), "fromLengths": (*stridesOf(lengths), 0), "timeStep": (0, 1)})
    text = defined({"I": stored(lengths.dtype)}) + axes.defined("AXES") + ALIVE
    slots = (("pointer", on), ("pointer", lengths), ("long", on.size), *axes.slots)
    return [Launch("alive", text, "alive", slots, gridFor(on.size), (THREADS, 1, 1))]


@alive.samples
def alive(lengths, count):
    """The mask of every sample, computed for all lengths as a single batch."""
    return alive(lengths.reshape(-1), count).reshape(*lengths.shape, count)


@alive.bounds
def alive(lengths, count):
    """Lengths are from 0 to the number of time steps."""
    return lengths, 0, count + 1


ALIVE = """
extern "C" __global__ void alive(bool* __restrict__ on, const I* __restrict__ lengths, int64 count, AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    on[to] = timeStep < (int64)lengths[fromLengths];
  }
}
"""


@compositeKernel
def forward(step, x, W, b, weights, states, on=None, reverse=False):
    """The states after every time step, then the values kept for the gradient; where `on` is False, states do not
    change.

    Shapes    x (n, t, i), W (i, width), b (width,) or None, states (n, hsize), on (n, t) -> each (n, t, ...)
    """
    p = np.matmul(x, W)
    p = p if b is None else p + b
    rows = []
    for k in timeSteps(p, reverse):
        after, kept = step(p[:, k], weights, *states)
        if on is not None:
            after = [np.where(on[:, k, None], new, old) for new, old in zip(after, states)]
        states = after
        rows.append((*after, *kept))
    return stacked(rows, reverse)


@forward.shape
def forward(step, x, W, b, weights, states, on=None, reverse=False):
    """Each state, and the values that an LSTM or a GRU keeps, at every time step."""
    n, t, _ = x.shape
    outputs = [((n, t, s.shape[1]), s.dtype) for s in states]
    return [*outputs, ((n, t, 4 * states[0].shape[1]), x.dtype)] if step in (lstmStep, gruStep) else outputs


@forward.cuda
def forward(outs, step, x, W, b, weights, states, on=None, reverse=False):
    """A product for the inputs; then one launch for all time steps where the weights of a block are few, else one
    for each. Before them the weights are transposed."""
    U, d = (*weights, None)[:2]
    arrays = [*outs, x, W, U, *states, *(v for v in (b, d) if v is not None)]
    if step not in CELLS or not areFloats(*arrays) or x.dtype != W.dtype:
        return NotImplemented
    if not outs[0].size:
        return []
    cell, (units, width), wide = CELLS[step], U.shape, widest(*arrays)
    p, transposed = Scratch((*x.shape[:2], width), wide), Scratch((width, units), U.dtype)
    changed, states = zip(*[cast(s, y.dtype) for s, y in zip(states, outs)])
    cells, kept = (*outs[1 : len(states)], None)[0], (*outs[len(states) :], None)[0]
    types = typesOf(wide, Y=outs[0], U=U, Cells=cells, Kept=kept, D=d)
    split = cellSplit(cell.gates, x.shape[:2], U, wide)
    text = cell.text(types, "rnnforward.h", split, HAS_D=int(d is not None), HAS_ON=int(on is not None))
    slots = (*arraySlots(outs[0], states[0]), ("pointer", p), ("pointer", transposed))
    slots += arraySlots(cells, states[1]) if len(states) > 1 else ()
    for v in (kept, d, on):
        slots += () if v is None else arraySlots(v)
    transposing = (("pointer", transposed), ("pointer", U), ("int", units), ("int", width), *strideSlots(U))
    grid = (blocksFor(width, 32), blocksFor(units, 32), 1)
    entering = inputProduct(p, x, W, b)
    if entering is NotImplemented:
        return NotImplemented
    return [
        *entering,
        *(launch for casts in changed for launch in casts),
        Launch("recurrent", text, "transpose", transposing, grid, (THREADS, 1, 1)),
        *cell.launches(text, "alongTime", slots, (*x.shape[:2], units), x.shape[1], split, reverse),
    ]


forward.declare(halves=Halves((1, 2, (4, 0)), None))


def inputProduct(p, x, W, b):
    """The launches of p = x W + b, for all time steps."""
    kind, (n, t, inputs), (row, timeStep, step) = x.dtype.name, x.shape, stridesOf(x)
    loads = {} if b is None else {"b": EpilogueOperandText(b.dtype.name, b, (0, 0), stridesOf(b))}
    lines = [] if b is None else [("p", Formula("sums + b"))]
    stores = {"sums" if b is None else "p": EpilogueOperandText(p.dtype.name, p, stridesOf(p)[:2], (1,))}
    left = ContractionOperand(kind, x, (row, timeStep), (step,))
    right = ContractionOperand(kind, W, stridesOf(W)[1:], stridesOf(W)[:1])
    space = Space((n, t), W.shape[1:], (inputs,))
    return contraction("recurrent", space, left, right, EpilogueText("sums", loads, lines, stores))


class Cell(NamedTuple):
    """The kind of a cell, and its number of sums per unit, as needed for launches."""

    kind: str
    gates: int

    def text(self, types, name, split, **names):
        """The text of its kernels."""
        kinds = {kind: int(kind == self.kind) for kind in ("LSTM", "GRU", "TANH", "RELU")}
        names = {"GATES": self.gates, "HELD": int(split.held > 0), **kinds, **names}
        barrier = read("lastblock.h") + read("gridbarrier.h") if split.held else ""
        return types + defined(names) + barrier + read("recurrent.h") + read(name)

    def launches(self, text, entry, slots, sizes, count, split, reverse):
        """The launches for `count` time steps."""
        slots += (("pointer", TICKETS),) if split.held else ()
        ranges = [(0, count)] if split.whole else [(k, k + 1) for k in range(count)]
        return [
            Launch(
                "recurrent",
                text,
                entry,
                (*slots, *(("int", n) for n in (*sizes, split.tiles, split.groups, *span, int(reverse)))),
                (split.grid, 1, 1),
                (split.threads, 1, 1),
                split.shared,
                split.held > 0,
            )
            for span in ranges
        ]


def widest(*arrays):
    """The dtype to compute in: float64 if any array has it."""
    return np.dtype(np.float64 if any(x.dtype.name == "float64" for x in arrays) else np.float32)


def typesOf(wide, **arrays):
    """C of the type to compute in, and of the arrays' types."""
    kinds = {f"Of{name}": stored(x.dtype) for name, x in arrays.items() if x is not None}
    return "".join(f"typedef {kind} {name};\n" for name, kind in {"W": stored(wide), **kinds}.items())


def cast(x, dtype):
    """The launches that cast an array to another dtype, and the result; none where it has that dtype."""
    if x.dtype == dtype:
        return [], x
    y = Scratch(x.shape, dtype)
    return copied(y, x), y


def strideSlots(x):
    """Slots for the strides of an array."""
    return tuple([("long", stride) for stride in stridesOf(x)])


def arraySlots(*arrays):
    """Slots for arrays, then for their strides."""
    strides = [slot for x in arrays for slot in strideSlots(x)]
    return (*(("pointer", x) for x in arrays), *strides)


def backward(back, U, before, after, kept, gy, grads, on=None, reverse=False):
    """dp and dq of every time step, and the gradients of the first states, from the gradients of all h and the last
    states.

    Shapes    before, after, kept, gy (n, t, ...), grads (n, hsize) -> (n, t, width) twice, and as grads
    """
    dp, *rest = throughTime(back, U, before, after, kept, gy, grads, on, reverse)
    dq = rest.pop(0) if len(rest) > len(grads) else dp
    return dp, dq, rest


@compositeKernel
def throughTime(back, U, before, after, kept, gy, grads, on=None, reverse=False):
    """dp of every time step, dq where it differs, and the gradients of the first states; see `backward`."""
    rows = []
    for k in timeSteps(after[0], not reverse):
        grads = [grads[0] + gy[:, k], *grads[1:]]
        if on is not None:
            passing = [np.where(on[:, k, None], 0, g) for g in grads]
            grads = [np.where(on[:, k, None], g, 0) for g in grads]
        around = ([track[:, k] for track in group] for group in (before, after, kept))
        dp, dq, grads = back(U, *around, grads)
        if on is not None:
            grads = [g + rest for g, rest in zip(grads, passing)]
        rows.append((dp,) if dq is dp else (dp, dq))
    return (*stacked(rows, not reverse), *grads)


@throughTime.shape
def throughTime(back, U, before, after, kept, gy, grads, on=None, reverse=False):
    """dp (n, t, width), dq likewise for a GRU, and the gradients of states."""
    n, t, _ = gy.shape
    sumsSpec = ((n, t, U.shape[1]), gy.dtype)
    return [sumsSpec] * (2 if back is gruBack else 1) + [(g.shape, g.dtype) for g in grads]


@throughTime.cuda
def throughTime(outs, back, U, before, after, kept, gy, grads, on=None, reverse=False):
    """Launched like `forward`; one more time step computes the gradients of the initial states."""
    arrays = [*outs, U, *before, *after, *kept, gy, *grads]
    if back not in CELLS or not areFloats(*arrays):
        return NotImplemented
    if not gy.size:
        return [] if not outs[-1].size else NotImplemented
    cell, wide, results = CELLS[back], widest(*arrays), outs[len(outs) - len(grads) :]
    ends = [y if y.dtype == wide else Scratch(y.shape, wide) for y in results]  # which accumulate at every time step
    of = {"Dp": outs[0], "U": U, "Gy": gy, "Last": grads[0], "Kept": (*kept, None)[0]}
    slots = arraySlots(outs[0], ends[0], U, gy, grads[0])
    if cell.kind == "LSTM":
        of |= {"LastCell": grads[1], "Cells": after[1], "CellsBefore": before[1]}
        slots += arraySlots(ends[1], grads[1], after[1], before[1])
    elif cell.kind == "GRU":
        of |= {"Dq": outs[1], "Before": before[0]}
        slots += arraySlots(outs[1], before[0])
    else:
        of |= {"Y": after[0]}
        slots += arraySlots(after[0])
    for x in (*kept, on):
        slots += () if x is None else arraySlots(x)
    n, t, units = gy.shape
    split = cellSplit(cell.gates, (n, t + 1), U, wide)
    text = cell.text(typesOf(wide, **of), "rnnbackward.h", split, HAS_ON=int(on is not None))
    launches = cell.launches(text, "backTime", slots, (n, t, units), t + 1, split, reverse)
    return [*launches, *(launch for y, end in zip(results, ends) if end is not y for launch in copied(y, end))]


throughTime.declare(halves=Halves((1,), None))


def timeSteps(x, reverse):
    """The indices along axis 1 in the order of traversal."""
    return range(x.shape[1])[:: -1 if reverse else 1]


def stacked(rows, reverse):
    """The results of all time steps, in the order of time."""
    return [np.stack(track, axis=1) for track in zip(*(rows[::-1] if reverse else rows))]


def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


def tanhStep(p, weights, h):
    """h' = tanh(p + h U)."""
    return [np.tanh(p + h @ weights[0])], ()


def tanhBack(U, before, after, kept, grads):
    """dp = dh' (1 - h'^2)."""
    dp = grads[0] * (1 - after[0] * after[0])
    return dp, dp, [dp @ U.T]


def reluStep(p, weights, h):
    """h' = max(p + h U, 0)."""
    return [np.maximum(p + h @ weights[0], 0)], ()


def reluBack(U, before, after, kept, grads):
    """dp = dh' where h' > 0."""
    dp = np.where(after[0] > 0, grads[0], 0)
    return dp, dp, [dp @ U.T]


def lstmStep(p, weights, h, c):
    """i, f, g, o from p + h U; c' = f c + i g; h' = o tanh(c')."""
    a, size = p + h @ weights[0], h.shape[1]
    both, g, o = sigmoid(a[:, : 2 * size]), np.tanh(a[:, 2 * size : 3 * size]), sigmoid(a[:, 3 * size :])
    c = both[:, size:] * c + both[:, :size] * g
    return [o * np.tanh(c), c], (np.concatenate([both, g, o], axis=1),)


def lstmBack(U, before, after, kept, grads):
    """The derivatives of `lstmStep`, in the order of its gates."""
    i, f, g, o = parts(kept[0], 4)
    (_, c), (dh, dc) = before, grads
    z = np.tanh(after[1])
    dc = dc + dh * o * (1 - z * z)
    da = [dc * g * i * (1 - i), dc * c * f * (1 - f), dc * i * (1 - g * g), dh * z * o * (1 - o)]
    dp = np.concatenate(da, axis=1)
    return dp, dp, [dp @ U.T, dc * f]


def gruStep(p, weights, h):
    """r, z from p + h U; g = tanh(p + r (h U + d)); h' = (1 - z) g + z h."""
    U, d = weights
    q, size = h @ U, h.shape[1]
    both, e = sigmoid(p[:, : 2 * size] + q[:, : 2 * size]), q[:, 2 * size :]
    if d is not None:
        e = e + d
    r, z = parts(both, 2)
    g = np.tanh(p[:, 2 * size :] + r * e)
    return [g + z * (h - g)], (np.concatenate([both, g, e], axis=1),)


def gruBack(U, before, after, kept, grads):
    """The derivatives of `gruStep`, in the order of its gates."""
    r, z, g, e = parts(kept[0], 4)
    (h,), (dh,) = before, grads
    dg = dh * (1 - z) * (1 - g * g)
    both = np.concatenate([dg * e * r * (1 - r), dh * (h - g) * z * (1 - z)], axis=1)
    dq = np.concatenate([both, dg * r], axis=1)
    return np.concatenate([both, dg], axis=1), dq, [dq @ U.T + dh * z]


def parts(x, count):
    """The last axis in equal parts."""
    size = x.shape[-1] // count
    return [x[..., i * size : (i + 1) * size] for i in range(count)]


CELLS = {
    step: cell
    for cell, *steps in (
        (Cell("TANH", 1), tanhStep, tanhBack),
        (Cell("RELU", 1), reluStep, reluBack),
        (Cell("LSTM", 4), lstmStep, lstmBack),
        (Cell("GRU", 3), gruStep, gruBack),
    )
    for step in steps
}
