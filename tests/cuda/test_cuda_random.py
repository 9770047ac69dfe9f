"""Random numbers on a GPU: in the emulator, the same as numpy's to the last bit."""

import numpy as np
import pytest
from launches import emulated, misplaced, needsEmulator

from puregraph.ops.random.reference import normal, uniform

pytestmark = needsEmulator
KEY, COUNTER = 2**64 - 3, 2**63 + 1


@pytest.mark.parametrize("draw", [uniform, normal], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_are_those_of_the_cpu(draw, dtype):
    for shape in ((), (1,), (31,), (3, 11), (257, 33), (0, 4)):
        found = emulated(draw, shape, KEY, COUNTER, dtype)
        np.testing.assert_array_equal(found, draw.reference(shape, KEY, COUNTER, dtype))


def test_key_and_counter_are_read_from_memory():
    key, counter = np.array(KEY, np.uint64), np.array(9, np.int64)
    np.testing.assert_array_equal(emulated(uniform, (33,), key, counter), uniform.reference((33,), KEY, 9))
    np.testing.assert_array_equal(emulated(uniform, (33,), np.uint64(KEY), 9), uniform.reference((33,), KEY, 9))


def test_numbers_go_anywhere():
    found = emulated(uniform, (33,), KEY, 0, strides=lambda *like: misplaced(np.empty(*like)))
    np.testing.assert_array_equal(found, uniform.reference((33,), KEY, 0))
    assert uniform.implementations["cuda"](np.empty((4, 6), "f4")[:, ::2], (4, 3), 1, 2) is NotImplemented
