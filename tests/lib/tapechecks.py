"""First and second derivatives of functions of Variables, compared with central differences along directions."""

import numpy as np
import pytest

from puregraph.autodiff import Variable, enable_grad, grad

STEP = 1e-6


@pytest.fixture(autouse=True)
def recording():
    with enable_grad(), np.errstate(all="ignore"):
        yield


def scalar(f, weights):
    """A weighted sum of all that f gives, so that every part of the result counts in its own way."""

    def loss(*xs):
        result = f(*xs)
        parts = result if isinstance(result, (tuple, list)) else [result]
        total = 0.0
        for part in parts:
            if np.shape(part) not in weights:
                weights[np.shape(part)] = np.random.default_rng(7).standard_normal(np.shape(part))
            total = total + np.sum(part * weights[np.shape(part)])
        return total

    return loss


def value(result):
    return float(result.data if isinstance(result, Variable) else result)


def along(loss, xs, directions, step=STEP):
    """The central difference of a function along a direction."""
    moved = [[x + s * step * d for x, d in zip(xs, directions)] for s in (1, -1)]
    return (value(loss(*moved[0])) - value(loss(*moved[1]))) / (2 * step)


def near(a, b, scale=0.0):
    return abs(a - b) <= 2e-7 * max(1.0, abs(a), abs(b), scale)


def check(f, *xs, order=2):
    """First and second derivatives agree with central differences along random directions."""
    rng = np.random.default_rng(3)
    xs = [np.array(x, np.float64) for x in xs]
    loss = scalar(f, {})
    directions = [rng.standard_normal(x.shape) for x in xs]

    def slope(*points):
        """The derivative of the loss along the directions, by the tape."""
        leaves = [Variable(p, requires_grad=True) for p in points]
        result = loss(*leaves)
        if not result.requires_grad:
            return leaves, 0.0
        found = grad(result, leaves, create_graph=order > 1, allow_unused=True)
        for g, p in zip(found, points):
            assert g is None or (g.shape == p.shape and g.dtype == p.dtype)
        total = sum((np.sum(g * d) for g, d in zip(found, directions) if g is not None), 0.0)
        return leaves, total

    leaves, first = slope(*xs)
    assert [v.data.tolist() for v in leaves] == [x.tolist() for x in xs]
    assert value(loss(*leaves)) == value(loss(*xs)), "recording changes the value"
    numeric = along(loss, xs, directions)
    assert near(value(first), numeric), (value(first), numeric)
    if order > 1:
        turns = [rng.standard_normal(x.shape) for x in xs]
        numeric = along(lambda *p: slope(*p)[1], xs, turns)
        if isinstance(first, Variable) and first.requires_grad:
            found = grad(first, leaves, allow_unused=True)
            second = sum(float(np.sum(g * d)) for g, d in zip(found, turns) if g is not None)
        else:
            second = 0.0
        assert near(second, numeric, abs(value(first))), (second, numeric)


def some(*shape, low=None, seed=0):
    rng = np.random.default_rng(seed + 10 * len(shape))
    return rng.standard_normal(shape) if low is None else low + rng.random(shape)
