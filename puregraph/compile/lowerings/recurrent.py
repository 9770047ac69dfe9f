"""Recurrent cells: all moments of a sequence, forward and back."""

from __future__ import annotations

from typing import Any

from puregraph.compile.lower import At, lowers
from puregraph.compile.lowerings.lookup import isIndex, within
from puregraph.compile.lowerings.numbers import copies, isPlain, isSingle, spread, strided
from puregraph.compile.value import Call, Value
from puregraph.formula import Formula
from puregraph.kernels.recurrent import (
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
from puregraph.native import pool, recurrent
from puregraph.native.nest import works
from puregraph.native.recurrent import Track
from puregraph.native.work import Work
from puregraph.nest import Nest, Operand

STEPS = {tanhStep: "tanh", reluStep: "relu", lstmStep: "lstm", gruStep: "gru"}
BACKS = {tanhBack: "tanh", reluBack: "relu", lstmBack: "lstm", gruBack: "gru"}


def trackOf(value: Value) -> Track | None:
    """Numbers of every sample and moment, those of one moment side by side."""
    n, t, last = strided(value)
    return Track(value, (n, t)) if last == 1 or value.shape[2] == 1 else None


def rowsOf(value: Value) -> tuple[Any, int] | None:
    """Numbers of every sample, side by side, and how far the next sample's are."""
    n, last = strided(value)
    return (value, n) if last == 1 or value.shape[1] == 1 else None


def momentsOf(on: Any) -> Any:
    """Which moments count, as native code takes it."""
    return None if on is None else Track(on, tuple(strided(on)))


@lowers(alive)
def lowerAlive(call: Call, room: Any) -> list[Work] | None:
    """Whether a moment comes before the end."""
    lengths, count = call.arguments
    (y,) = call.outs
    if not isIndex(lengths):
        return None
    room.check(lengths, within(0, count + 1))
    loads, stores = Operand("i64", lengths, (*strided(lengths), 0)), Operand("bool", y, strided(y))
    return works(Nest(y.shape, {"x0": loads}, (("y0", Formula("axis1 < x0")),), {"y0": stores}), room)


@lowers(forward)
def lowerForward(call: Call, room: Any) -> list[Work] | None:
    """The states of a cell at every moment, with what its gradient reads."""
    step, p, weights, states, *rest = call.arguments
    on, reverse = [*rest, None, False][:2] if len(rest) < 2 else rest
    (U, *d), tracks = weights, [trackOf(v) for v in (p, *call.outs)]
    first, around = [rowsOf(s) for s in states], rowsOf(U)
    if step not in STEPS or not isSingle(p, U, *states, *[x for x in d if x is not None], *call.outs):
        return None
    if None in tracks or None in first or around is None or not all(x is None or isPlain(x) for x in d):
        return None
    kind, count = STEPS[step], len(states)
    sizes = recurrent.Sizes(p.shape[0], p.shape[1], states[0].shape[1])
    packed = room(recurrent.packedSize(kind, sizes.units))
    kept = tracks[1 + count] if len(tracks) > 1 + count else None
    return recurrent.run(
        kind,
        tracks[0],
        U,
        around[1],
        packed,
        first,
        tracks[1 : 1 + count],
        kept,
        sizes,
        pool.threads(),
        d[0] if d else None,
        momentsOf(on),
        bool(reverse),
    )


@lowers(throughTime)
def lowerThroughTime(call: Call, room: Any) -> list[Work] | None:
    """The gradients of a cell, moment by moment from the last one to the first."""
    back, U, before, after, kept, gy, grads, *rest = call.arguments
    on, reverse = [*rest, None, False][:2] if len(rest) < 2 else rest
    if back not in BACKS:
        return None
    kind, count = BACKS[back], len(after)
    made, ends = list(call.outs[:-count]), list(call.outs[-count:])
    tracks = [trackOf(v) for v in (*after, *kept, gy, *made)]
    begins, around = [trackOf(b) for b in before], rowsOf(U)
    if not isSingle(U, gy, *before, *after, *kept, *grads, *call.outs) or None in tracks + begins or around is None:
        return None
    if not all(map(isPlain, ends)):
        return None
    n, t, units = after[0].shape
    at = t - 1 if reverse else 0
    first = [(At(b, at * b.strides[1]), strided(b)[0]) for b in before]
    starts = [w for g, e in zip(grads, ends) for w in copies(g, e, e.shape, spread(g, e.shape), strided(e))]
    packed = room(recurrent.packedSize(kind, units))
    inner = tracks[: count + len(kept)]
    if kind == "gru":  # of the states it only reads those before, which after a gap are not those of the last moment
        shift = -before[0].strides[1] if reverse else before[0].strides[1]
        inner[0] = begins[0]._replace(what=At(before[0], shift))
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
        recurrent.Sizes(n, t, units),
        pool.threads(),
        momentsOf(on),
        bool(reverse),
    )
    return [*starts, *works]
