"""The special functions against the C library, known values and what relates them to each other."""

import math

import numpy as np
import pytest

from puregraph import special

NAMES = ["erf", "erfc", "erfcx", "erfinv", "ndtri", "lgamma", "digamma"]
GRID = np.concatenate([np.linspace(-30, 30, 20001), np.logspace(-300, 2, 500), -np.logspace(-300, 2, 500)])


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_the_error_functions_have_full_relative_accuracy_even_in_the_tail(name):
    wanted = [getattr(math, name)(x) for x in GRID]
    np.testing.assert_allclose(getattr(special, name)(GRID), wanted, rtol=2e-15, atol=1e-322)  # subnormal


def test_erf_in_float32_is_within_four_units_of_the_last_place():
    x = np.linspace(-6, 6, 20000, dtype=np.float32)
    y = special.erf(x)
    assert np.abs(y).max() == 1
    np.testing.assert_allclose(y, [math.erf(v) for v in x], rtol=5e-7)


def test_lgamma_agrees_with_the_c_library_away_from_its_poles():
    x = GRID[np.abs(GRID - np.rint(GRID)) > 1e-6]
    np.testing.assert_allclose(special.lgamma(x), [math.lgamma(v) for v in x], rtol=1e-14, atol=1e-14)


def test_digamma_and_trigamma_have_their_known_values():
    gamma = 0.57721566490153286
    x = np.array([1.0, 2.0, 0.5, 10.0])
    digamma = [-gamma, 1 - gamma, -gamma - 2 * math.log(2), sum(1 / k for k in range(1, 10)) - gamma]
    trigamma = [math.pi**2 / 6, math.pi**2 / 6 - 1, math.pi**2 / 2, math.pi**2 / 6 - sum(k**-2 for k in range(1, 10))]
    np.testing.assert_allclose(special.digamma(x), digamma, rtol=2e-15, atol=2e-15)
    np.testing.assert_allclose(special.polygamma(1, x), trigamma, rtol=4e-15)


def test_digamma_and_trigamma_obey_reflection_below_zero():
    x = np.array([-0.3, -1.7, -4.25, -20.5])
    cotangent = math.pi / np.tan(math.pi * x)
    np.testing.assert_allclose(special.digamma(1 - x) - special.digamma(x), cotangent, rtol=1e-13, atol=1e-13)
    both = special.polygamma(1, 1 - x) + special.polygamma(1, x)
    np.testing.assert_allclose(both, (math.pi / np.sin(math.pi * x)) ** 2, rtol=1e-13)


@pytest.mark.parametrize(
    "name, at, wanted",
    [
        ("erf", [-np.inf, -0.0, np.inf, np.nan], [-1, -0.0, 1, np.nan]),
        ("erfc", [-np.inf, 0, np.inf, np.nan], [2, 1, 0, np.nan]),
        ("lgamma", [-np.inf, -1, 0, 1, 2, np.inf, np.nan], [np.inf, np.inf, np.inf, 0, 0, np.inf, np.nan]),
        ("digamma", [-1, 0, -0.0, np.inf, np.nan], [np.nan, -np.inf, np.inf, np.inf, np.nan]),
        ("erfcx", [-np.inf, -30, 0, np.inf, np.nan], [np.inf, np.inf, 1, 0, np.nan]),
        ("erfinv", [-1, -0.0, 1, 1.5, np.nan], [-np.inf, -0.0, np.inf, np.nan, np.nan]),
        ("ndtri", [0, 0.5, 1, -0.5, np.nan], [-np.inf, 0, np.inf, np.nan, np.nan]),
    ],
)
def test_the_ends_and_the_poles_are_right(name, at, wanted):
    for dtype in (np.float32, np.float64):
        found = getattr(special, name)(np.array(at, dtype))
        np.testing.assert_allclose(found, wanted, atol=1e-14)
        np.testing.assert_array_equal(np.signbit(found[1]), np.signbit(wanted[1]))


@pytest.mark.parametrize("name", NAMES)
def test_shape_and_dtype_are_those_of_the_argument(name):
    function = getattr(special, name)
    for dtype in (np.float16, np.float32, np.float64):
        x = np.linspace(0.05, 0.9, 24, dtype=dtype).reshape(2, 3, 4).swapaxes(0, 2)
        y = function(x)
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        assert y[1, 2, 1] == function(x[1, 2, 1])
    assert function(np.ones((0, 3), np.float32)).shape == (0, 3)
    assert function(1) == function(1.0)


def test_results_do_not_depend_on_the_block_they_are_computed_in():
    x = np.linspace(0.1, 0.95, special.BLOCK + 3)
    for name in NAMES:
        function = getattr(special, name)
        np.testing.assert_array_equal(function(x)[-3:], function(x[-3:]))
