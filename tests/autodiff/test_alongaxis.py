"""Derivatives of reading and writing along an axis: against central differences, each order against the one before."""

import numpy as np
import pytest

from puregraph import ShapeError
from puregraph.autodiff import Variable, grad, jvp
from puregraph.ops.gather.alongaxis import KINDS, putAlong, takeAlong

STEP = 1e-6


def directional(f, xs, ts):
    """The central difference along a direction."""
    more, less = (f(*[x + sign * STEP * t for x, t in zip(xs, ts)]) for sign in (1, -1))
    return (more - less) / (2 * STEP)


def dataOf(value):
    return np.asarray(value.data if isinstance(value, Variable) else value)


def verify(rng, f, *xs, near=1e-6):
    """First and second derivatives in both modes."""
    ts = [rng.standard_normal(x.shape) for x in xs]
    change = jvp(f, xs, tuple(ts))[1]
    np.testing.assert_allclose(change, directional(f, xs, ts), near, near)
    g = rng.standard_normal(change.shape)

    def slopes(*values):
        return grad(f(*values), values, g, create_graph=True)

    def slopesAt(*arrays):
        return np.concatenate([dataOf(d).ravel() for d in slopes(*[Variable(x, requires_grad=True) for x in arrays])])

    variables = [Variable(x, requires_grad=True) for x in xs]
    dxs = slopes(*variables)
    np.testing.assert_allclose(sum((dataOf(d) * t).sum() for d, t in zip(dxs, ts)), (g * change).sum(), 1e-9)
    ws = [rng.standard_normal(x.shape) for x in xs]
    total = sum((d * w).sum() for d, w in zip(dxs, ws))
    twice = grad(total, variables, allow_unused=True) if total.requires_grad else [None] * len(xs)
    found = sum(0 if h is None else (dataOf(h) * t).sum() for h, t in zip(twice, ts))
    moved = directional(slopesAt, xs, ts)
    np.testing.assert_allclose(found, (moved * np.concatenate([w.ravel() for w in ws])).sum(), 1e-5, 1e-5)


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


@pytest.mark.parametrize("axis", [0, 1])
def test_what_does_not_fit_is_refused(axis):
    with pytest.raises(ShapeError, match=f"an index as x but along axis {axis}"):
        takeAlong(np.zeros((2, 3)), np.zeros((4, 5), int), axis)
    with pytest.raises(ShapeError, match="putAlong.*one of set, add, multiply, minimum, maximum, got 'mean'"):
        putAlong(np.zeros(3), np.zeros(2, int), np.zeros(2), 0, "mean")
    with pytest.raises(ShapeError, match="index and updates of one shape"):
        putAlong(np.zeros(3), np.zeros(2, int), np.zeros(1), 0)
