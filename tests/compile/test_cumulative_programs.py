"""Cumulative functions of numpy in a compiled step: native, and the same as numpy to the last bit."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative
from test_simpler import programOf

from puregraph import CumProd, CumSum, Sequential

SUMMED = {
    "along an axis": lambda x: np.cumsum(x, axis=1),
    "of all": lambda x: np.cumsum(x),
    "a method, from the last": lambda x: x.cumsum(-1),
    "in a dtype": lambda x: np.cumsum(x, 0, np.float64),
    "of a view": lambda x: np.cumsum(x[:, ::-2].T, axis=0),
    "products": lambda x: np.cumprod(x, axis=0),
    "of booleans": lambda x: np.cumsum(x > 0, axis=1),
    "added up": lambda x: np.add.accumulate(x),
    "the largest so far": lambda x: np.maximum.accumulate(x, axis=1),
}


@needsNative
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("rule", SUMMED.values(), ids=SUMMED)
def test_it_is_native_and_equal(rng, rule, dtype):
    x = (3 * rng.standard_normal((7, 10))).astype(np.float32)

    def converted(x):
        return rule(x.astype(dtype))

    program = programOf(converted, x)
    assert not leftToNumpy(program)
    found, wanted = program.run(x), converted(x)
    assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


@needsNative
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradients_of_modules_are_native(rng, axis):
    x, g = (rng.standard_normal((4, 5, 6)).astype(np.float32) for _ in range(2))
    net = Sequential(CumProd(axis, exclusive=True), CumSum(axis, reverse=True))
    program = net.compile([x.shape], train=True)
    assert not leftToNumpy(program)
    net(x)
    net.backward(g)
    wanted = net.grad.copy()
    program.run(x, g)
    np.testing.assert_allclose(program.grad, wanted, 1e-4, 1e-4)
