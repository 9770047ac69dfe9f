"""Recurrent lowering: cells over all time steps of a sequence, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from puregraph.ops.formula import Formula
from puregraph.ops.formula.loopnest import LoopNest, Operand
from puregraph.ops.gather.lowering import isInputIndex
from puregraph.ops.ir.bounds import Bounds
from puregraph.ops.ir.elementlayout import (
    allOf,
    broadcastStrides,
    copies,
    elementStrides,
    isReal,
    isRowMajor,
    realOf,
)
from puregraph.ops.ir.value import Call, Offset, Value
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import EpilogueSpec, KernelCall
from puregraph.ops.native.nests.nestcode import nestCalls
from puregraph.ops.native.threads import pool
from puregraph.ops.operation import op
from puregraph.ops.product.native.gemm import BatchAxis, gemm
from puregraph.ops.recurrent.native import recurrentcalls as recurrent
from puregraph.ops.recurrent.native.recurrentoperands import CELLS, RecurrentSizes, SequenceOperand
from puregraph.ops.recurrent.reference import (
    alive,
    forward,
    gruBack,
    gruStep,
    lstmBack,
    lstmStep,
    reluBack,
    reluStep,
    tanhBack,
    tanhStep,
    throughTime,
)

if TYPE_CHECKING:
    from puregraph.compile.lower.workspace import LoweringWorkspace

STEPS = {tanhStep: "tanh", reluStep: "relu", lstmStep: "lstm", gruStep: "gru"}
BACKS = {tanhBack: "tanh", reluBack: "relu", lstmBack: "lstm", gruBack: "gru"}


def sequenceOperand(value: Value) -> SequenceOperand | None:
    """A Value as an operand with sample and time strides; None if the elements of a time step are not contiguous."""
    n, t, last = elementStrides(value)
    return SequenceOperand(value, (n, t)) if last == 1 or value.shape[2] == 1 else None


def rowsOf(value: Value) -> tuple[Any, int] | None:
    """A Value with a contiguous row for each sample, and its row stride; None if rows are not contiguous."""
    n, last = elementStrides(value)
    return (value, n) if last == 1 or value.shape[1] == 1 else None


def timeStepMask(on: Any) -> Any:
    """The mask of valid time steps as a native operand."""
    if on is None:
        return None
    n, t = elementStrides(on)
    return SequenceOperand(on, (n, t))


@op(alive).lower
def lowerAlive(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The mask of time steps before the end of each sequence."""
    lengths, count = call.arguments
    (y,) = call.outs
    if not isInputIndex(lengths):
        return None
    workspace.check(Bounds(lengths, 0, count + 1))
    loads, stores = Operand("i64", lengths, (*elementStrides(lengths), 0)), Operand("bool", y, elementStrides(y))
    return nestCalls(LoopNest(y.shape, {"x0": loads}, (("y0", Formula("axis1 < x0")),), {"y0": stores}), workspace)


def packed(kind: str, weight: Value, workspace: LoweringWorkspace) -> tuple[Any, list[KernelCall]]:
    """Weights packed for the time steps, and the kernel calls that pack them."""
    (rows, _), units = weight.shape, weight.shape[1] // CELLS[kind].gates
    stride, real = elementStrides(weight)[0], realOf(weight)
    size = recurrent.packedSize(kind, units, rows, real)
    return workspace.packed(weight, size, lambda to: recurrent.pack(kind, weight, stride, to, rows, units, real))


def inputProducts(x: Value, W: Value, workspace: LoweringWorkspace) -> tuple[SequenceOperand, list[KernelCall]]:
    """x W for all time steps, and its kernel calls."""
    (n, t, inputs), width = x.shape, W.shape[1]
    sums, (sample, step, last), lanes = (
        workspace(n * t * width, x.dtype),
        elementStrides(x),
        jit.lanes(x.dtype.itemsize),
    )
    real, scratch = realOf(x), partial(workspace, dtype=x.dtype)
    epilogue, around, batch = (
        EpilogueSpec(sums, width, (t * width,), real),
        (elementStrides(W)[0], 1),
        BatchAxis(n, sample, 0),
    )
    done = gemm(x, W, epilogue, t, width, inputs, (step, last), around, [batch], lanes, None, scratch, real)
    return SequenceOperand(sums, (t * width, width)), done


def stateOperand(state: SequenceOperand, workspace: LoweringWorkspace) -> SequenceOperand:
    """The operand for a state; one row serves all time steps if only the next step reads it."""
    if not workspace.leaves(state.what):
        return state
    n, _, units = state.what.shape
    return SequenceOperand(workspace(n * units, state.what.dtype), (units, 0))


def isZero(value: Value) -> bool:
    """True if all elements are known to be 0."""
    call = value.root.call
    return call is not None and call.kind.isFill and call.arguments[0] == 0


@op(forward).lower
def lowerForward(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The states of a cell at every time step, and the values that its gradient reads."""
    step, x, W, b, weights, states, *optional = call.arguments
    on, reverse = [*optional, None, False][:2] if len(optional) < 2 else optional
    U, d = [*weights, None][:2]
    if step not in STEPS or not isReal(x, W, U, *states, *[v for v in (b, d) if v is not None], *call.outs):
        return None
    first, weightRows = allOf(map(rowsOf, states)), allOf(map(rowsOf, (W, U)))
    sequences = allOf(map(sequenceOperand, (x, *call.outs)))
    if first is None or weightRows is None or sequences is None:
        return None
    if not all(v is None or isRowMajor(v) for v in (b, d)):
        return None
    kind, (source, h, *others) = STEPS[step], sequences[: len(states) + 1]
    kept = [y for y in sequences[len(states) + 1 :] if not workspace.leaves(y.what)]
    n, t, inputs = x.shape
    sizes = RecurrentSizes(n, t, states[0].shape[1], inputs)
    around, packU = packed(kind, U, workspace)
    if recurrent.readsInputs(kind, sizes):
        into, before = packed(kind, W, workspace)
    else:
        source, before = inputProducts(x, W, workspace)
        into, sizes = None, sizes._replace(inputs=0)
    works = recurrent.run(
        kind,
        source,
        into,
        around,
        first,
        [h, *(stateOperand(state, workspace) for state in others)],
        kept[0] if kept else None,
        sizes,
        pool.threads(),
        b,
        d,
        timeStepMask(on),
        bool(reverse),
        isZero(states[0]),
        realOf(x),
    )
    return [*before, *packU, *works]


@op(throughTime).lower
def lowerThroughTime(call: Call, workspace: LoweringWorkspace) -> list[KernelCall] | None:
    """The gradients of a cell, from the last time step to the first (backpropagation through time)."""
    back, U, before, after, kept, gy, grads, *optional = call.arguments
    on, reverse = [*optional, None, False][:2] if len(optional) < 2 else optional
    if back not in BACKS:
        return None
    kind, count = BACKS[back], len(after)
    made, ends = list(call.outs[:-count]), list(call.outs[-count:])
    tracks = allOf(map(sequenceOperand, (*after, *kept, gy, *made)))
    begins, around = allOf(map(sequenceOperand, before)), rowsOf(U)
    if tracks is None or begins is None or around is None:
        return None
    if not isReal(U, gy, *before, *after, *kept, *grads, *call.outs):
        return None
    if not all(map(isRowMajor, ends)):
        return None
    n, t, units = after[0].shape
    at = t - 1 if reverse else 0
    first = [(Offset(b, at * b.strides[1]), elementStrides(b)[0]) for b in before]
    starts = [
        w
        for g, e in zip(grads, ends)
        for w in copies(g, e, e.shape, broadcastStrides(g, e.shape), elementStrides(e), e.dtype.itemsize)
    ]
    packed = workspace(recurrent.packedSize(kind, units, None, realOf(U)), U.dtype)
    inner = tracks[: count + len(kept)]
    if kind == "gru":  # reads only the states before a step, which differ from the previous step's after a masked one
        shift = -before[0].strides[1] if reverse else before[0].strides[1]
        inner[0] = begins[0]._replace(what=Offset(before[0], shift))
    works = recurrent.back(
        kind,
        U,
        around[1],
        packed,
        first,
        inner[:count],
        inner[count] if kept else None,
        tracks[count + len(kept)],
        tracks[count + len(kept) + 1],
        tracks[-1] if len(made) > 1 else None,
        ends,
        RecurrentSizes(n, t, units),
        pool.threads(),
        timeStepMask(on),
        bool(reverse),
        realOf(U),
    )
    return [*starts, *works]
