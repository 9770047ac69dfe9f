"""Native recurrent cells give what their reference gives, along all moments, forward and back."""

import numpy as np
import pytest
from natively import REALS, needsNative, rounding, run

from puregraph.ops.recurrent import reference
from puregraph.ops.recurrent.native import recurrentcalls as recurrent
from puregraph.ops.recurrent.native.recurrentoperands import CELLS, RecurrentSizes, SequenceOperand

pytestmark = needsNative
STEPS = {
    "tanh": (reference.tanhStep, reference.tanhBack),
    "relu": (reference.reluStep, reference.reluBack),
    "lstm": (reference.lstmStep, reference.lstmBack),
    "gru": (reference.gruStep, reference.gruBack),
}
SIZES = [(3, 5, 16), (32, 4, 64), (1, 1, 1), (7, 6, 37), (17, 3, 100)]


@pytest.fixture(autouse=True, params=["f4", "f8"])
def dtype(request):
    """Every test runs in float32 and in float64."""
    global DTYPE
    DTYPE = np.dtype(request.param)


def track(x):
    return SequenceOperand(x, (x.strides[0] // x.itemsize, x.strides[1] // x.itemsize))


def wide(rng, n, t, width):
    """Numbers (n, t, width) among others, as one direction of two has them."""
    whole = rng.standard_normal((n, t, width + 7)).astype(DTYPE)
    return np.lib.stride_tricks.as_strided(whole[:, :, 3:], (n, t, width), whole.strides)


def packed(kind, weights, units):
    """Weights as native code reads them."""
    to = np.full(recurrent.packedSize(kind, units, len(weights), REALS[DTYPE.itemsize]), np.nan, DTYPE)
    run(
        recurrent.pack(
            kind, weights, weights.strides[0] // DTYPE.itemsize, to, len(weights), units, REALS[DTYPE.itemsize]
        )
    )
    return to


def forward(
    kind, sizes, reverse=False, lengths=False, threads=1, groups=3, zeros=False, inputs=5, bias=True, keep=True
):
    """What native code gives, what the reference gives, and the arguments; without `inputs` their sums are given."""
    rng = np.random.default_rng(11)
    n, t, units = sizes
    cell = CELLS[kind]
    width = cell.gates * units
    x, W = wide(rng, n, t, inputs or 5), rng.standard_normal((inputs or 5, width + 2)).astype(DTYPE)[:, :width]
    U = (rng.standard_normal((units, width + 5)) / np.sqrt(units)).astype(DTYPE)[:, :width]
    b = rng.standard_normal(width).astype(DTYPE) if bias else None
    d = rng.standard_normal(units).astype(DTYPE) if kind == "gru" and bias else None
    first = [rng.standard_normal((n, units)).astype(DTYPE) for _ in range(cell.states)]
    starts = [(s, units) for s in first]
    if zeros:
        first = [np.zeros_like(s) for s in first]
        starts = [(np.zeros(units, DTYPE), 0) for _ in first]
    on = np.arange(t) < rng.integers(0, t + 1, n)[:, None] if lengths else None
    states = [wide(rng, n, t, units) for _ in first]
    kept = wide(rng, n, t, cell.saved * units) if cell.saved and keep else None
    tracks = [track(s) for s in states]
    if not keep:
        last = [np.full((n, units), np.nan, DTYPE) for _ in states[1:]]
        tracks[1:] = [SequenceOperand(s, (units, 0)) for s in last]
    works = recurrent.run(
        kind,
        track(x) if inputs else track((x @ W).astype(DTYPE)),
        packed(kind, W, units) if inputs else None,
        packed(kind, U, units),
        starts,
        tracks,
        None if kept is None else track(kept),
        RecurrentSizes(*sizes, inputs),
        groups,
        b,
        d,
        None if on is None else track(on),
        reverse,
        zeros,
        REALS[DTYPE.itemsize],
    )
    run(works, threads)
    weights = [U, d] if kind == "gru" else [U]
    wanted = reference.forward(STEPS[kind][0], x, W, b, weights, first, on, reverse)
    found = [*states, *([] if kept is None else [kept])]
    if not keep:
        found = [states[0], *last]
        wanted = [wanted[0], *(s[:, 0 if reverse else -1] for s in wanted[1 : cell.states])]
    return found, wanted, (U, first, starts, on, rng)


def backward(kind, sizes, reverse=False, lengths=False, threads=1, groups=3, zeros=False):
    _, made, (U, first, starts, on, rng) = forward(kind, sizes, reverse, lengths, zeros=zeros)
    n, t, units = sizes
    stride, packed = (
        U.strides[0] // DTYPE.itemsize,
        np.empty(recurrent.packedSize(kind, units, None, REALS[DTYPE.itemsize]), DTYPE),
    )
    cell = CELLS[kind]
    after, kept = [x.astype(DTYPE) for x in made[: cell.states]], made[cell.states :]
    gy = wide(rng, n, t, units)
    grads = [rng.standard_normal((n, units)).astype(DTYPE) for _ in first]
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
        track(kept[0].astype(DTYPE)) if kept else None,
        track(gy),
        track(dp),
        track(dq) if kind == "gru" else None,
        mine,
        RecurrentSizes(*sizes),
        groups,
        None if on is None else track(on),
        reverse,
        REALS[DTYPE.itemsize],
    )
    run(works, threads)
    return [dp, dq if kind == "gru" else dp, *mine], [wanted[0], wanted[1], *wanted[2]]


def close(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=rounding(1e-4, DTYPE), atol=rounding(2e-5, DTYPE))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", CELLS)
def test_states_and_what_is_kept_are_those_of_the_reference(kind, sizes):
    found, wanted, _ = forward(kind, sizes)
    close(found, wanted)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs", [0, 1, 70])
@pytest.mark.parametrize("kind", CELLS)
def test_inputs_or_their_sums_with_and_without_bias(kind, inputs, bias):
    found, wanted, _ = forward(kind, (37, 3, 40), inputs=inputs, bias=bias, groups=1)
    close(found, wanted)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_what_nobody_reads_is_not_kept(kind, lengths):
    found, wanted, _ = forward(kind, (21, 5, 33), reverse=True, lengths=lengths, keep=False)
    close(found, wanted)


def test_gates_saturate_and_pass_on_what_is_no_number():
    x = np.array([[-1e30, -100.0, -30.0, -1e-4, 0.0, 1e-4, 30.0, 100.0, 1e30, np.nan]], DTYPE)
    U, zero = np.zeros((10, 40), DTYPE), np.zeros(10, DTYPE)
    sums = np.concatenate([x, x, x, x], axis=1)[:, None]
    h, c, kept = (np.empty((1, 1, size), DTYPE) for size in (10, 10, 40))
    starts, outs = [(zero, 0), (zero, 0)], [track(h), track(c)]
    run(
        recurrent.run(
            "lstm",
            track(sums),
            None,
            packed("lstm", U, 10),
            starts,
            outs,
            track(kept),
            RecurrentSizes(1, 1, 10),
            1,
            real=REALS[DTYPE.itemsize],
        )
    )
    wide = np.clip(x[0].astype(np.float64), -500, 500)
    sigmoid, tanh = 1 / (1 + np.exp(-wide)), np.tanh(wide)
    np.testing.assert_allclose(
        kept[0, 0], np.concatenate([sigmoid, sigmoid, tanh, sigmoid]), rtol=rounding(1e-6, DTYPE), atol=1e-12
    )
    np.testing.assert_allclose(c[0, 0], sigmoid * tanh, rtol=rounding(1e-6, DTYPE), atol=1e-12)
    assert (kept[0, 0][~np.isnan(kept[0, 0])] <= 1).all()


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


def test_a_wide_input_or_few_samples_are_summed_before():
    assert recurrent.readsInputs("lstm", RecurrentSizes(32, 4, 256, 28)) and not recurrent.readsInputs(
        "lstm", RecurrentSizes(4, 4, 256, 28)
    )
    assert not recurrent.readsInputs("lstm", RecurrentSizes(32, 4, 256, 8192))
