# ruff: noqa: B023 - every check runs before its loop goes on
"""The gradient of every function of numpy that has one on the tape, against central differences: pointwise, along axes."""

import operator
from pathlib import Path

import numpy as np
import numpycalls
import pytest
import test_alongaxis
import test_numpynames
import test_tapekernels
import test_tapemoves
import test_tapepeers
import test_tapeproducts
from tapechecks import check, some
from tapechecks import recording as recording

from puregraph.autodiff import AutoDiffException, Variable, grad
from puregraph.autodiff.derivatives.declarations import vjpOf
from puregraph.core.tracer import astype
from puregraph.ops.formula.ufunctexts import TEXTS
from puregraph.ops.kernel import registry
from puregraph.ops.operation import OPERATIONS

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


TESTED = (
    numpycalls,
    test_alongaxis,
    test_numpynames,
    test_tapekernels,
    test_tapemoves,
    test_tapepeers,
    test_tapeproducts,
)


def test_every_rule_is_tested_here():
    """A new rule without a line in these files, or in the table of calls with all their options, is found."""
    text = "".join(Path(file).read_text() for file in (__file__, *(module.__file__ for module in TESTED)))
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
