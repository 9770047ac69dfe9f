"""Attention on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.ops.attention.reference import FLOOR, attend, attendGrad

pytestmark = needsEmulator
CLOSE = {"float16": 2e-3, "float32": 3e-6, "float64": 1e-13}


def given(rng, dtype, n, h, group, t, s, d, e):
    """Queries, keys and values."""
    shapes = (n, h, t, d), (n, h // group, s, d), (n, h // group, s, e)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def agree(found, wanted, tolerance):
    for x, y in zip(found, wanted):
        assert x.shape == y.shape and x.dtype == y.dtype
        y = y.astype("f8")
        np.testing.assert_allclose(x.astype("f8"), y, tolerance, tolerance * (1 + abs(y).max(initial=0)))


def along(q, k, v, mask=None, causal=False, change=lambda x: x, strides=None):
    """Forward, the way the launches do it and the reference; `change` gives arrays other strides."""
    given = mask, causal, q.shape[3] ** -0.5
    wanted = attend.reference(q, k, v, *given)
    agree(emulated(attend, *map(change, (q, k, v)), *given, strides=strides), wanted, CLOSE[q.dtype.name])
    return wanted


def both(rng, q, k, v, mask=None, causal=False, ofMask=False, change=lambda x: x, strides=None):
    """Forward and backward."""
    scale, tolerance = q.shape[3] ** -0.5, CLOSE[q.dtype.name]
    changed = [change(x) for x in (q, k, v)]
    y, lse = along(q, k, v, mask, causal, change, strides)
    grad = rng.standard_normal(y.shape).astype(y.dtype)
    rest = (grad.astype(lse.dtype) * y).sum(axis=-1, keepdims=True)
    others = (mask, lse, rest, causal, scale, ofMask)
    wanted = attendGrad.reference(grad, q, k, v, *others)
    agree(emulated(attendGrad, change(grad), *changed, *others, strides=strides), wanted, 4 * tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1, 33, 40), (2, 2, 1, 31, 33, 33, 64), (1, 4, 2, 70, 131, 57, 35)], ids=str
)
def test_queries_meet_keys(rng, sizes, causal):
    both(rng, *given(rng, "float32", *sizes), causal=causal)


def test_there_may_be_many_more_keys_than_queries(rng):
    both(rng, *given(rng, "float32", 1, 1, 1, 3, 257, 33, 33))


@pytest.mark.parametrize("shape", [(2, 2, 31, 70), (31, 70), (2, 1, 1, 70), (2, 31, 1), (1,), (2, 1, 31, 70)], ids=str)
def test_masks_are_added_and_have_gradients(rng, shape):
    mask = rng.standard_normal(shape).astype("f4")
    both(rng, *given(rng, "float32", 2, 2, 2, 31, 70, 5, 16), mask, ofMask=True)
    both(rng, *given(rng, "float32", 2, 2, 1, 31, 70, 5, 16), mask, causal=True, ofMask=True)


def test_gradients_of_masks_take_all_blocks(rng):
    x = given(rng, "float32", 2, 1, 1, 70, 65, 5, 16)
    for shape in ((70, 65), (1, 65), (2, 1, 70, 1)):
        both(rng, *x, rng.standard_normal(shape).astype("f4"), ofMask=True)


def test_masks_of_bools_hide(rng):
    mask = rng.random((33, 31)) < 0.6
    mask[5] = False
    x = given(rng, "float16", 1, 2, 1, 33, 31, 9, 16)
    along(*x, mask)
    y, lse = emulated(attend, *x, mask, False, 0.1)
    assert not y[:, :, 5].any() and (lse[:, :, 5] == np.float32(FLOOR)).all()


def test_float64_is_computed_in_float64(rng):
    both(rng, *given(rng, "float64", 1, 2, 2, 33, 70, 8, 5), causal=True)


def test_heads_lie_anywhere(rng):
    def sideBySide(x):
        return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)

    def apart(shape, dtype):
        return np.full((*shape[:2], shape[3], 2 * shape[2]), np.nan, dtype)[..., ::2].swapaxes(2, 3)

    both(rng, *given(rng, "float32", 2, 2, 1, 31, 33, 33, 64), change=sideBySide)
    both(rng, *given(rng, "float32", 2, 2, 1, 5, 7, 64, 33), change=np.asfortranarray, strides=apart)


def test_heads_may_be_large_and_bfloat16_is_computed_in_float32(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = [each.astype(bfloat16) for each in given(rng, "float32", 1, 1, 1, 9, 70, 257, 300)]
    y, lse = emulated(attend, *x, None, True, 0.1)
    wanted = attend.reference(*[each.astype("f4") for each in x], None, True, 0.1)
    np.testing.assert_allclose(y.astype("f4"), wanted[0], 8e-3, 1e-5)
    agree([lse], wanted[1:], CLOSE["float32"])


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_gradients_are_of_16_bits_whatever_the_sums_are_kept_in(rng, kind):
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    q, k, v = (x.astype(bfloat16) for x in given(rng, "float32", 1, 2, 2, 31, 70, 16, 33))
    wide = [x.astype("f4") for x in (q, k, v)]
    mask = rng.standard_normal((31, 70)).astype(bfloat16)
    y, lse = attend.reference(*wide, mask.astype("f4"), True, 0.25)
    grad = rng.standard_normal(y.shape).astype(bfloat16)
    rest = (grad.astype("f4") * y).sum(axis=-1, keepdims=True).astype(bfloat16 if kind == "bfloat16" else kind)
    found = emulated(attendGrad, grad, q, k, v, mask, lse, rest, True, 0.25)
    wanted = attendGrad.reference(grad.astype("f4"), *wide, mask.astype("f4"), lse, rest.astype("f4"), True, 0.25)
    for x, y in zip(found, wanted):
        assert x.dtype == bfloat16
        np.testing.assert_allclose(x.astype("f4"), y, 8e-3, 8e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("sizes", [(1, 128), (65, 65), (130, 2), (256, 256)], ids=str)
@pytest.mark.parametrize("kind", [None, "?", "f4"])
def test_heads_of_any_size_have_gradients(rng, dtype, sizes, kind):
    mask = None if kind is None else (rng.standard_normal((2, 1, 70)) - 0.5).astype(kind)
    both(rng, *given(rng, dtype, 1, 2, 2, 31, 70, *sizes), mask, ofMask=kind == "f4")


def test_nothing_is_launched_for_nothing(rng):
    q, k, v = given(rng, "float32", 1, 1, 1, 0, 3, 2, 2)
    assert attend.implementations["cuda"]([q, q[..., :1]], q, k, v, None, False, 1.0) == []
    mixed = attend.implementations["cuda"]([q, q[..., :1]], q, k.astype("f8"), v, None, False, 1.0)
    assert mixed is NotImplemented
