# ruff: noqa: B023 - every check runs before its loop goes on
"""The gradient of every function of numpy that has one on the tape, against central differences and against PyTorch."""

import operator
from pathlib import Path

import numpy as np
import numpycalls
import pytest
import test_alongaxis
import test_numpynames
from directions import verify

from puregraph.autodiff import AutoDiffException, Variable, enable_grad, grad
from puregraph.autodiff.derivatives.declarations import vjpOf
from puregraph.core.tracer import astype
from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.formula.ufunctexts import TEXTS
from puregraph.ops.fourier.reference import fourierSum
from puregraph.ops.gather.reference import addAt
from puregraph.ops.gather.writes import putAt, setAt
from puregraph.ops.kernel import registry
from puregraph.ops.kernels import (
    convolve,
    convolveData,
    convolveWeight,
    gather,
    maxPool,
    maxPoolGrad,
    meanPool,
    meanPoolGrad,
    putClass,
    scatterAdd,
    takeClass,
)
from puregraph.ops.operation import OPERATIONS
from puregraph.ops.order.reference import sortAlong
from puregraph.ops.product.einsum import ontoDiagonal
from puregraph.ops.reduction.cumulate import UFUNCS, cumulate
from puregraph.ops.reduction.windowsum import windowSum

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


# Operators and everything pointwise -----------------------------------------------------------------------------------

DOMAINS = {  # where the common one, around 0, will not do: (low, high) of each argument
    np.log: (0.5, 2),
    np.log2: (0.5, 2),
    np.log10: (0.5, 2),
    np.log1p: (-0.5, 2),
    np.sqrt: (0.5, 2),
    np.arcsin: (-0.9, 0.9),
    np.arccos: (-0.9, 0.9),
    np.arctanh: (-0.9, 0.9),
    np.arccosh: (1.2, 3),
    np.cbrt: (0.5, 2),
    np.reciprocal: (0.5, 2),
    np.power: (0.5, 2),
    np.float_power: (0.5, 2),
    np.tan: (-1, 1),
}
POINTWISE = sorted(TEXTS, key=lambda f: (f.__name__, id(f)))


@pytest.mark.parametrize("function", POINTWISE, ids=lambda f: f.__name__)
def test_pointwise_functions(function):
    low, high = DOMAINS.get(function, (0.2, 2.9))
    count = getattr(function, "nin", 3 if function is np.where else 1)
    shapes = [(2, 3), (3,), (2, 1)]
    xs = [np.random.default_rng(i).uniform(low, high, shapes[i]) for i in range(count)]
    check(function, *xs)
    if low > 0 and function not in DOMAINS:
        check(function, *(-x for x in xs))
    check(function, *(x.flat[0] for x in xs))


OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "%": operator.mod,
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shapes", [((), ()), ((3,), ()), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (3,))])
def test_operators(name, shapes):
    f = OPERATORS[name]
    a, b = (some(*shape, low=0.6, seed=i) for i, shape in enumerate(shapes))
    check(f, a, b)
    check(lambda x: f(x, x), a)
    for constant in (b, 2, 1.5, np.float64(0.7), np.array(3)):
        check(lambda x: f(x, constant), a)
        check(lambda x: f(constant, x), a)


def test_signs_and_methods():
    x = some(2, 3)
    for f in (
        operator.neg,
        operator.pos,
        abs,
        lambda x: x.T,
        lambda x: x.copy(),
        lambda x: x.ravel() * 2,
        lambda x: x.flatten() * 2,
        lambda x: x.dot(x.T),
        lambda x: x.trace() * x.diagonal(),
        lambda x: x // 0.3 + 2 // x,
        lambda x: x.clip(-0.5, 0.5),
        lambda x: x.repeat(2),
        lambda x: x.take([0, 3]),
        lambda x: x.squeeze() * x,
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose((1, 0)),
        lambda x: x.swapaxes(0, 1),
        lambda x: x.cumsum(),
        lambda x: x.std(axis=0),
        lambda x: x.var(),
        lambda x: x.prod(axis=1),
        lambda x: x.max(axis=0),
        lambda x: x.min(),
        lambda x: x.mean(axis=-1, keepdims=True),
        lambda x: x.sum(0),
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape((-1,)),
        lambda x: x.astype(np.float64) * x,
    ):
        check(f, x)


KINKS = {
    "abs": (abs, [-1.0, 0.0, 2.0], [-1, 0, 1]),
    "sign": (np.sign, [-1.0, 0.0, 2.0], [0, 0, 0]),
    "relu": (lambda x: np.maximum(x, 0), [-1.0, 0.0, 2.0], [0, 0.5, 1]),
    "minimum": (lambda x: np.minimum(x, 1), [0.0, 1.0, 2.0], [1, 0.5, 0]),
    "clip": (lambda x: np.clip(x, -1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
    "clip low": (lambda x: np.clip(x, 0, None), [-2.0, 0.0, 2.0], [0, 1, 1]),
    "clip by name": (lambda x: np.clip(x, None, 1), [0.0, 1.0, 2.0], [1, 1, 0]),
    "clip crossed": (lambda x: np.clip(x, 2, 1), [0.0, 1.0, 2.0], [0, 0, 0]),
    "max": (np.max, [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
    "min": (np.min, [1.0, 3.0, 1.0], [0.5, 0, 0.5]),
    "where": (lambda x: np.where(x > 0, np.log(x), 0), [0.0, 1.0, 4.0], [0, 1, 0.25]),
    "power zero": (lambda x: x**0, [0.0, 1.0, -1.0], [0, 0, 0]),
    "square": (lambda x: x**2, [0.0, 1.0, -1.0], [0, 2, -2]),
    "norm": (np.linalg.norm, [0.0, 0.0], [0, 0]),
    "std": (np.std, [1.0, 1.0], [0, 0]),
    "prod one zero": (np.prod, [0.0, 2.0, 3.0], [6, 0, 0]),
    "prod two zeros": (np.prod, [0.0, 2.0, 0.0], [0, 0, 0]),
    "hypot": (lambda x: np.hypot(x, 0 * x), [0.0, 2.0], [0, 1]),
    "nan_to_num": (np.nan_to_num, [np.nan, 2.0, np.inf], [0, 1, 0]),
}


@pytest.mark.parametrize("name", KINKS)
def test_kinks_and_ties(name):
    f, x, wanted = KINKS[name]
    v = Variable(np.array(x), requires_grad=True)
    (g,) = grad(np.sum(f(v)), v)
    if name == "where":
        g[0] = 0 if np.isnan(g[0]) else g[0]  # numpy's where computes both branches, as torch's does
    assert g.tolist() == wanted


# Along axes -----------------------------------------------------------------------------------------------------------

AXES = [None, 0, -1, 1, (0, 2), (-1, 0), (), (0, 1, 2)]
REDUCTIONS = [np.sum, np.mean, np.var, np.std, np.max, np.min, np.prod, np.average]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions(function, axis, keepdims):
    check(lambda x: function(x, axis=axis, keepdims=keepdims), some(2, 3, 2))


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_reductions_of_a_number(function):
    check(lambda x: function(x), some())


@pytest.mark.parametrize("function", [np.sum, np.mean, np.prod, np.average], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_reductions_of_nothing(function):
    for shape, axis in [((0,), None), ((2, 0), 1), ((0, 3), 0)]:
        x = Variable(np.zeros(shape), requires_grad=True)
        try:
            y = function(x, axis=axis)
        except ZeroDivisionError:
            continue  # np.average refuses
        (g,) = grad(y, x, np.ones(y.shape))
        assert g.shape == shape


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_products_with_zeros(zeros, axis):
    x = some(2, 3, 2)
    x[0, :zeros, 0] = 0
    check(lambda x: np.prod(x, axis=axis), x)


@pytest.mark.parametrize(
    "options", [{"ddof": 1}, {"ddof": 1, "axis": 1}, {"correction": 1, "axis": (0, -1)}, {"ddof": 0.5}]
)
@pytest.mark.parametrize("function", [np.var, np.std])
def test_spreads_with_corrections(function, options):
    check(lambda x: function(x, **options), some(2, 3, 2))


def test_sums_that_run():
    for axis in (None, 0, 1, -1):
        check(lambda x: np.cumsum(x, axis) * np.cumsum(x, axis), some(2, 3))
        check(lambda x: np.sort(x, axis) ** 2, some(2, 3))
    for n in (0, 1, 2):
        for axis in (0, -1):
            check(lambda x: np.diff(x, n, axis) ** 2, some(4, 3))
    check(lambda x: np.diff(x) * 2, some(3))


def test_averages_with_weights():
    for axis, shape in [(None, (2, 3)), (0, (2,)), (1, (3,)), (-1, (2, 3))]:
        check(lambda x, w: np.average(x, axis, w), some(2, 3), some(*shape, low=0.5))
    with pytest.raises(AutoDiffException, match="the gradient of average is not known with returned=True"):
        np.average(Variable(some(3), requires_grad=True), returned=True)


# Products -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((4, 5, 2, 3), (3,)),
        ((1, 2, 3), (5, 3, 1)),
        ((2, 0), (0, 3)),
        ((0, 3), (3, 2)),
        ((0, 2, 3), (3,)),
    ],
)
def test_matmul_of_all_ranks(a, b):
    check(operator.matmul, some(*a), some(*b, seed=1))
    check(lambda x: x @ some(*b, seed=1), some(*a))
    check(lambda x: some(*a) @ x, some(*b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), ()),
        ((), (3,)),
        ((2, 3), ()),
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 2)),
        ((4, 2, 3), (3,)),
        ((2, 3), (4, 3, 2)),
        ((5, 2, 3), (4, 3, 2)),
    ],
)
def test_dot_of_all_ranks(a, b):
    check(np.dot, some(*a), some(*b, seed=1))


def test_other_products():
    check(np.outer, some(3), some(2, 2))
    check(np.inner, some(2, 3), some(4, 3))
    check(np.inner, some(), some(3))
    check(np.vdot, some(2, 3), some(2, 3))
    check(lambda x: np.dot(x, [1.0, 2.0]) + np.outer([1.0], x).sum() + x @ [3.0, 4.0], some(2))
    for axes in (0, 1, 2, ([0, 2], [1, 0]), (0, 1), (-1, 0)):
        a, b = (
            ((2, 3, 4), (4, 2, 3))
            if axes not in (2, (0, 1))
            else ((2, 3, 4), (3, 4, 2))
            if axes == 2
            else ((2, 3, 4), (4, 2, 3))
        )
        check(lambda x, y: np.tensordot(x, y, axes), some(*a), some(*b))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ij->ji", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ij->i", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij->ji", [(2, 2, 3)]),
        ("ij,ij->ij", [(2, 3), (2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        (" i j , j -> i ", [(2, 3), (3,)]),
        ("b...j,...jk->b...k", [(2, 5, 3), (5, 3, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
        ("...ij,...jk", [(1, 2, 3), (5, 3, 4)]),
        ("...i->...", [(2, 3, 4)]),
        ("...", [(2, 3)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("ij,kj->ik", [(0, 3), (2, 3)]),
    ],
)
def test_einsum(equation, shapes):
    check(lambda *xs: np.einsum(equation, *xs), *(some(*shape, seed=i) for i, shape in enumerate(shapes)))
    if len(shapes) > 1:
        check(
            lambda x: np.einsum(equation, x, *(some(*shape) for shape in shapes[1:]), optimize=True), some(*shapes[0])
        )
    check(lambda x: np.einsum("ij,ij->i", x, x), some(2, 3))


def test_einsum_wants_a_text():
    x = Variable(some(2, 3), requires_grad=True)
    with pytest.raises((AutoDiffException, TypeError)):
        np.einsum(x, [0, 1], [0]).sum().backward()


def test_linear_algebra():
    A, stack = some(3, 3) + 3 * np.eye(3), some(2, 3, 3) + 3 * np.eye(3)
    for square in (A, stack):
        check(np.linalg.inv, square)
        check(np.linalg.det, square)
        check(lambda a: np.linalg.slogdet(a)[1], square)
        check(lambda a: np.linalg.slogdet(a), square)
        check(np.linalg.solve, square, some(3, 2))
        check(np.linalg.solve, square, some(3))
    check(np.linalg.solve, A, some(2, 3, 2))
    check(np.linalg.norm, some(2, 3))
    check(np.linalg.norm, some(3))
    check(lambda x: np.linalg.norm(x, axis=1), some(2, 3))
    check(lambda x: np.linalg.norm(x, axis=(0, 1), keepdims=True), some(2, 3, 2))
    check(lambda x: np.linalg.norm(x, 2, -1, True), some(2, 3))
    check(lambda x: np.linalg.norm(x, 1, 0), some(2, 3))
    check(lambda x: np.linalg.norm(x, "fro"), some(2, 3))
    for ord in (np.inf, "nuc", 2):
        check(lambda x: np.linalg.norm(x, ord), some(2, 3))


# Views and moves ------------------------------------------------------------------------------------------------------

MOVES = {
    "reshape": lambda x: np.reshape(x, (3, 4)),
    "reshape to a number of axes": lambda x: x.reshape(1, -1),
    "ravel": np.ravel,
    "squeeze": lambda x: np.squeeze(x.reshape(1, 2, 1, 6), axis=0),
    "expand": lambda x: np.expand_dims(x, (0, -1)),
    "transpose": np.transpose,
    "transpose axes": lambda x: np.transpose(x, (2, 0, 1)),
    "transpose negative axes": lambda x: np.transpose(x, [-1, 0, 1]),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, (0, 1), (-1, 0)),
    "flip": np.flip,
    "flip axes": lambda x: np.flip(x, (0, -1)),
    "roll": lambda x: np.roll(x, 4),
    "roll axis": lambda x: np.roll(x, -1, 1),
    "roll axes": lambda x: np.roll(x, (1, 2), (0, 1)),
    "roll list": lambda x: np.roll(x, [1, 2], axis=[0, 1]),
    "broadcast": lambda x: np.broadcast_to(x, (4, 2, 3, 2)),
    "broadcast ones": lambda x: np.broadcast_to(x[:, :1], (2, 3, 2)),
    "tril": lambda x: np.tril(x, -1),
    "triu": lambda x: np.triu(x, 1),
    "pad": lambda x: np.pad(x, 1),
    "pad sides": lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3),
    "pad pair": lambda x: np.pad(x, (1, 2)),
    "pad mode": lambda x: np.pad(x, 1, "constant"),
    "diagonal": lambda x: np.diagonal(x),
    "diagonal of others": lambda x: np.diagonal(x, 1, 2, 1),
    "diagonal below": lambda x: np.diagonal(x, -1, axis1=1, axis2=2),
    "trace": np.trace,
    "trace below": lambda x: np.trace(x, -1, 1, 2),
    "trace of nothing": lambda x: np.trace(x, 5),
    "diag of a vector": lambda x: np.diag(x[0, 0], 1),
    "diag of a matrix": lambda x: np.diag(x[0], -1),
    "concatenate": lambda x: np.concatenate([x, x[:1], 2 * x]),
    "concatenate axis": lambda x: np.concatenate((x, x), axis=-1),
    "concatenate flat": lambda x: np.concatenate([x, x[0]], axis=None),
    "concatenate rows": lambda x: np.concatenate(x),
    "concatenate constants": lambda x: np.concatenate([x[0, 0], [1.0, 2.0], np.ones(2)]),
    "stack": lambda x: np.stack([x, x * x]),
    "stack axis": lambda x: np.stack([x, x * x], -1),
    "stack rows": lambda x: np.stack(x, 1),
    "vstack": lambda x: np.vstack([x[0], x[0, 0], x[1]]),
    "hstack": lambda x: np.hstack([x[0], x[1, :, :1]]),
    "hstack flat": lambda x: np.hstack([x[0, 0], x[0, 0, 1], x[0, 1]]),
    "split": lambda x: np.split(x, 3, 1),
    "split at": lambda x: np.split(x, [1, 2], axis=1),
    "split unread": lambda x: np.split(x, [1, 2], axis=-2)[1],
    "array_split": lambda x: np.array_split(x, 2, 1),
    "split empty": lambda x: np.split(x, [0, 1], 0),
    "repeat": lambda x: np.repeat(x, 2),
    "repeat axis": lambda x: np.repeat(x, 2, -1),
    "repeat each": lambda x: np.repeat(x, [1, 0, 2], axis=1),
    "tile": lambda x: np.tile(x, 2),
    "tile more": lambda x: np.tile(x, (2, 1, 2, 3)),
    "tile less": lambda x: np.tile(x, (3, 2)),
    "take": lambda x: np.take(x, [0, 5, 5]),
    "take axis": lambda x: np.take(x, [[0, 1], [1, 1]], axis=-1),
    "take one": lambda x: np.take(x, 1, 1),
    "take negative": lambda x: np.take(x, [-1, -1, 0], 1),
    "along": lambda x: np.take_along_axis(x, np.array([[[0], [1], [1]], [[1], [1], [0]]]), -1),
    "along other": lambda x: np.take_along_axis(x, np.array([[[2, 0]], [[1, 1]]]), axis=1),
    "along broadcast": lambda x: np.take_along_axis(x, np.array([[[2], [0]]]), axis=1),
    "along broadcast values": lambda x: np.take_along_axis(x[:1], np.ones((2, 1, 2), int), axis=1),
    "along flat": lambda x: np.take_along_axis(x, np.array([3, 3, 1]), None),
    "where": lambda x: np.where(x > 0, x * x, 3 * x),
    "where broadcast": lambda x: np.where(np.array([True, False]), x, x[0, 0]),
    "where number": lambda x: np.where(x > 0, x, 0),
    "full_like": lambda x: np.full_like(x[0], x[0, 0, 0]) * x[0, 0, 1],
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0, 0], x[0, 0]),
    "atleast_2d": lambda x: np.atleast_2d(x[0, 0]),
    "atleast_3d": lambda x: [np.atleast_3d(x[0])] + [np.atleast_3d(x[0], x[1])[1]],
    "nan_to_num": np.nan_to_num,
    "copy": np.copy,
    "astype": lambda x: astype(x, np.float64),
    "clip": lambda x: np.clip(x, x[:, :1] - 0.5, x[0, 0] + 0.3),
    "clip both": lambda x: np.clip(x[0], -0.1 - x[1] ** 2, 0.1 + x[1] ** 2),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    f = MOVES[name]
    check(lambda x: [y * y for y in many(f(x))], some(2, 3, 2))


def many(result):
    return result if isinstance(result, (tuple, list)) else [result]


KEYS = {
    "number": 1,
    "negative": -1,
    "numpy number": np.int64(1),
    "numbers": (1, 2, 0),
    "slice": slice(None, None, -1),
    "slices": (slice(1), slice(0, 3, 2)),
    "ellipsis": (..., 1),
    "new axis": (None, slice(None), None),
    "empty": slice(2, 2),
    "array": np.array([1, 1, 0]),
    "list": [1, 1, 0],
    "matrix": np.array([[1, 0], [1, 1]]),
    "arrays": (np.array([0, 1, 1]), np.array([2, 2, 2])),
    "broadcast arrays": (np.array([[0], [1]]), np.array([2, 2, 0])),
    "array and slice": (slice(None), np.array([2, 2]), slice(1)),
    "array apart": (np.array([0, 0]), slice(None), np.array([1, 1])),
    "mask": np.array([[True, False, True], [False, False, True]]),
    "mask of all": np.arange(12).reshape(2, 3, 2) % 3 == 0,
    "mask and slice": (slice(None), np.array([True, False, True])),
    "no mask": np.zeros((2, 3), bool),
    "nothing": (),
    "true": True,
    "list in tuple": ([0, 0], slice(None), [1, 1]),
    "variable": Variable(np.array([1, 1])),
    "variables": (Variable(1), Variable(np.array([0, 0]))),
}


@pytest.mark.parametrize("name", KEYS)
def test_indexing(name):
    key = KEYS[name]
    plain = (
        tuple(getattr(k, "data", k) if isinstance(k, Variable) else k for k in key) if isinstance(key, tuple) else key
    )
    plain = plain.data if isinstance(plain, Variable) else plain
    check(lambda x: (x[key] if isinstance(x, Variable) else x[plain]) ** 2, some(2, 3, 2))


def test_numbers_have_shapes_too():
    for f in (
        lambda x: x.reshape(1)[0],
        lambda x: np.stack([x, x * x]),
        lambda x: np.repeat(x, 3),
        lambda x: np.tile(x, 3),
        lambda x: np.broadcast_to(x, (2, 2)),
        lambda x: x[None, ...],
        lambda x: np.cumsum(x),
        lambda x: np.where(x > 0, x * x, x),
        lambda x: np.expand_dims(x, 0) @ np.ones((1, 2)),
        lambda x: np.atleast_2d(x) if not isinstance(x, Variable) else x.reshape(1, 1),
    ):
        check(f, 0.7)


# Kernels --------------------------------------------------------------------------------------------------------------

LAY = ((2, 1), ((1, 0), (1, 1)), (1, 2), 2)
X, W, G = some(2, 4, 5, 6), some(6, 2, 2, 2), some(2, 6, 3, 6)


def test_convolutions():
    assert convolve(X, W, *LAY).shape == G.shape
    check(lambda x, w: convolve(x, w, *LAY) ** 2, X, W)
    check(lambda g, w: convolveData(g, w, X.shape, *LAY) ** 2, G, W)
    check(lambda g, x: convolveWeight(g, x, (2, 2), *LAY) ** 2, G, X)


def test_pooling():
    x = some(2, 3, 5, 4)
    for size, stride, pad in [(2, 2, (0, 0)), (3, 1, (1, 1)), (2, 3, (1, 0))]:
        check(lambda x: maxPool(x, size, stride, pad)[0] ** 2, x)
        check(lambda x: meanPool(x, size, stride, pad) ** 2, x)
        check(lambda x: meanPool(x, size, stride, pad, False) ** 2, x)
        y, indices = maxPool(x, size, stride, pad)
        check(lambda g: maxPoolGrad(g, indices, x.shape) ** 2, y)
        check(lambda g: meanPoolGrad(g, x.shape, size, stride, pad) ** 2, y)


def test_scattering():
    index, labels = np.array([[0, 2, -1], [2, 2, 1]]), np.array([[0, 2], [-1, 1]])
    check(lambda t: gather(t, index) ** 2, some(3, 2))
    check(lambda g: scatterAdd(g, index, 4) ** 2, some(2, 3, 2))
    check(lambda v: addAt(v, index, 4) ** 2, some(2, 3))
    check(lambda x: takeClass(x, labels) ** 2, some(2, 3, 2))
    check(lambda v: putClass(v, labels, 3) ** 2, some(2, 2))
    check(lambda v: ontoDiagonal(v, "iji", (2, 3, 2)) ** 2, some(2, 3))
    check(lambda v: ontoDiagonal(v, "iji", (2, 3, 2)) ** 2, some(2, 1))
    check(lambda g: putAt(g, ([0, 0, 1],), (3,)) ** 2, some(3))
    check(lambda x: windowSum(x, 1, 2) ** 2, some(2, 4))
    check(lambda x: sortAlong(x, 1, 3)[0] ** 2, some(2, 4))
    for kind in UFUNCS:
        check(lambda x: cumulate(x, 1, kind) ** 2, some(2, 4))


def test_attention():
    mask = np.array([[True, False, True], [True, True, True]])
    for hides, causal in ((None, False), (mask, False), (None, True)):
        check(
            lambda q, k, v: attend(q, k, v, hides, causal, 0.5)[0] ** 2,
            some(1, 2, 2, 3),
            some(1, 1, 3, 3),
            some(1, 1, 3, 2),
        )
    q, k, v = some(1, 1, 2, 3), some(1, 1, 3, 3), some(1, 1, 3, 2)
    y, lse = attend(q, k, v, None, False, 0.5)
    for i in range(3):
        check(
            lambda g: attendGrad(g, q, k, v, None, lse, (g * y).sum(-1, keepdims=True), False, 0.5)[i] ** 2,
            some(1, 1, 2, 2),
        )


@pytest.mark.parametrize("key", [1, (slice(None), 2), (slice(0, 3, 2), slice(1, 3)), ..., (None, 0)], ids=str)
def test_values_that_are_put_into_others(key):
    x = some(3, 4)
    check(lambda a, b: setAt(a, key, b), x, some(*x[key].shape, seed=1))
    check(lambda a, b: setAt(a * a, key, b * b), x, np.array(0.4))


def test_every_rule_is_tested_here():
    """A new rule without a line in this file, or in the table of calls with all their options, is found."""
    text = "".join(
        Path(file).read_text()
        for file in (__file__, numpycalls.__file__, test_numpynames.__file__, test_alongaxis.__file__)
    )
    ways = ("np.{}", "linalg.{}", "fft.{}", ".{}(", "{}(")
    kernels = [f for f in registry.values() if f.__module__.startswith("puregraph.") and vjpOf(f)]
    kernels = [f for f in kernels if f.__name__ not in ("alignments", "transductions")]  # see test_ctc, test_rnnt
    lost = [
        f for f in [*filter(vjpOf, OPERATIONS), *kernels] if not any(way.format(f.__name__) in text for way in ways)
    ]
    operators = {
        np.add,
        np.subtract,
        np.multiply,
        np.negative,
        np.matmul,
        operator.getitem,
        astype,
        getattr(np, "astype", astype),
    }
    assert not [f for f in lost if f not in operators and f not in TEXTS]


# PyTorch --------------------------------------------------------------------------------------------------------------

PEERS = {
    "relu": (lambda x: np.maximum(x, 0 * x), lambda t, x: t.maximum(x, 0 * x)),
    "minimum": (lambda x: np.minimum(x, x[::-1]), lambda t, x: t.minimum(x, x.flip(0))),
    "abs": (np.abs, lambda t, x: x.abs()),
    "clip": (lambda x: np.clip(x, -1, 1), lambda t, x: x.clamp(-1, 1)),
    "clip by values": (
        lambda x: np.clip(x, x[:1] - 1, x[1:2]),
        lambda t, x: t.clamp(x, x[:1] - 1, x[1:2]),
    ),
    "amax": (lambda x: np.max(x, axis=1), lambda t, x: x.amax(1)),
    "amin": (lambda x: np.min(x, axis=(0, 1)), lambda t, x: x.amin((0, 1))),
    "max of all": (np.max, lambda t, x: x.max()),
    "prod": (lambda x: np.prod(x, axis=1), lambda t, x: x.prod(1)),
    "prod of all": (np.prod, lambda t, x: x.prod()),
    "std": (lambda x: np.std(x, axis=0, ddof=1), lambda t, x: x.std(0)),
    "var": (lambda x: np.var(x), lambda t, x: x.var(correction=0)),
    "norm": (lambda x: np.linalg.norm(x, axis=0), lambda t, x: x.norm(dim=0)),
    "square": (lambda x: x**2, lambda t, x: x**2),
    "third power": (lambda x: x**3, lambda t, x: x**3),
    "sign": (np.sign, lambda t, x: x.sign()),
    "hypot": (lambda x: np.hypot(x + 3, x), lambda t, x: t.hypot(x + 3, x)),
    "logaddexp": (lambda x: np.logaddexp(x, 2 * x), lambda t, x: t.logaddexp(x, 2 * x)),
    "remainder": (lambda x: np.remainder(x, 0.7), lambda t, x: t.remainder(x, 0.7)),
    "where": (lambda x: np.where(x > 0, x * x, -x), lambda t, x: t.where(x > 0, x * x, -x)),
    "sort": (
        lambda x: np.sort(x, 0) * np.arange(x.shape[0])[:, None],
        lambda t, x: x.sort(dim=0, stable=True)[0] * t.arange(x.shape[0])[:, None],
    ),
    "index": (lambda x: x[[0, 0, 1], [1, 1, 0]], lambda t, x: x[[0, 0, 1], [1, 1, 0]]),
    "softmax": (
        lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
        lambda t, x: x.exp() / x.exp().sum(1, keepdim=True),
    ),
    "einsum": (lambda x: np.einsum("ij,kj->ik", x, x), lambda t, x: t.einsum("ij,kj->ik", x, x)),
    "gram": (
        lambda x: np.linalg.det(x @ x.T + np.eye(3)),
        lambda t, x: t.linalg.det(x @ x.T + t.eye(3, dtype=x.dtype)),
    ),
}
POINTS = {
    "smooth": some(3, 4),
    "ties": np.array([[1.0, 1.0, -1.0, 0.0], [0.0, 1.0, 1.0, -1.0], [-1.0, 0.0, 0.0, 0.0]]),
}


@pytest.mark.peers
@pytest.mark.parametrize("points", POINTS)
@pytest.mark.parametrize("name", PEERS)
def test_as_torch(name, points):
    import torch

    ours, theirs = PEERS[name]
    x = Variable(POINTS[points], requires_grad=True)
    t = torch.tensor(POINTS[points], requires_grad=True)
    y, z = ours(x), theirs(torch, t)
    assert y.shape == tuple(z.shape)
    seed = some(*y.shape, seed=5)
    (first,) = grad(y, x, seed, create_graph=True)
    (second,) = torch.autograd.grad(z, t, torch.tensor(seed), create_graph=True)
    assert np.allclose(first.data, second.detach().numpy(), rtol=1e-12, atol=1e-12)
    if points == "ties" and name in ("std", "prod", "prod of all", "norm"):
        return  # there the second derivative does not exist
    turn = some(3, 4, seed=6)
    (ours,) = grad(first, x, turn, allow_unused=True) if first.requires_grad else (None,)
    (theirs,) = (
        torch.autograd.grad(second, t, torch.tensor(turn), allow_unused=True) if second.requires_grad else (None,)
    )
    zero = np.zeros((3, 4))
    assert np.allclose(
        zero if ours is None else ours, zero if theirs is None else theirs.numpy(force=True), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("axes", [(0,), (-1,), (1, 0)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_fourier_sums_have_both_derivatives(axes, sign):
    rng = np.random.default_rng(2)
    verify(rng, lambda x: fourierSum(x, axes, sign) ** 2, rng.normal(size=(3, 5, 2)), near=2e-5)
