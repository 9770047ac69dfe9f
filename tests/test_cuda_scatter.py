"""Reading rows by index and adding gradients back, on a GPU: in the emulator, against the numpy references."""

import numpy as np
import pytest
from launches import emulated, misplaced, needsEmulator

from puregraph.kernels.scatter import gather

pytestmark = needsEmulator


@pytest.mark.parametrize("width", [(), (1,), (7,), (8,), (3, 4), (257,)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gather_reads_rows(rng, width, dtype):
    table = rng.standard_normal((33, *width)).astype(dtype)
    index = rng.integers(-1, 33, (5, 7))
    np.testing.assert_array_equal(emulated(gather, table, index), gather.reference(table, index))


@pytest.mark.parametrize("place", ["index", "table", "strides"])
def test_gather_reads_from_anywhere(rng, place):
    table, index = rng.standard_normal((9, 8)).astype("f4"), rng.integers(0, 9, 31).astype("i4")
    given = (misplaced(table), index) if place == "table" else (table, misplaced(index))
    if place == "strides":
        given = np.asfortranarray(table), np.repeat(index, 3)[::3]
    np.testing.assert_array_equal(emulated(gather, *given), table[index])


def test_gather_of_nothing():
    assert emulated(gather, np.ones((3, 2), "f4"), np.zeros((0,), "i8")).shape == (0, 2)
    assert emulated(gather, np.ones((0, 2), "f4"), np.full(3, -1)).tolist() == [[0, 0]] * 3
