"""Native attention gives what its reference gives, whatever the sizes, masks, layouts, and however many threads."""

import numpy as np
import pytest
from natively import needsNative, run

from puregraph.ops.attention import reference
from puregraph.ops.attention.native.attentioncalls import attend, attendGrad
from puregraph.ops.attention.native.attentionoperands import AttentionSizes, Heads, Mask, Reach

pytestmark = needsNative

SIZES = [  # samples, heads, heads of keys, queries, keys, width, out
    (2, 2, 2, 33, 33, 16, 16),
    (1, 3, 3, 128, 128, 64, 64),
    (2, 2, 1, 70, 150, 24, 40),
    (1, 4, 2, 130, 300, 64, 128),
    (1, 2, 2, 1, 1, 16, 16),
    (2, 1, 1, 5, 400, 100, 17),
    (1, 1, 1, 50, 7, 3, 5),
    (2, 6, 3, 1, 300, 64, 32),
]
MASKS = {
    "bools": lambda rng, n, h, t, s: rng.random((t, s)) > 0.3,
    "numbers": lambda rng, n, h, t, s: rng.standard_normal((1, h, t, s)).astype(np.float32),
    "padding": lambda rng, n, h, t, s: rng.random((n, 1, 1, s)) > 0.8,
    "queries": lambda rng, n, h, t, s: rng.standard_normal((n, h, t, 1)).astype(np.float32),
    "samples": lambda rng, n, h, t, s: np.arange(n).reshape(n, 1, 1, 1) > 0,
    "infinite": lambda rng, n, h, t, s: np.where(rng.random((t, s)) > 0.5, 0, -np.inf).astype(np.float32),
}


DTYPES = {"f4": ("f32", 2e-5, 1e-5), "f8": ("f64", 1e-12, 1e-13)}


def heads(x):
    return Heads(x, tuple(stride // x.itemsize for stride in x.strides[:3]))


def maskOf(mask, shape):
    whole = np.broadcast_to(mask, shape)
    kind = "i8" if mask.dtype == bool else DTYPES[mask.dtype.str[1:]][0]
    return Mask(kind, mask, tuple(stride // mask.itemsize for stride in whole.strides))


def beside(rng, *shape, dtype="f4"):
    """Numbers (n, h, t, d) that lie as the columns of a projected matrix do, among others."""
    n, h, t, d = shape
    whole = rng.standard_normal((n, t, h * d + 5)).astype(dtype)
    size = whole.itemsize
    return np.lib.stride_tricks.as_strided(whole[:, :, 2:], shape, (whole.strides[0], size * d, whole.strides[1], size))


def both(sizes, causal, mask=None, threads=1, dtype="f4"):
    """What native code gives, forward and back, and what the reference gives."""
    rng = np.random.default_rng(5)
    n, h, kh, t, s, d, e = sizes
    shapes = ((n, h, t, d), (n, kh, s, d), (n, kh, s, e), (n, h, t, e), (n, h, t, e))
    q, k, v, g, y = (beside(rng, *shape, dtype=dtype) for shape in shapes)
    lse = np.full((n, h, t, 1), 7, dtype)
    dq, dk, dv = (beside(rng, *x.shape, dtype=dtype) for x in (q, k, v))
    mask = MASKS[mask](rng, n, h, t, s) if mask else None
    mask = mask if mask is None or mask.dtype == bool else mask.astype(dtype)
    given = None if mask is None else maskOf(mask, (n, h, t, s))
    options = AttentionSizes(*sizes), causal, d**-0.5, given, DTYPES[dtype][0]
    run(attend(heads(q), heads(k), heads(v), heads(y), lse, *options), threads)
    wanted, sums = reference.attend.reference(q, k, v, mask, causal, d**-0.5)
    rest = np.ascontiguousarray((g * wanted).sum(axis=-1, keepdims=True))
    arrays = [heads(g), heads(q), heads(k), heads(v), sums, rest, heads(dq), heads(dk), heads(dv)]
    run(attendGrad(*arrays, *options), threads)
    back = reference.attendGrad.reference(g, q, k, v, mask, sums, rest, causal, d**-0.5)
    return [y, lse, dq, dk, dv], [wanted, sums, *back]


def close(found, wanted):
    _, relative, absolute = DTYPES[found[0].dtype.str[1:]]
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=relative, atol=absolute)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_attention_is_that_of_the_reference(sizes, causal, dtype):
    close(*both(sizes, causal, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_masks_hide_and_add_as_in_the_reference(mask, causal, dtype):
    close(*both((2, 2, 2, 40, 160, 32, 32), causal, mask, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_queries_take_half_the_tile_and_give_the_bits_of_many(dtype):
    rng = np.random.default_rng(3)
    n, h, kh, t, s, d, e = 2, 4, 2, 40, 150, 24, 17
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((n, h, t, d), (n, kh, s, d), (n, kh, s, e)))

    def native(rows):
        y, lse = np.empty((n, h, rows, e), dtype), np.empty((n, h, rows, 1), dtype)
        sizes, part = AttentionSizes(n, h, kh, rows, s, d, e), np.ascontiguousarray(q[:, :, :rows])
        calls = attend(*map(heads, (part, k, v, y)), lse, sizes, False, 0.3, real=DTYPES[dtype][0])
        run(calls)
        return calls[0].key, y, lse

    text, y, lse = native(t)
    for rows in (1, 3):
        other, few, sums = native(rows)
        assert "vectors=2" in text and "vectors=1" in other
        np.testing.assert_array_equal(few, y[:, :, :rows])
        np.testing.assert_array_equal(sums, lse[:, :, :rows])


def test_a_row_that_sees_no_key_is_zero():
    found, _ = both((2, 1, 1, 20, 30, 16, 16), False, "samples")
    assert (found[0][0] == 0).all() and (found[1][0] == np.float32(-1e30)).all()
    assert all((x[0] == 0).all() for x in found[2:])
    assert all((x[1] != 0).any() for x in found)


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_threads_change_no_bit(threads):
    sizes = (2, 4, 2, 100, 90, 32, 32)
    one, many = both(sizes, True)[0], both(sizes, True, threads=threads)[0]
    assert all(np.array_equal(a, b) for a, b in zip(one, many))


def test_large_scores_do_not_overflow():
    q = np.full((1, 1, 2, 16), 100, dtype=np.float32)
    v, y = np.arange(32, dtype=np.float32).reshape(1, 1, 2, 16), np.empty((1, 1, 2, 16), dtype=np.float32)
    lse = np.empty((1, 1, 2, 1), dtype=np.float32)
    run(attend(heads(q), heads(q), heads(v), heads(y), lse, AttentionSizes(1, 1, 1, 2, 2, 16, 16), False, 1.0))
    np.testing.assert_allclose(y, np.broadcast_to(v.mean(axis=2, keepdims=True), y.shape), rtol=1e-6)
    np.testing.assert_allclose(lse, 160000 + np.log(2), rtol=1e-6)


def test_nan_stays_nan():
    q = np.ones((1, 1, 2, 16), dtype=np.float32)
    q[0, 0, 1, 3] = np.nan
    k = np.ones((1, 1, 2, 16), dtype=np.float32)
    y, lse = np.empty_like(q), np.empty((1, 1, 2, 1), dtype=np.float32)
    run(attend(heads(q), heads(k), heads(k), heads(y), lse, AttentionSizes(1, 1, 1, 2, 2, 16, 16), False, 1.0))
    assert np.isfinite(y[0, 0, 0]).all() and np.isnan(y[0, 0, 1]).all()


LIMITS = {
    "offset": lambda n: (np.arange(n) * 90 - 1, None, None, None),
    "number": lambda n: (37, None, None, None),
    "lengths": lambda n: (np.full(n, 400), np.arange(n) * 70, None, None),
    "window": lambda n: (np.arange(n) * 90 - 1, np.arange(n) * 70, 5, None),
    "cap": lambda n: (300, None, 200, 0.7),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keys", [1, 15, 16, 129, 300])
@pytest.mark.parametrize("name", LIMITS)
def test_one_query_sees_the_keys_of_its_limits(name, keys, dtype):
    rng, (real, *_) = np.random.default_rng(2), DTYPES[dtype]
    n, h, kh, d, e = 5, 4, 2, 32, 48
    q, k, v = (beside(rng, *shape, dtype=dtype) for shape in ((n, h, 1, d), (n, kh, keys, d), (n, kh, keys, e)))
    y, lse = np.empty((n, h, 1, e), dtype), np.empty((n, h, 1, 1), dtype)
    limits = LIMITS[name](n)
    sizes = AttentionSizes(n, h, kh, 1, keys, d, e)
    calls = attend(*map(heads, (q, k, v, y)), lse, sizes, True, 0.3, real=real, reach=Reach(*limits))
    assert "one query" in calls[0].key
    run(calls, 2)
    close([y, lse], reference.attend.reference(q, k, v, None, True, 0.3, limits))


def test_a_nan_of_one_query_stays_in_its_row():
    q, k = np.ones((2, 1, 1, 16), np.float32), np.ones((2, 1, 20, 16), np.float32)
    k[1, 0, 3, 2] = np.nan
    y, lse = np.empty_like(q), np.empty((2, 1, 1, 1), np.float32)
    run(attend(heads(q), heads(k), heads(k), heads(y), lse, AttentionSizes(2, 1, 1, 1, 20, 16, 16), False, 1.0))
    assert np.isfinite(y[0]).all() and np.isnan(y[1]).all()
