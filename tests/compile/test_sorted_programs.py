"""Sorting in a compiled step: native, and the same as numpy's stable sort."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative
from test_simpler import programOf

from puregraph import Sequential, TopKValues

pytestmark = needsNative


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_argsort_in_a_step_is_native_and_stable(rng, dtype):
    x = np.round(2 * rng.standard_normal((9, 200))).astype(np.float32)
    for axis in (0, -1, None):

        def positions(x):
            return np.argsort(x.astype(dtype), axis=axis, kind="stable")  # noqa: B023 - called before the loop goes on

        program = programOf(positions, x)
        assert not leftToNumpy(program) and np.array_equal(program.run(x), positions(x))


@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_and_their_gradient_are_native(rng, axis):
    x, g = rng.standard_normal((40, 70)).astype(np.float32), rng.standard_normal((40, 70)).astype(np.float32)
    net = Sequential(TopKValues(7, axis))
    g = g[:7] if axis == 0 else g[:, :7]
    program = net.compile([x.shape], train=True)
    assert not leftToNumpy(program)
    values, indices = net(x)
    net.backward([g, None])
    assert all(np.array_equal(a, b) for a, b in zip(program.run(x, g, np.zeros_like(indices)), (values, indices)))
    np.testing.assert_array_equal(program.grad, net.grad)
