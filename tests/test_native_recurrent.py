"""Native recurrent cells give what their reference gives, along all moments, forward and back."""

import numpy as np
import pytest
from natively import needsNative, run

from puregraph.kernels import recurrent as reference
from puregraph.native import recurrent
from puregraph.native.recurrent import CELLS, Sizes, Track

pytestmark = needsNative
STEPS = {
    "tanh": (reference.tanhStep, reference.tanhBack),
    "relu": (reference.reluStep, reference.reluBack),
    "lstm": (reference.lstmStep, reference.lstmBack),
    "gru": (reference.gruStep, reference.gruBack),
}
SIZES = [(3, 5, 16), (32, 4, 64), (1, 1, 1), (7, 6, 37), (17, 3, 100)]


def track(x):
    return Track(x, (x.strides[0] // x.itemsize, x.strides[1] // x.itemsize))


def wide(rng, n, t, width):
    """Numbers (n, t, width) among others, as one direction of two has them."""
    whole = rng.standard_normal((n, t, width + 7)).astype(np.float32)
    return np.lib.stride_tricks.as_strided(whole[:, :, 3:], (n, t, width), whole.strides)


def forward(kind, sizes, reverse=False, lengths=False, threads=1, groups=3, zeros=False):
    """What native code gives, what the reference gives, and the arguments."""
    rng = np.random.default_rng(11)
    n, t, units = sizes
    cell = CELLS[kind]
    p = wide(rng, n, t, cell.gates * units)
    U = (rng.standard_normal((units, cell.gates * units + 5)) / np.sqrt(units)).astype(np.float32)[
        :, : cell.gates * units
    ]
    d = rng.standard_normal(units).astype(np.float32) if kind == "gru" else None
    first = [rng.standard_normal((n, units)).astype(np.float32) for _ in range(cell.states)]
    starts = [(x, units) for x in first]
    if zeros:
        first = [np.zeros_like(x) for x in first]
        starts = [(np.zeros(units, dtype=np.float32), 0) for _ in first]
    on = np.arange(t) < rng.integers(0, t + 1, n)[:, None] if lengths else None
    states = [wide(rng, n, t, units) for _ in first]
    kept = wide(rng, n, t, cell.kept * units) if cell.kept else None
    packed = np.empty(recurrent.packedSize(kind, units), dtype=np.float32)
    stride = U.strides[0] // 4
    works = recurrent.run(
        kind,
        track(p),
        U,
        stride,
        packed,
        starts,
        [track(s) for s in states],
        None if kept is None else track(kept),
        Sizes(*sizes),
        groups,
        d,
        None if on is None else track(on),
        reverse,
    )
    run(works, threads)
    weights = [U, d] if kind == "gru" else [U]
    wanted = reference.forward(STEPS[kind][0], p, weights, first, on, reverse)
    found = [*states, *([] if kept is None else [kept])]
    return found, wanted, (U, stride, packed, first, starts, on, rng)


def backward(kind, sizes, reverse=False, lengths=False, threads=1, groups=3, zeros=False):
    _, made, (U, stride, packed, first, starts, on, rng) = forward(kind, sizes, reverse, lengths, zeros=zeros)
    n, t, units = sizes
    cell = CELLS[kind]
    after, kept = [x.astype(np.float32) for x in made[: cell.states]], made[cell.states :]
    gy = wide(rng, n, t, units)
    grads = [rng.standard_normal((n, units)).astype(np.float32) for _ in first]
    before = [
        np.concatenate([x[:, 1:], s[:, None]] if reverse else [s[:, None], x[:, :-1]], axis=1)
        for x, s in zip(after, first)
    ]
    wanted = reference.backward(STEPS[kind][1], U, before, after, kept, gy, grads, on, reverse)
    dp, dq = (wide(rng, n, t, cell.gates * units) for _ in range(2))
    mine = [g.copy() for g in grads]
    works = recurrent.back(
        kind,
        U,
        stride,
        packed,
        starts,
        [track(x) for x in after],
        track(kept[0].astype(np.float32)) if kept else None,
        track(gy),
        track(dp),
        track(dq) if kind == "gru" else None,
        mine,
        Sizes(*sizes),
        groups,
        None if on is None else track(on),
        reverse,
    )
    run(works, threads)
    return [dp, dq if kind == "gru" else dp, *mine], [wanted[0], wanted[1], *wanted[2]]


def close(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", CELLS)
def test_states_and_what_is_kept_are_those_of_the_reference(kind, sizes):
    found, wanted, _ = forward(kind, sizes)
    close(found, wanted)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", CELLS)
def test_gradients_are_those_of_the_reference(kind, sizes):
    close(*backward(kind, sizes))


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_lengths_and_the_other_direction(kind, reverse, lengths):
    found, wanted, _ = forward(kind, (9, 6, 21), reverse, lengths, zeros=True)
    close(found, wanted)
    close(*backward(kind, (9, 6, 21), reverse, lengths, zeros=True))


@pytest.mark.parametrize("kind", CELLS)
def test_neither_threads_nor_groups_change_a_bit(kind):
    for direction in (forward, backward):
        one = direction(kind, (13, 4, 40), groups=1)[0]
        for groups, threads in ((4, 2), (13, 4), (100, 3)):
            many = direction(kind, (13, 4, 40), groups=groups, threads=threads)[0]
            assert all(np.array_equal(a, b) for a, b in zip(one, many))
