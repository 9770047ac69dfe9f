"""The norm of many arrays on a GPU: in the emulator, against the reference."""

import numpy as np
import pytest
from launches import emulated, misplaced, needsEmulator

from puregraph.ops.cuda.runtime.launch import PointerTable
from puregraph.ops.reduction.norm import norm

pytestmark = needsEmulator


def given(rng, *dtypes):
    """Arrays of odd sizes, one empty, one in Fortran's order, one at an odd address."""
    x = [rng.standard_normal(shape) for shape in ((), (1,), (31, 33), (0, 3), (257,), (16385,), (5, 7))]
    x = [each.astype(dtypes[i % len(dtypes)]) for i, each in enumerate(x)]
    return [*x[:-1], np.asfortranarray(x[-1]), misplaced(x[4])]


@pytest.mark.parametrize("dtypes", [("f4",), ("f4", "f2"), ("f8",)], ids=str)
def test_arrays_are_one_long_one(rng, dtypes):
    arrays = given(rng, *dtypes)
    wanted = np.linalg.norm(np.concatenate([x.astype("f8").ravel() for x in arrays]))
    np.testing.assert_allclose(emulated(norm, *arrays), wanted, 1e-14)
    np.testing.assert_allclose(norm.reference(*arrays), wanted, 1e-6)


def test_numbers_of_16_bits_are_summed_in_float64(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    arrays = given(rng, bfloat16, "f4", "f2")
    wanted = np.linalg.norm(np.concatenate([x.astype("f8").ravel() for x in arrays]))
    np.testing.assert_allclose(emulated(norm, *arrays), wanted, 1e-14)


def test_arrays_may_have_gaps(rng):
    x = rng.standard_normal((9, 8, 7)).astype("f4")
    np.testing.assert_allclose(emulated(norm, x[::2, :, 1::3], x), norm.reference(x[::2, :, 1::3], x), 1e-6)


def test_nothing_has_no_norm_and_large_numbers_have_one():
    assert emulated(norm) == emulated(norm, np.zeros((3, 0), "f4")) == 0
    assert emulated(norm, np.full(4, 1e30, "f4")) == pytest.approx(2e30)
    assert np.isnan(emulated(norm, np.array([1, np.nan], "f4")))


def test_one_launch_takes_all_arrays_of_a_dtype(rng):
    arrays = [rng.standard_normal(3).astype("f4") for _ in range(300)]
    first, last = norm.implementations["cuda"](np.empty(()), *arrays)
    (table,) = [what for _, what in first.slots if isinstance(what, PointerTable)]
    assert first.grid == (300, 1, 1) and last.grid == (1, 1, 1) and repr(table) == "<table of 300 rows>"
    np.testing.assert_allclose(emulated(norm, *arrays), norm.reference(*arrays), 1e-6)
