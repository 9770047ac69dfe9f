"""Cells along time on a GPU, and back: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.ops.recurrent import cellsplit
from puregraph.ops.recurrent import reference as recurrent
from puregraph.ops.recurrent.reference import forward, throughTime

pytestmark = needsEmulator
CELLS = {"tanh": 1, "relu": 1, "lstm": 4, "gru": 3}


def agree(found, wanted, tolerance=2e-5):
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted):
        np.testing.assert_allclose(x, y, tolerance, tolerance)


def both(rng, kind, n, t, units, dtype="float32", lengths=False, reverse=False, bias=True, change=lambda x: x):
    """Forward and back through time, the way the launches do it and the references; gives how many launches those are."""
    gates, count = CELLS[kind], 2 if kind == "lstm" else 1
    step, back = getattr(recurrent, f"{kind}Step"), getattr(recurrent, f"{kind}Back")

    def made(*shape):
        return change((rng.standard_normal(shape) * 0.5).astype(dtype))

    x, W, b = made(n, t, 5), made(5, gates * units), made(gates * units) if bias else None
    U, states = made(units, gates * units), [made(n, units) for _ in range(count)]
    weights = (U, made(units) if bias else None) if kind == "gru" else (U,)
    on = np.arange(t) < rng.integers(0, t + 1, n)[:, None] if lengths else None
    given = (step, x, W, b, weights, states, on, reverse)
    wanted = forward.reference(*given)
    agree(emulated(forward, *given), wanted)
    after, kept = wanted[:count], wanted[count:]
    before = [
        np.concatenate([x[:, 1:], s[:, None]] if reverse else [s[:, None], x[:, :-1]], axis=1)
        for x, s in zip(after, states)
    ]
    grads = [made(n, units) for _ in range(count)]
    given = (back, U, [change(x) for x in before], after, kept, made(n, t, units), grads, on, reverse)
    agree(emulated(throughTime, *given), throughTime.reference(*given))
    return len(throughTime.implementations["cuda"](*([throughTime.reference(*given)]), *given))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (9, 3, 33), (3, 2, 4)], ids=str)
def test_cells_run_along_time_and_back(rng, kind, sizes, reverse):
    assert both(rng, kind, *sizes, lengths=kind in ("relu", "gru"), reverse=reverse) == 1


@pytest.fixture
def gpu(monkeypatch):
    """What sets how many processors the GPU has, with how much memory; weights are never few."""

    def has(processors, shared=cellsplit.SHARED_MEMORY_BYTES):
        monkeypatch.setattr(cellsplit, "residency", lambda: (processors, shared))

    monkeypatch.setattr(cellsplit, "FAST_WEIGHT_BYTES", 0)
    return has


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("processors", "n", "units"), [(132, 9, 18), (3, 25, 18), (1, 3, 5)])
def test_blocks_that_hold_their_weights_wait_for_each_other_between_time_steps(rng, gpu, kind, processors, n, units):
    gpu(processors)
    assert both(rng, kind, n, 3, units, lengths=kind in ("relu", "gru"), reverse=kind == "lstm") == 1


def test_as_many_blocks_as_there_are_processors_hold_weights_and_sums_of_their_units():
    U = np.empty((256, 1024), "f4")
    found = cellsplit.cellSplit(4, (32, 64), U, U.dtype)
    assert found == (1, 2, True, 64 * 2, 32 * 8, (8 * 32 + 16 * 256) * 4, 16 * 256 * 4)


@pytest.mark.parametrize(("processors", "shared"), [(132, 1 << 10), (0, cellsplit.SHARED_MEMORY_BYTES)])
def test_weights_that_no_block_can_hold_take_a_launch_for_each_time_step(rng, gpu, processors, shared):
    gpu(processors, shared)
    assert both(rng, "lstm", 9, 3, 21) == 4
    assert both(rng, "gru", 9, 3, 21) == 4


@pytest.mark.parametrize(("kind", "units"), [("lstm", 67), ("relu", 131)])
def test_more_than_64_kilobytes_of_weights_are_held(rng, kind, units):
    assert both(rng, kind, 9, 3, units, lengths=kind == "relu") == 1


def test_a_gru_may_have_no_bias_of_its_own(rng):
    both(rng, "gru", 3, 2, 5, lengths=True, bias=False)


def test_float64_lengths_and_any_strides(rng):
    both(rng, "lstm", 9, 5, 6, dtype="float64", lengths=True, change=np.asfortranarray)


def wide(values):
    """What references are given."""
    if isinstance(values, (list, tuple)):
        return [wide(x) for x in values]
    return values.astype("f8") if getattr(values, "dtype", bool) not in (bool, float) else values


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize(("small", "large"), [("bfloat16", "float32"), ("float16", "float16")], ids=str)
def test_sequences_and_weights_are_stored_in_16_bits(rng, kind, small, large):
    small, large = (
        np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if n == "bfloat16" else n) for n in (small, large)
    )
    gates, count, units = CELLS[kind], 2 if kind == "lstm" else 1, 33
    step, back = getattr(recurrent, f"{kind}Step"), getattr(recurrent, f"{kind}Back")

    def made(*shape, dtype=small):
        return (rng.standard_normal(shape) * 0.2).astype(dtype)

    def kept(*dtypes):
        given = iter(dtypes)
        return lambda shape, dtype: np.empty(shape, next(given, large))

    x, W, b = made(9, 4, 5), made(5, gates * units), made(gates * units, dtype=large)
    U, states = made(units, gates * units), [made(9, units, dtype=large) for _ in range(count)]
    weights = (U, made(units, dtype=large)) if kind == "gru" else (U,)
    on = np.arange(4) < rng.integers(0, 5, 9)[:, None]
    found = emulated(forward, step, x, W, b, weights, states, on, strides=kept(small))
    wanted = forward.reference(step, *wide([x, W, b, weights, states]), on)
    assert [y.dtype for y in found] == [small, *[large] * (len(found) - 1)]
    agree([y.astype("f8") for y in found], wanted, 2e-2)
    after, left = [y.astype(x.dtype) for y, x in zip(wanted, found)], wanted[count:]
    before = [np.concatenate([s[:, None], y[:, :-1]], axis=1) for s, y in zip(states, after)]
    given = U, before, after[:count], left, made(9, 4, units), [made(9, units, dtype=large) for _ in range(count)]
    found = emulated(throughTime, back, *given, on, strides=kept(small, *[small] * (kind == "gru")))
    wanted = throughTime.reference(back, *wide(given), on)
    agree([y.astype("f8") for y in found], wanted, 4e-2)


def test_nothing_is_launched_for_nothing():
    x = np.zeros((0, 3, 4), "f4")
    W = np.eye(4, dtype="f4")
    assert forward.implementations["cuda"]([x], recurrent.tanhStep, x, W, None, (W,), [x[:, 0]]) == []
    assert (
        forward.implementations["cuda"]([x], recurrent.tanhStep, x.astype("f2"), W, None, (W,), [x[:, 0]])
        is NotImplemented
    )
    assert (
        forward.implementations["cuda"]([x], recurrent.tanhStep, x, W, None, (W.astype(int),), [x[:, 0]])
        is NotImplemented
    )
    assert forward.implementations["cuda"]([x], len, x, W, None, (W,), [x[:, 0]]) is NotImplemented
