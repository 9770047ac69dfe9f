"""Derivatives of reading and writing along an axis: against central differences, each order against the one before."""

import numpy as np
import pytest
from directions import dataOf, verify

from puregraph import ShapeError
from puregraph.autodiff import Variable, grad
from puregraph.ops.gather.alongaxis import KINDS, putAlong, takeAlong


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((3, 7), 1), ((4, 2, 3), -3)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_writing(rng, kind, shape, axis):
    lengths = [6 if a == axis % len(shape) else n for a, n in enumerate(shape)]
    index = rng.integers(-shape[axis], shape[axis], lengths)
    x, updates = rng.permutation(np.arange(50.0))[: np.prod(shape)].reshape(shape), rng.standard_normal(lengths) * 30
    verify(rng, lambda x, u: putAlong(x, index, u, axis, kind), x / 30, updates / 30)


def test_writing_less_than_all_lines(rng):
    index = np.array([[0, -1, 2, 2]])
    verify(rng, lambda x, u: putAlong(x, index, u, 1), rng.standard_normal((3, 5)), rng.standard_normal((1, 4)))


def test_reading(rng):
    index = rng.integers(-4, 4, (4, 6))
    verify(rng, lambda x: takeAlong(x, index, 1) ** 2, rng.standard_normal((4, 4)))
    verify(rng, lambda x: np.take_along_axis(x, index[:, :1], 0) ** 2, rng.standard_normal((4, 3)))


def test_a_product_with_zeros():
    x, u = Variable(np.array([0.0, 2.0]), requires_grad=True), Variable(np.array([3.0, 0.0, 5.0]), requires_grad=True)
    y = putAlong(x, np.array([0, 1, 0]), u, 0, "multiply")
    dx, du = grad(y, (x, u), np.ones(2))
    assert dataOf(dx).tolist() == [15, 0] and dataOf(du).tolist() == [0, 2, 0]


@pytest.mark.parametrize("zeros", [(), (0,), (2,), (0, 1), (0, 3), (2, 4), (0, 2, 4)], ids=str)
def test_the_second_derivative_of_a_product_with_zeros_is_that_of_the_product_written_out(rng, zeros):
    values = rng.uniform(0.5, 2, 5)
    values[list(zeros)] = 0
    v = Variable(values, requires_grad=True)
    y = putAlong(v[:2], np.array([0, 1, 0]), v[2:], 0, "multiply")
    wanted = [v[0] * v[2] * v[4], v[1] * v[3]]
    for i, other in enumerate(wanted):
        first, again = [grad(out, v, create_graph=True)[0] for out in (y[i], other)]
        assert np.allclose(dataOf(first), dataOf(again), 1e-12)
        direction = rng.standard_normal(5)
        second, repeated = [grad((g * direction).sum(), v, retain_graph=True)[0] for g in (first, again)]
        assert np.allclose(dataOf(second), dataOf(repeated), 1e-12, 1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_does_not_fit_is_refused(axis):
    with pytest.raises(ShapeError, match=f"an index as x but along axis {axis}"):
        takeAlong(np.zeros((2, 3)), np.zeros((4, 5), int), axis)
    with pytest.raises(ShapeError, match="putAlong.*one of set, add, multiply, minimum, maximum, got 'mean'"):
        putAlong(np.zeros(3), np.zeros(2, int), np.zeros(2), 0, "mean")
    with pytest.raises(ShapeError, match="index and updates of one shape"):
        putAlong(np.zeros(3), np.zeros(2, int), np.zeros(1), 0)
