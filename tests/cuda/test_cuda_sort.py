"""Sorting along an axis on a GPU: in the emulator, against numpy's stable sort."""

import numpy as np
import pytest
from launches import emulated, needsEmulator
from orderings import AlongAxis

from puregraph.ops.order.reference import SHARED_SORT_ELEMENTS, sortAlong

pytestmark = needsEmulator


def same(x, axis, count, largest):
    found, wanted = emulated(sortAlong, x, axis, count, largest), sortAlong.reference(x, axis, count, largest)
    return np.array_equal(found[1], wanted[1]) and found[0].tobytes() == np.ascontiguousarray(wanted[0]).tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64"])
def test_any_layout_and_axis(dtype):
    for seed in range(8):
        drawn = AlongAxis([seed, 5], (1, 2, 3, 5, 33, 70, 300), 4000)
        x = drawn.laidOut(drawn.values(dtype))
        n = x.shape[drawn.axis]
        assert same(x, drawn.axis, drawn.pick(n, int(drawn.rng.integers(0, n + 1))), drawn.isOn())


@pytest.mark.parametrize("largest", [False, True])
def test_lines_that_no_block_has_room_for(rng, largest):
    x = np.round(rng.standard_normal((2, SHARED_SORT_ELEMENTS + 1)).astype("f4"), 1)
    x[0, ::100] = np.nan
    assert same(x, 1, 30, largest) and same(np.asfortranarray(x), 1, SHARED_SORT_ELEMENTS + 1, largest)


def test_of_nothing():
    for shape in ((0, 3), (3, 0)):
        values, indices = emulated(sortAlong, np.zeros(shape), 0, shape[0])
        assert values.shape == indices.shape == shape
