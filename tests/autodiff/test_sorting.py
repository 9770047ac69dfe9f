"""Gradients, tangents and second derivatives of sorted elements, which only move; and what is refused."""

import numpy as np
import pytest

from puregraph import ShapeError
from puregraph.autodiff import Variable, grad, jvp
from puregraph.ops.order.reference import sortAlong

STEP = 1e-6


def dataOf(value):
    return np.asarray(value.data if isinstance(value, Variable) else value)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("shape", "axis", "count"), [((5,), 0, 5), ((2, 7), 1, 3), ((3, 4, 2), -2, 2), ((1, 1), 0, 1)])
def test_first_and_second_derivatives(rng, shape, axis, count, largest):
    x, t = rng.permutation(int(np.prod(shape))).reshape(shape) * 0.5, rng.standard_normal(shape)

    def f(x):
        return sortAlong(x, axis, count, largest)[0] ** 3

    wanted = (f(x + STEP * t) - f(x - STEP * t)) / (2 * STEP)
    np.testing.assert_allclose(jvp(f, (x,), (t,))[1], wanted, 1e-6, 1e-6)
    g = rng.standard_normal(wanted.shape)

    def gradAt(x, create=False):
        return grad(f(x), x, g, create_graph=create)[0]

    v = Variable(x, requires_grad=True)
    dx = gradAt(v, create=True)
    np.testing.assert_allclose((dataOf(dx) * t).sum(), (g * wanted).sum(), 1e-6, 1e-9)
    w = rng.standard_normal(shape)
    (twice,) = grad(dx, v, w)
    ends = [dataOf(gradAt(Variable(x + s * STEP * t, requires_grad=True))) for s in (1, -1)]
    np.testing.assert_allclose((dataOf(twice) * t).sum(), ((ends[0] - ends[1]) * w).sum() / (2 * STEP), 1e-5, 1e-6)


def test_of_equal_elements_the_first_has_the_gradient():
    x = Variable(np.array([2.0, 5.0, np.nan, 5.0, 2.0]), requires_grad=True)
    assert dataOf(grad(sortAlong(x, 0, 2)[0], x, np.array([1.0, 2.0]))[0]).tolist() == [1, 0, 0, 0, 2]
    assert dataOf(grad(sortAlong(x, 0, 2, True)[0], x, np.array([1.0, 2.0]))[0]).tolist() == [0, 2, 1, 0, 0]


def test_more_elements_than_there_are_are_refused():
    with pytest.raises(ShapeError, match="sortAlong.*wanted a count from 0 to 3, got 4"):
        sortAlong(np.ones((2, 3)), 1, 4)
