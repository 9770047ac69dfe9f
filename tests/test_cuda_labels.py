"""Labels, lengths and diagonals on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.kernels.classes import classIndex
from puregraph.kernels.einsum import ontoDiagonal
from puregraph.kernels.recurrent import alive

pytestmark = needsEmulator


@pytest.mark.parametrize(("dtype", "ignored"), [("i8", 4), ("u1", None)])
def test_labels_become_indices(rng, dtype, ignored):
    labels = rng.integers(0, 9, (31, 33)).astype(dtype)[::2, 3:]
    wanted = classIndex.reference(labels, 9, ignored)
    np.testing.assert_array_equal(emulated(classIndex, labels, 9, ignored), wanted)


def test_a_label_that_is_no_class_is_marked():
    assert emulated(classIndex, np.array([0, 3, -7, -100, 2, 2**40]), 3, -100).tolist() == [0, -2, -2, -1, 2, -2]
    assert emulated(classIndex, np.zeros(0, "i8"), 3).shape == (0,)
    assert classIndex.twins["cuda"](np.empty(1, "i8"), np.zeros(1), 3) is NotImplemented


@pytest.mark.parametrize("count", [1, 33])
def test_moments_within_lengths(rng, count):
    lengths = rng.integers(0, count + 1, 257)
    np.testing.assert_array_equal(emulated(alive, lengths, count), alive.reference(lengths, count))
    np.testing.assert_array_equal(emulated(alive, lengths[::3], count), alive.reference(lengths[::3], count))
    assert emulated(alive, lengths[:0], count).shape == (0, count)


@pytest.mark.parametrize(
    ("letters", "values", "shape", "dtype"),
    [
        ("ii", (33,), (33, 33), "f4"),
        ("ii", (1,), (5, 5), "f4"),
        ("iji", (4, 7), (4, 7, 4), "f2"),
        ("kiik", (3, 1), (3, 5, 5, 3), "f8"),
    ],
)
def test_values_go_to_diagonals(rng, letters, values, shape, dtype):
    values = rng.standard_normal(values).astype(dtype)
    wanted = ontoDiagonal.reference(values, letters, shape)
    np.testing.assert_array_equal(emulated(ontoDiagonal, values, letters, shape), wanted)
    if values.ndim > 1:
        found = emulated(ontoDiagonal, np.asfortranarray(values), letters, shape)
        np.testing.assert_array_equal(found, wanted)
