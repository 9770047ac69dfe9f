"""A window sum along any axis: with its derivatives, compiled, and on a GPU."""

import numpy as np
import pytest
from launches import emulated, needsEmulator
from natively import needsNative
from test_simpler import assertSame

import puregraph as pg
from puregraph.autodiff.derivatives.declarations import jvpOf, vjpOf
from puregraph.autodiff.forward.vmap import Samples
from puregraph.ops.kernels import windowSum

CASES = [((7,), 0, 3), ((4, 9), -1, 9), ((5, 3, 6), 1, 2), ((2, 6, 3), -2, 1), ((3, 4, 5, 2), 0, 2)]
cases = pytest.mark.parametrize(("shape", "axis", "size"), CASES)


def drawn(shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@cases
def test_each_element_is_the_sum_of_a_window(shape, axis, size):
    x = drawn(shape, np.float64)
    wanted = np.apply_along_axis(lambda row: np.convolve(row, np.ones(size), "valid"), axis, x)
    found = windowSum(x, axis, size)
    assert found.dtype == x.dtype and windowSum.shapeRule(x, axis, size) == (found.shape, found.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("axis", "size"), [(0, 4), (0, 0), (1, 2), (-2, 2)])
def test_a_window_that_does_not_fit_is_refused(axis, size):
    with pytest.raises(pg.ShapeError, match="windowSum: wanted"):
        windowSum(np.ones(3), axis, size)


@cases
def test_its_gradient_is_the_adjoint_and_its_tangent_itself(shape, axis, size):
    x, t = drawn(shape, np.float64), drawn(shape, np.float64)[::-1].copy()
    y, tangent = jvpOf(windowSum)(windowSum, [x, axis, size], [t, None, None], {})
    assert np.array_equal(tangent, windowSum(t, axis, size)) and np.array_equal(y, windowSum(x, axis, size))
    g = np.cos(np.arange(y.size, dtype=float)).reshape(y.shape)
    dx, *rest = vjpOf(windowSum)(g, y, (x, axis, size), {}, (True, False, False))
    assert dx.shape == x.shape and rest == [None, None]
    np.testing.assert_allclose(np.vdot(dx, t), np.vdot(g, tangent), rtol=1e-10)


@cases
def test_many_samples_at_once_are_each_sample(shape, axis, size):
    x = drawn((4, *shape))
    found = windowSum(Samples(x), axis, size)
    assert all(np.array_equal(found.batch[i], windowSum(x[i], axis, size)) for i in range(4))


@needsNative
@cases
def test_compiled_it_and_its_gradient_are_native_and_the_same(shape, axis, size):
    x, y = drawn(shape), windowSum(drawn(shape), axis, size)
    assertSame(lambda x: windowSum(x, axis, size), x)
    adjoint = windowSum.declarations["adjoint"]
    assertSame(lambda x, g: adjoint(g, None, x, axis, size), x, y)


@needsNative
def test_any_layout_of_its_argument_gives_the_same():
    x = drawn((4, 5, 6))
    for each in (x.transpose(2, 0, 1), np.asfortranarray(x)):
        assertSame(lambda x: windowSum(np.swapaxes(x, 0, 1), 1, 3), each)


@needsEmulator
@cases
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_its_launches_give_the_same(shape, axis, size, dtype):
    for x in (drawn(shape, dtype), np.asfortranarray(drawn(shape, dtype))):
        np.testing.assert_allclose(emulated(windowSum, x, axis, size), windowSum(x, axis, size), rtol=1e-5, atol=1e-5)


def test_its_operations_are_counted():
    x = drawn((5, 6))
    assert windowSum.declarations["flops"](windowSum(x, 1, 3), x, 1, 3) == 5 * 4 * 3
