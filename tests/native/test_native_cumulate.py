"""Cumulative sums, products, maxima and log-sum-exps in native code are those of numpy, along any axis of any array."""

import numpy as np
import pytest
from natively import needsNative, run
from orderings import AlongAxis

from puregraph.compile.lower.lowerings import reduction
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate
from puregraph.ops.reduction.native import cumulate as native
from puregraph.ops.reduction.native import linesOf

pytestmark = needsNative
NEAR = {"float32": 2e-5, "float64": 1e-12}


def steps(x):
    return tuple(s // x.itemsize if n > 1 else 0 for n, s in zip(x.shape, x.strides))


def natively(x, y, axis, kind, exclusive, reverse, threads=2):
    """Put the result into y."""
    lines = linesOf(x.shape, steps(x), steps(y), axis % x.ndim, reverse)
    run(native(x, y, kind, reduction.ELEMENTS[x.dtype.name], lines, exclusive), threads)
    return y


@pytest.mark.parametrize("kind", UFUNCS)
@pytest.mark.parametrize("part", range(5))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_layout_axis_and_dtype(kind, part):
    for seed in range(30):
        drawn = AlongAxis([part, seed])
        dtype = drawn.pick(*(NEAR if kind == "logSumExp" else reduction.ELEMENTS))
        x, exclusive, reverse = drawn.laidOut(drawn.values(dtype)), drawn.isOn(), drawn.isOn()
        y = drawn.laidOut(np.full(x.shape, 7, dtype)) if drawn.isOn() else np.full(x.shape, 7, dtype)
        wanted = cumulate.reference(x, drawn.axis, kind, exclusive, reverse)
        natively(x, y, drawn.axis, kind, exclusive, reverse)
        if kind == "logSumExp":
            np.testing.assert_allclose(y, wanted, NEAR[dtype], NEAR[dtype])
        else:
            np.testing.assert_array_equal(y, wanted, f"{x.shape} {drawn.axis} {dtype}")
            isKept = kind != "maximum" and not np.isnan(wanted).any()
            assert not isKept or y.tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_sums_are_added_as_numpy_does():
    x = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32) * np.logspace(-4, 4, 1000, dtype="f4")
    assert natively(x, np.empty_like(x), 1, "sum", False, False).tobytes() == np.cumsum(x, 1).tobytes()
    y = np.empty_like(x.T)
    assert natively(np.ascontiguousarray(x.T), y, 0, "sum", False, False).tobytes() == np.cumsum(x.T, 0).tobytes()


def test_what_begins_with_zeros_keeps_their_signs():
    x = np.array([[-0.0, -0.0, 0.0, -0.0]], np.float32)
    assert np.signbit(natively(x, np.empty_like(x), 1, "sum", False, False)).tolist() == [[True, True, False, False]]
    assert natively(x, np.empty_like(x), 1, "sum", True, False).tobytes() == np.zeros((1, 4), "f4").tobytes()


@pytest.mark.parametrize("kind", UFUNCS)
def test_of_no_elements_and_of_infinite_ones(kind):
    x = np.array([[-np.inf, -np.inf, 2.0, np.inf, 1.0, np.nan, 0.0]])
    for exclusive in (False, True):
        with np.errstate(all="ignore"):
            wanted = cumulate.reference(x, 1, kind, exclusive)
        found = natively(x, np.empty_like(x), 1, kind, exclusive, False)
        np.testing.assert_allclose(found, wanted, 1e-14)
        assert np.isnan(found[0, -1])


def test_integers_wrap_as_those_of_numpy():
    x = np.full((2, 40), 3, np.int32)
    wanted = cumulate.reference(x, 1, "product")
    assert np.array_equal(natively(x, np.empty_like(x), 1, "product", False, False), wanted) and wanted.min() < 0
