"""Elements read and written by an index along an axis on a GPU: in the emulator, against the reference."""

import numpy as np
import pytest
from alongcases import Along, same
from launches import emulated, needsEmulator

from puregraph.ops.gather.alongaxis import KINDS, OUTSIDE_INDEX, putAlong, takeAlong, wrapIndex

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64"]
SIZES = ((1, 2, 3, 5, 33, 70), 4000)


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_reading_any_layout_and_axis(dtype):
    for seed in range(8):
        drawn = Along([seed, 5], dtype, *SIZES)
        found = emulated(takeAlong, drawn.x, drawn.index, drawn.axis)
        assert same(found, takeAlong.reference(drawn.x, drawn.index, drawn.axis))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_writing_any_layout_and_axis(kind, dtype):
    for seed in range(8):
        drawn = Along([seed, 6], dtype, *SIZES, isShort=True)
        found = emulated(putAlong, drawn.x, drawn.index, drawn.updates, drawn.axis, kind)
        with np.errstate(all="ignore"):
            wanted = putAlong.reference(drawn.x, drawn.index, drawn.updates, drawn.axis, kind)
        assert same(found + found.dtype.type(0), wanted + wanted.dtype.type(0)), (seed, drawn.shape)


def test_indices_of_32_bits_and_out_of_range():
    x, index = np.arange(6.0, dtype="f4").reshape(3, 2), np.array([[0, -1], [3, -4]], np.int32)
    found = emulated(takeAlong, x, index, 0)
    assert np.array_equal(found[0], [0, 5]) and np.isnan(found[1]).all()
    assert np.array_equal(emulated(wrapIndex, index, 3), [[0, 2], [OUTSIDE_INDEX, OUTSIDE_INDEX]])
    assert np.array_equal(emulated(putAlong, x, index, np.full((2, 2), 9, "f4"), 0), [[9, 1], [2, 3], [4, 9]])


def test_of_nothing():
    assert emulated(takeAlong, np.zeros((3, 2)), np.zeros((0, 2), int), 0).shape == (0, 2)
    assert np.array_equal(
        emulated(putAlong, np.ones((3, 2)), np.zeros((0, 2), int), np.zeros((0, 2)), 0), np.ones((3, 2))
    )
