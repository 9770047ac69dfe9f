"""Gradients, tangents and second derivatives of cumulations, against central differences and along each other."""

import numpy as np
import pytest

from puregraph import ShapeError
from puregraph.autodiff import Variable, grad, jvp
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate

STEP = 1e-6
CASES = [(kind, exclusive, reverse) for kind in UFUNCS for exclusive in (False, True) for reverse in (False, True)]


def difference(f, x, t):
    """The central difference of a function along a direction; 0 where the result is a constant, infinite or not."""
    more, less = f(x + STEP * t), f(x - STEP * t)
    isConstant = more == less
    return np.where(isConstant, 0, np.where(isConstant, 0, more) - np.where(isConstant, 0, less)) / (2 * STEP)


def dataOf(value):
    return np.asarray(value.data if isinstance(value, Variable) else value)


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 7), 1), ((4, 1), 1), ((3, 4, 2), -2)], ids=str)
@pytest.mark.parametrize(("kind", "exclusive", "reverse"), CASES)
def test_first_and_second_derivatives(rng, kind, exclusive, reverse, shape, axis):
    x, g, t, w = (rng.standard_normal(shape) for _ in range(4))
    if kind == "product":
        x.reshape(-1)[::3] = 0

    def f(x):
        return cumulate(x, axis, kind, exclusive, reverse)

    tangent = jvp(f, (x,), (t,))[1]
    np.testing.assert_allclose(tangent, difference(f, x, t), 1e-6, 1e-7)

    def gradAt(x, g, create=False):
        return grad(f(x), x, g, create_graph=create)[0]

    v, seed = Variable(x, requires_grad=True), Variable(g, requires_grad=True)
    dx = gradAt(v, seed, create=True)
    np.testing.assert_allclose((dataOf(dx) * t).sum(), (g * tangent).sum(), 1e-10)
    twice, once = grad(dx, (v, seed), w, allow_unused=True)
    np.testing.assert_allclose(dataOf(once), jvp(f, (x,), (w,))[1], 1e-10, 1e-12)
    moved = difference(lambda x: dataOf(gradAt(Variable(x, requires_grad=True), g)), x, t)
    found = 0.0 if twice is None else (dataOf(twice) * t).sum()
    np.testing.assert_allclose(found, (moved * w).sum(), 1e-5, 1e-6)


def test_the_first_of_equal_maxima_has_the_gradient_and_nan_has_its_own():
    x = Variable(np.array([1.0, 3.0, 3.0, 2.0, np.nan, 5.0]), requires_grad=True)
    (dx,) = grad(cumulate(x, 0, "maximum"), x, np.ones(6))
    assert dataOf(dx).tolist() == [1, 3, 0, 0, 2, 0]


def test_elements_of_minus_infinity_have_no_part_in_a_log_sum():
    x = Variable(np.array([-np.inf, 0.0, -np.inf, 0.0]), requires_grad=True)
    (dx,) = grad(cumulate(x, 0, "logSumExp"), x, np.array([0.0, 1.0, 1.0, 1.0]))
    np.testing.assert_allclose(dataOf(dx), [0, 2.5, 0, 0.5])


@pytest.mark.parametrize("kind", UFUNCS)
def test_an_axis_without_elements(kind):
    x = Variable(np.zeros((2, 0)), requires_grad=True)
    (dx,) = grad(cumulate(x, 1, kind), x, np.zeros((2, 0)))
    assert dataOf(dx).shape == (2, 0)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ShapeError, match="cumulate.*wanted one of sum, product, maximum, logSumExp, got 'mean'"):
        cumulate(np.ones(3), 0, "mean")
    with pytest.raises(ShapeError, match="wanted axis from -1 to 0, got 1"):
        cumulate(np.ones(3), 1)
