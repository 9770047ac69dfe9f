"""First and second derivatives of functions of arrays, in both modes, against central differences."""

import numpy as np

from puregraph.autodiff import Variable, grad, jvp

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
