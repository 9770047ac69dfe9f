"""The special functions against the C library, known values and what relates them to each other."""

import math
import sys

import numpy as np
import pytest
from fakecupy import FakeArray, makeCupy

from puregraph.ops import special
from puregraph.ops.special.flat import L2_BLOCK_ELEMENTS

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
    x = np.linspace(0.1, 0.95, L2_BLOCK_ELEMENTS + 3)
    for name in NAMES:
        function = getattr(special, name)
        np.testing.assert_array_equal(function(x)[-3:], function(x[-3:]))


def test_what_the_gpu_has_no_function_for_is_computed_on_the_host(monkeypatch):
    cupy = makeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", None)
    x = np.array([0.3, 2.5])
    for found, wanted in [
        (special.ndtri(cupy.asarray(x)), special.ndtri(x)),
        (special.polygamma(2, cupy.asarray(x)), special.polygamma(2, x)),
        (special.ive(np.float64(1), cupy.asarray(x)), special.ive(1, x)),
    ]:
        assert isinstance(found, FakeArray)
        np.testing.assert_array_equal(found.values, wanted)


# ---- erfcx, the normal quantile, erfinv -------------------------------------------------------------------------


def test_erfcx_is_erfc_without_its_decay():
    x = np.concatenate([np.linspace(-6, 26, 2001), [0.46874, 0.46876, 3.99999, 4.00001]])
    wanted = [math.exp(v * v) * math.erfc(v) for v in x]  # exp rounds its exponent: an error of about x^2 units
    np.testing.assert_allclose(special.erfcx(x), wanted, rtol=2e-13)
    far = np.array([1e2, 1e4, 1e8, 1e60])
    series = (1 - 0.5 / far**2 + 0.75 / far**4) / (far * math.sqrt(math.pi))
    np.testing.assert_allclose(special.erfcx(far[:3]), series[:3], rtol=4e-12)  # the next term
    np.testing.assert_allclose(special.erfcx(far[1:]), 1 / (far[1:] * math.sqrt(math.pi)), rtol=1e-8)


def test_the_normal_quantile_has_its_known_values_and_undoes_the_distribution():
    known = {0.975: 1.959963984540054, 0.995: 2.5758293035489004, 0.75: 0.6744897501960817, 1e-10: -6.361340902404056}
    np.testing.assert_allclose(special.ndtri(np.array(list(known))), list(known.values()), rtol=4e-16)
    p = np.concatenate([np.linspace(1e-4, 1 - 1e-4, 1001), np.logspace(-300, -4, 200)])
    x = special.ndtri(p)
    spread = np.maximum(1, x * x)  # how the distribution magnifies an error of x
    assert (np.abs(0.5 * special.erfc(-x * math.sqrt(0.5)) / p - 1) <= 1e-15 * spread * 3).all()


def test_erfinv_undoes_erf_with_full_relative_accuracy_near_zero():
    x = np.concatenate([np.linspace(-2.5, 2.5, 1001), np.logspace(-300, -1, 200)])
    condition = np.exp(x * x)  # near 1 erf hardly moves
    assert (np.abs(special.erfinv(special.erf(x)) - x) <= 1e-15 * (np.abs(x) + condition * (np.abs(x) > 0.1))).all()
    np.testing.assert_allclose(
        special.erfinv(np.array([0.5, -0.5])), [0.4769362762044699, -0.4769362762044699], rtol=4e-16
    )


# ---- lgamma near its zeros, polygamma, Bessel functions ---------------------------------------------------------


def test_lgamma_keeps_its_digits_where_it_is_zero():
    assert special.lgamma(np.array([1.0, 2.0])).tolist() == [0, 0]
    gamma, h = 0.57721566490153286, np.array([1e-3, -1e-5, 1e-8, -1e-12])
    near = [-gamma, math.pi**2 / 12, -1.2020569031595942 / 3, math.pi**4 / 360]  # the Taylor series at 1
    exact = (1 + h) - 1  # what is left of h in 1 + h
    wanted = sum(c * exact**k for k, c in enumerate(near, start=1))
    np.testing.assert_allclose(special.lgamma(1 + h)[1:], wanted[1:], rtol=1e-15)
    np.testing.assert_allclose(special.lgamma(1 + h)[0], wanted[0], rtol=1e-12)


@pytest.mark.parametrize("n", range(6))
def test_polygamma_obeys_its_recurrence_on_both_sides_of_zero(n):
    x = np.array([1e-3, 0.3, 1.0, 2.5, 9.9, 10.1, 40.0, 1e4, -0.3, -1.7, -4.25, -20.5, -1e3 - 0.25])
    step = special.polygamma(n, x + 1) - special.polygamma(n, x)
    wanted = (-1) ** n * math.factorial(n) * x ** -(n + 1.0)
    scale = np.abs(special.polygamma(n, x)) + np.abs(wanted)
    below = (x < 0) * math.factorial(n) * 5.0**n  # the size of what cancels there
    assert (np.abs(step - wanted) <= 4e-15 * (scale + below)).all()


def test_polygamma_has_its_known_values():
    zeta3 = 1.2020569031595942854
    np.testing.assert_allclose(special.polygamma(2, np.array([1.0, 0.5])), [-2 * zeta3, -14 * zeta3], rtol=1e-15)
    np.testing.assert_allclose(special.polygamma(3, np.array([1.0, 0.5])), [math.pi**4 / 15, math.pi**4], rtol=2e-15)
    x = np.array([1e5, 1e8])  # (-1)^(n+1) (n-1)! / x^n (1 + n / 2x)
    np.testing.assert_allclose(special.polygamma(4, x), -6 / x**4 * (1 + 2 / x), rtol=1e-9)


def test_orders_may_be_an_array_and_must_be_whole_numbers():
    n, x = np.array([[0.0], [1.0], [2.0]]), np.array([0.5, 3.0])
    found = special.polygamma(n, x)
    assert found.shape == (3, 2)
    for i in range(3):
        np.testing.assert_array_equal(found[i], special.polygamma(i, x))
    assert np.isnan(special.polygamma(np.array([0.5, -1.0]), x)).all() and np.isnan(special.polygamma(1.5, x)).all()
    assert special.ive(np.float32(2), x.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(special.ive(-3, x), special.ive(3, x))
    assert np.isfinite(special.ive(30, np.logspace(-3, 4, 50))).all() and np.isnan(special.ive(31, x)).all()


def test_bessel_functions_have_their_known_values():
    known = {  # Abramowitz and Stegun, tables 9.8 and 9.9, and the sum of their series
        (0, 1.0): 1.2660658777520084,
        (1, 1.0): 0.5651591039924851,
        (0, 2.5): 3.2898391440501231,
        (1, 2.5): 2.5167162452886984,
        (2, 1.0): 0.1357476697670383,
        (0, 20.0): 43558282.559553533,
    }
    for (n, x), wanted in known.items():
        np.testing.assert_allclose(special.ive(n, np.array([x])), wanted * math.exp(-x), rtol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_bessel_functions_obey_their_recurrence_where_series_and_asymptotics_meet(n):
    x = np.concatenate([np.linspace(-90, 90, 721), [29.999, 30.001, 1e3, 1e4]])
    x = x[np.abs(x) > 0.5]
    below, here, above = (special.ive(k, x) for k in (n - 1, n, n + 1))
    np.testing.assert_allclose(below - above, 2 * n / x * here, rtol=0, atol=2e-15)
    np.testing.assert_allclose(special.ive(0, x), 1 / np.sqrt(2 * math.pi * np.abs(x)), rtol=0.4)


@pytest.mark.peers
def test_special_functions_agree_with_torch_on_a_dense_grid():
    import torch

    x = np.concatenate([np.linspace(-40, 40, 4001), np.logspace(-8, 4, 200)])
    t = torch.tensor(x)
    for ours, theirs in {
        special.erfcx: torch.special.erfcx,
        special.erfinv: torch.special.erfinv,
        special.ndtri: torch.special.ndtri,
        special.digamma: torch.special.digamma,
    }.items():
        np.testing.assert_allclose(ours(x), theirs(t), rtol=1e-11, atol=1e-13)
    for n, theirs in enumerate([torch.special.i0e, torch.special.i1e]):
        np.testing.assert_allclose(special.ive(n, x), theirs(t), rtol=1e-13, atol=1e-15)
    positive = x[x > 0]
    for n in range(2, 6):
        wanted = torch.special.polygamma(n, torch.tensor(positive))
        np.testing.assert_allclose(special.polygamma(n, positive), wanted, rtol=1e-13)
