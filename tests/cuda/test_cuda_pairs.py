"""Products of pairs of vectors on a GPU: in the emulator, against the references."""

import numpy as np
import pytest
from launches import emulated, needsEmulator

from puregraph.ops.product.pairwisedot import pairDots, pairDotsGrad

pytestmark = needsEmulator
CLOSE = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-13}


@pytest.mark.parametrize(("dtype", "count"), [("float32", 2), ("float32", 27), ("float16", 31), ("float64", 5)])
def test_each_two_vectors_meet(rng, dtype, count):
    xs = [rng.standard_normal((3, 33)).astype(dtype) for _ in range(count)]
    xs[1] = np.asfortranarray(xs[1])
    grad = rng.standard_normal((3, count * (count - 1) // 2)).astype(dtype)
    tolerance = CLOSE[dtype]
    np.testing.assert_allclose(emulated(pairDots, *xs), pairDots.reference(*xs), tolerance, 10 * tolerance)
    found, wanted = emulated(pairDotsGrad, grad, *xs), pairDotsGrad.reference(grad, *xs)
    np.testing.assert_allclose(found, wanted, tolerance, 10 * tolerance)


def test_vectors_that_are_too_long_are_left_to_others():
    xs = [np.zeros((1, 30000), "f4")] * 2
    assert pairDots.implementations["cuda"](np.zeros((1, 1), "f4"), *xs) is NotImplemented
    assert pairDots.implementations["cuda"](np.zeros((0, 1), "f4"), *[x[:0, :5] for x in xs]) == []
