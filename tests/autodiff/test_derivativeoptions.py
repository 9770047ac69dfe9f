"""Every option of every function of numpy counts in gradients, second derivatives and tangents, or is refused."""

# ruff: noqa: B023 - every check runs before its loop goes on

import numpy as np
import pytest
from numpycalls import ARRAYS, KNOWN, MASK, ROW, UFUNCS, A, B, C, V, calls, movingCall

from puregraph.autodiff import AutoDiffException, Variable, grad, jvp, vjp
from puregraph.autodiff.derivatives.declarations import jvpOf, vjpOf
from puregraph.ops.formula.ufunctexts import TEXTS

STEP = 1e-6


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def label(function):
    """A function's name, and whose method it is."""
    owner = getattr(function, "__self__", None)
    return f"{owner.__name__}.{function.__name__}" if isinstance(owner, np.ufunc) else function.__name__


def flat(result):
    """All floats of a result in one row."""
    if isinstance(result, (tuple, list)):
        return np.concatenate([flat(part) for part in result]) if result else np.zeros(0)
    return np.asarray(result.data if isinstance(result, Variable) else result, float).ravel()


def beside(values, tangents):
    """The tangents of results in one row, zeros where there is none."""
    if isinstance(values, (tuple, list)):
        return np.concatenate([beside(y, None if tangents is None else t) for y, t in zip(values, tangents)])
    return np.zeros(np.size(values)) if tangents is None else flat(tangents)


def weighted(result, weights):
    """One number of a result, in which each element counts in its own way, and squared too."""
    total, at = 0.0, 0
    for part in result if isinstance(result, (tuple, list)) else [result]:
        shape = part.shape
        size = int(np.prod(shape))
        total = total + np.sum(part * (part + 0.5) * weights[at : at + size].reshape(shape))
        at += size
    return total


def near(a, b, scale=0.0):
    """Equal within what a central difference is good for."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= 3e-6 * (1 + np.abs(a) + np.abs(b) + scale)))


def central(f, xs, directions):
    """The central difference of f along directions."""
    high, low = (f(*[x + s * STEP * d for x, d in zip(xs, directions)]) for s in (1, -1))
    return (high - low) / (2 * STEP)


def directionsFor(xs, seed):
    """A random direction for each array."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=x.shape) for x in xs]


@pytest.mark.parametrize("function", ARRAYS, ids=label)
def test_a_tangent_is_that_of_the_very_call(function):
    known = 0
    for arguments, options in calls(function):
        call, xs = movingCall(function, arguments, options)
        directions = directionsFor(xs, 1)
        try:
            values, tangents = jvp(call, list(xs), directions)
        except AutoDiffException:
            assert options or jvpOf(function) is None or len(arguments) > 1, "what is registered is known"
            continue
        known += 1
        assert near(flat(values), flat(call(*xs))), (arguments, options)
        found, wanted = beside(values, tangents), central(lambda *p: flat(call(*p)), xs, directions)
        assert near(found, wanted), (options, found, wanted)
    assert known or jvpOf(function) is None


@pytest.mark.parametrize("function", ARRAYS, ids=label)
def test_a_gradient_and_its_own_are_those_of_the_very_call(function):
    known = 0
    for arguments, options in calls(function):
        call, xs = movingCall(function, arguments, options)
        directions, turns = directionsFor(xs, 1), directionsFor(xs, 2)
        weights = np.random.default_rng(3).normal(size=flat(call(*xs)).size)

        def slope(*points, call=call, directions=directions, weights=weights, create=False):
            """The derivative along the directions, by the tape."""
            leaves = [Variable(p, requires_grad=True) for p in points]
            loss = weighted(call(*leaves), weights)
            if not getattr(loss, "requires_grad", False):
                return leaves, 0.0
            found = grad(loss, leaves, create_graph=create, allow_unused=True)
            return leaves, sum((np.sum(g * d) for g, d in zip(found, directions) if g is not None), 0.0)

        try:
            leaves, first = slope(*xs, create=True)
        except AutoDiffException:
            assert options or len(arguments) > 1 or vjpOf(function) is None and function not in TEXTS
            continue
        known += 1
        value = float(flat(first)[0])
        wanted = central(lambda *p, call=call, w=weights: float(weighted(call(*p), w)), xs, directions)
        assert near(value, wanted), (options, value, wanted)
        second = 0.0
        if isinstance(first, Variable) and first.requires_grad:
            found = grad(first, leaves, allow_unused=True)
            second = sum(float(np.sum(g * t)) for g, t in zip(found, turns) if g is not None)
        wanted = central(lambda *p, slope=slope: float(flat(slope(*p)[1])[0]), xs, turns)
        assert near(second, wanted, abs(value)), (options, second, wanted)
    assert known or vjpOf(function) is None


def test_every_function_that_is_known_is_tried():
    known = [f for f in KNOWN if f not in ARRAYS and (getattr(f, "__module__", "") or "").startswith("numpy")]
    rest = {np.linalg.cholesky, np.linalg.eigh, np.linalg.qr}  # of symmetric matrices, or with options of other times
    assert {*known} == rest  # see test_numpynames


@pytest.mark.parametrize("function", [f for f in UFUNCS if {"d->d", "dd->d"} & {*f.types}], ids=label)
@pytest.mark.filterwarnings("ignore:'where' used without")
def test_where_of_a_ufunc_is_refused(function):
    xs = [A / 2, B / 2.5][: function.nin]
    for where in (MASK, ROW, False):
        with pytest.raises(AutoDiffException, match="where="):
            jvp(lambda *p, w=where: function(*p, where=w), xs, xs)
        if function not in (np.floor, np.ceil, np.trunc, np.rint, np.sign):
            with pytest.raises(AutoDiffException, match="where="):
                function(*[Variable(x, requires_grad=True) for x in xs], where=where)


@pytest.mark.parametrize("sign", [0.0, -0.0, 1.0, -1.0, -np.inf])
def test_the_sign_of_zero_counts_in_copysign(sign):
    x, v = np.array([1.0, -2.0, 4.0]), np.array([1.0, 10.0, 100.0])
    wanted = np.copysign(1.0, sign) * np.sign(x) * v
    assert np.array_equal(jvp(lambda a: np.copysign(a, sign), x, v)[1], wanted)
    assert np.array_equal(vjp(lambda a: np.copysign(a, sign), x, v).inputs, wanted)


@pytest.mark.parametrize("function", [np.linalg.norm, np.std], ids=label)
def test_at_zero_a_length_has_the_gradient_zero_forward_and_backward(function):
    x = np.zeros(3)
    assert jvp(function, x, np.ones(3))[1] == 0 and not vjp(function, x, np.ones(())).inputs.any()
    rows = np.stack([x, V[:3]])
    _, t = jvp(lambda a: function(a, axis=1), rows, np.ones((2, 3)))
    assert t[0] == 0 and np.isfinite(t).all()


def test_what_is_put_before_and_after_differences_may_move():
    before, after = np.full((3, 1), 2.0), np.full((3, 2), 3.0)
    call = lambda a, p, q: np.diff(a, 1, -1, p, q)  # noqa: E731
    xs, ds = [A, before, after], directionsFor([A, before, after], 4)
    assert near(flat(jvp(call, xs, ds)[1]), central(lambda *p: flat(call(*p)), xs, ds))
    assert near(flat(jvp(call, xs, [None, *ds[1:]])[1]), central(lambda *p: flat(call(A, *p)), xs[1:], ds[1:]))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.sum(A, initial=x),
        lambda x: np.prod(A, initial=x),
        lambda x: np.var(A, mean=x),
        lambda x: np.pad(A, 1, constant_values=x),
        lambda x: np.nan_to_num(A, nan=x),
        lambda x: np.average(A, weights=x * B),
    ],
)
def test_an_option_that_moves_is_refused(call):
    x, v = np.array(0.7), np.array(1.0)
    with pytest.raises((AutoDiffException, ValueError)):  # numpy itself where it does not ask what its argument is
        jvp(call, x, v)


def test_a_value_is_written_into_what_was_made_from_variables():
    v = Variable(C[0], requires_grad=True)

    def embed(x, seed):
        """A slice of zeros, as rules write them."""
        y = np.zeros_like(x, shape=(4, 5))
        y[:3, 1:] = x
        y[0] = 2.5
        y[1, 2] = x[0, 0] * x[2, 2] * seed
        return y * y

    for seed in (1.0, -2.0):
        loss = embed(v, seed).sum()
        assert near(float(loss.data), float(np.sum(embed(C[0], seed))))
        (g,) = grad(loss, v, create_graph=True)
        d = directionsFor([C[0]], 5)[0]
        assert near(float(np.sum(g.data * d)), central(lambda p, s=seed: float(np.sum(embed(p, s))), [C[0]], [d]))
        (h,) = grad(np.sum(g * d), v)

        def slope(p, s=seed, d=d):
            leaf = Variable(p, requires_grad=True)
            return float(np.sum(grad(embed(leaf, s).sum(), leaf)[0] * d))

        assert near(float(np.sum(h * d)), central(slope, [C[0]], [d]))


def test_writing_into_a_variable_changes_no_array_of_others():
    x = np.ones((2, 2))
    v, w = Variable(x), Variable(np.array(3.0), requires_grad=True)
    y = v * w
    v[0] = w * 2
    assert x.tolist() == [[1, 1], [1, 1]] and v.data.tolist() == [[6, 6], [1, 1]] and v.requires_grad
    with pytest.raises(AutoDiffException, match="modified in place"):
        y.sum().backward()
    with pytest.raises(AutoDiffException, match="a leaf that requires a gradient is not written into"):
        Variable(x, requires_grad=True)[0] = 1.0
    with pytest.raises(AutoDiffException, match="may name an element twice"):
        v[[0, 0]] = w
