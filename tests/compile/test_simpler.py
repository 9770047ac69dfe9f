"""Functions that a compiled float32 program says by simpler ones: the same numbers, and no step left to numpy."""

import numpy as np
import pytest
from natively import needsNative

import puregraph as pg
from puregraph.compile.program import Program
from puregraph.graph.module import Module
from puregraph.ops.attention import reference as attention
from puregraph.ops.convolution import reference as convolution
from puregraph.ops.gather import labels
from puregraph.ops.gather import reference as scatter
from puregraph.ops.pooling import reference as pooling
from puregraph.ops.product import einsum
from puregraph.ops.recurrent import reference as recurrent
from puregraph.ops.reduction.norm import norm

pytestmark = needsNative


class Applied(Module):
    """Some function of arrays as a module, read as those of the library are."""

    __module__ = "puregraph.applied"

    def __init__(self, name=None):
        super().__init__(name)
        self.function = None

    def dataShapeFrom(self, *xs):
        given = [np.zeros(s, np.int64 if n in self.places else np.float32) for n, s in enumerate(xs)]
        with np.errstate(all="ignore"):
            found = self.function(*given)
        return [y.shape for y in found] if isinstance(found, tuple) else found.shape

    def updateData(self, *xs):
        return self.function(*xs)


def programOf(function, *arrays):
    """A program of a function alone."""
    module = Applied()
    module.function, module.places = function, [i for i, x in enumerate(arrays) if x.dtype.kind == "i"]
    found = function(*arrays)
    if isinstance(found, tuple):
        type(module).outputNames = property(lambda self: tuple(f"y{i}" for i in range(len(found))))
    inputs = [pg.Input().node() for _ in arrays]
    graph = pg.Graph(inputs, module.node(*inputs))
    return Program(graph, [x.shape for x in arrays], [x.dtype for x in arrays], poison=True)


def isCarriedOutBy(program):
    """Kinds of calls that Python would make in each run."""
    return [call.name for call in program.plan.schedule.calls if call.kind.name not in ("native", "view", "host")]


def assertSame(function, *arrays, tolerance=2e-6):
    program = programOf(function, *arrays)
    assert program.executable is not None, program.why
    assert not isCarriedOutBy(program)
    for _ in range(2):
        found, wanted = program.run(*arrays), function(*arrays)
        for a, b in zip(*[x if isinstance(x, (list, tuple)) else [x] for x in (found, wanted)], strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert a.shape == b.shape and a.dtype == b.dtype
            if b.dtype.kind == "f":
                size = float(np.abs(b[np.isfinite(b)]).max(initial=1))
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size)
            else:
                assert np.array_equal(a, b)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ARRAYS = {
    "positive": lambda x: +x,
    "fabs": np.fabs,
    "round": lambda x: np.round(3 * x),
    "clip": lambda x: np.clip(x, -0.5, 0.25),
    "clip below": lambda x: np.clip(x, -0.5, None),
    "radians": lambda x: np.deg2rad(x) + np.rad2deg(x),
    "repeat": lambda x: x.repeat(3, axis=1),
    "repeat last": lambda x: x.repeat(2, axis=-1),
    "repeat turned": lambda x: x.transpose(0, 3, 1, 2).repeat(2, axis=2).repeat(3, axis=3) + 1,
    "repeat once": lambda x: x.repeat(1, axis=2),
    "tile": lambda x: np.tile(x, (2, 1, 3)),
    "tile more": lambda x: np.tile(x, (2, 1, 1, 1, 2)),
    "pad": lambda x: np.pad(x, 2),
    "pad one": lambda x: np.pad(x, [(0, 0), (1, 2), (0, 3), (0, 0)], constant_values=1.5),
    "pad edge": lambda x: np.pad(x, [(0, 0), (1, 2), (0, 3), (4, 0)], mode="edge"),
    "pad reflect": lambda x: np.pad(x, [(0, 0), (1, 2), (0, 3), (1, 1)], mode="reflect"),
    "pad symmetric": lambda x: np.pad(x, [(1, 0), (1, 2), (0, 3), (1, 1)], mode="symmetric"),
    "pad wrap": lambda x: np.pad(x, [(1, 0), (1, 2), (0, 3), (1, 1)], mode="wrap"),
    "roll": lambda x: np.roll(x, 2, axis=1) + np.roll(x, -5, axis=-1),
    "diff": lambda x: np.diff(x, 2, axis=2),
    "tril": lambda x: np.tril(x, -1) + np.triu(x, 2),
    "hstack": lambda x: np.hstack([x, 2 * x]),
    "vstack": lambda x: np.vstack([x, 2 * x]),
    "empty parts": lambda x: np.concatenate([x[:, :0], x, x[:, 5:], 2 * x], axis=1),
    "one part": lambda x: np.concatenate([x[:, :0], x], axis=1),
    "nothing summed": lambda x: x.sum(axis=()) + x.max(axis=()),
    "sum of nothing": lambda x: x[:, :0].sum(axis=1) + x[:, 0],
    "var": lambda x: x.var(axis=(1, 2)),
    "std": lambda x: x.std(axis=-1, ddof=1, keepdims=True),
    "ptp": lambda x: np.ptp(x, axis=1),
    "prod": lambda x: x.prod(axis=2),
    "any": lambda x: np.any(x > 2, axis=1),
    "all": lambda x: np.where(np.all(x > -1, axis=(0, 3)), 1, x[0, :, :, 0]),
    "any of numbers": lambda x: np.any(x, axis=1),
    "counts": lambda x: np.count_nonzero(x > 0, axis=1),
    "share": lambda x: x / (x > -5).sum(axis=1, keepdims=True).astype(x.dtype),
    "put": lambda x: placed(x),
    "trace": lambda x: np.trace(x, axis1=1, axis2=3),
    "outer": lambda x: np.outer(x[0, 0, 0], x[:, 0, 0, 0]),
    "vdot": lambda x: np.vdot(x, 2 * x),
    "argument kept": lambda x: np.stack([x, x.repeat(1, 0)]),
}


def placed(x):
    """With parts put into other parts."""
    y = np.zeros_like(x)
    y[::-2, ..., 1:3] = x[:2, ..., 2:4]
    y[0, 1] = y[0, 1] + 2
    y[..., None, -1] = x[..., :1]
    return y


@pytest.mark.parametrize("name", ARRAYS)
def test_functions_of_an_array(name):
    assertSame(ARRAYS[name], normal(3, 5, 4, 6))


def test_numbers_that_are_none():
    x = normal(4, 33)
    x[0, :5], x[1, :3], x[2, :3] = np.nan, np.inf, -np.inf
    y = normal(4, 33, seed=1)
    y[0, 3:8] = np.nan
    assertSame(lambda x, y: np.fmax(x, y), x, y)
    assertSame(lambda x, y: np.fmin(x, y), x, y)
    assertSame(lambda x: np.nan_to_num(x), x)
    assertSame(lambda x: np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0), x)
    assertSame(lambda x: np.clip(x, -1, 1), x)


EQUATIONS = {
    "ij,jk->ik": [(7, 5), (5, 9)],
    "ij,jk->ki": [(7, 5), (5, 9)],
    "ij,kj->ik": [(33, 70), (20, 70)],
    "bij,bjk->bik": [(3, 7, 5), (3, 5, 9)],
    "bhid,bhjd->bhij": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bihd,bjhd->bhij": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "abcij,abcjk->abcik": [(2, 3, 2, 4, 5), (2, 3, 2, 5, 6)],
    "ij->ji": [(4, 5)],
    "ij->i": [(4, 5)],
    "ij->": [(40, 50)],
    "ii->i": [(6, 6)],
    "ii->": [(6, 6)],
    "iji->ji": [(3, 4, 3)],
    "i,j->ij": [(3,), (4,)],
    "i,i->": [(300,), (300,)],
    "ij,j->i": [(30, 17), (17,)],
    "i,ij->j": [(30,), (30, 17)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "ij,ij->j": [(3, 4), (3, 4)],
    "bij,bjk,k->i": [(2, 3, 4), (2, 4, 2), (2,)],
    "ab,bc,cd,de->ae": [(3, 4), (4, 5), (5, 6), (6, 7)],
    "a,b,c->cab": [(2,), (3,), (4,)],
    "ijk,ilm,njm->nlk": [(2, 3, 4), (2, 5, 6), (7, 3, 6)],
    "iij,jkk->ik": [(3, 3, 4), (4, 5, 5)],
    "ij,kl->": [(2, 3), (4, 5)],
}


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation, optimize):
    arrays = [normal(*s, seed=i) for i, s in enumerate(EQUATIONS[equation])]
    assertSame(lambda *xs: np.einsum(equation, *xs, optimize=optimize), *arrays)


@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda a, b: a @ b, [(5,), (5, 7)]),
        (lambda a, b: a @ b, [(4, 5), (5,)]),
        (lambda a, b: a @ b, [(5,), (5,)]),
        (lambda a, b: a @ b, [(5,), (3, 5, 7)]),
        (lambda a, b: a @ b, [(2, 3, 4, 5, 6), (2, 1, 4, 6, 7)]),
        (np.dot, [(3, 4), (4, 5)]),
        (np.dot, [(2, 3, 4), (5, 4, 6)]),
        (np.inner, [(3, 4), (2, 5, 4)]),
        (lambda a, b: np.tensordot(a, b, 1), [(2, 3, 4), (4, 5)]),
        (lambda a, b: np.tensordot(a, b, ([0, 2], [1, 0])), [(2, 3, 4), (4, 2, 5)]),
        (lambda a, b: np.tensordot(a, b, 0), [(2, 3), (4,)]),
    ],
)
def test_products(function, shapes):
    assertSame(function, *[normal(*s, seed=i) for i, s in enumerate(shapes)])


WINDOWS = {
    "plain": ((2, 4, 5, 4, 6, 5), (2, 3, 1, 2), (1, 1, 1, 1), [(0, 0)] * 4, (1, 1, 1, 1)),
    "strides": ((1, 2, 7, 5, 6, 5), (3, 2, 2, 2), (2, 1, 2, 3), [(1, 0), (0, 1), (1, 1), (0, 0)], (1, 1, 1, 1)),
    "dilation": ((1, 2, 7, 5, 6, 5), (3, 2, 2, 2), (1, 2, 1, 1), [(1, 2), (0, 0), (0, 0), (1, 1)], (2, 1, 2, 1)),
    "five": ((1, 2, 3, 4, 3, 4, 3), (2, 2, 1, 2, 2), (1, 2, 1, 1, 1), [(1, 0)] * 5, (1, 1, 1, 1, 1)),
}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions_over_more_than_three_axes(name, groups):
    shape, size, stride, pad, dilation = WINDOWS[name]
    x, W = normal(*shape), normal(4, shape[1] // groups, *size, seed=1)
    assertSame(lambda x, W: convolution.convolve(x, W, stride, pad, dilation, groups), x, W)
    grad = normal(*convolution.convolve(x, W, stride, pad, dilation, groups).shape, seed=2)
    assertSame(lambda g, W: convolution.convolveData(g, W, shape, stride, pad, dilation, groups), grad, W)
    assertSame(lambda g, x: convolution.convolveWeight(g, x, size, stride, pad, dilation, groups), grad, x)


@pytest.mark.parametrize("includePad", [True, False])
@pytest.mark.parametrize("name", WINDOWS)
def test_means_over_more_than_three_axes(name, includePad):
    shape, size, stride, pad, _ = WINDOWS[name]
    x = normal(*shape)
    assertSame(lambda x: pooling.meanPool(x, size, stride, pad, includePad), x)
    grad = normal(*pooling.meanPool(x, size, stride, pad, includePad).shape, seed=2)
    assertSame(lambda g: pooling.meanPoolGrad(g, shape, size, stride, pad, includePad), grad)


@pytest.mark.parametrize("name", WINDOWS)
def test_maxima_over_more_than_three_axes(name):
    shape, size, stride, pad, dilation = WINDOWS[name]
    x = np.round(normal(*shape))  # equal numbers among them
    x[0, 0, 0], x[0, 1, 1] = -np.inf, np.nan

    def both(x):
        y, indices = pooling.maxPool(x, size, stride, pad, dilation)
        return np.concatenate([y, indices.astype(x.dtype)]), pooling.maxPoolGrad(
            indices.astype(x.dtype), indices, shape
        )

    assertSame(lambda x: both(x)[0], x)
    x = np.where(np.isfinite(x), x, 0)
    assertSame(lambda x: both(x)[1], x)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [(2, 4, 5, 7), (4, 5, 1), (1, 1, 1, 7), (7,), (2, 1, 5, 7)])
def test_the_gradient_of_a_mask(mask, causal):
    q, k, v, m = normal(2, 4, 5, 3), normal(2, 2, 7, 3, seed=1), normal(2, 2, 7, 6, seed=2), normal(*mask, seed=3)
    y, lse = attention.attend(q, k, v, m, causal, 0.7)
    grad = normal(*y.shape, seed=4)

    def gradients(grad, q, k, v, m, y, lse):
        rest = (grad * y).sum(axis=-1, keepdims=True)
        found = attention.attendGrad(grad, q, k, v, m, lse, rest, causal, 0.7, True)
        return np.concatenate([x.reshape(-1) for x in found])

    assertSame(gradients, grad, q, k, v, m, y, lse, tolerance=5e-6)


def test_letters_that_are_there_twice():
    assertSame(lambda v: einsum.ontoDiagonal(v, "ii", (4, 4)), normal(4))
    assertSame(lambda v: einsum.ontoDiagonal(v, "iji", (3, 5, 3)), normal(3, 1))
    assertSame(lambda v: einsum.ontoDiagonal(v, "iijj", (3, 3, 4, 4)), normal(3, 4))
    assertSame(lambda v: einsum.ontoDiagonal(v, "iii", (3, 3, 3)), normal(3))


def test_lookups_in_tables_that_do_not_lie_row_by_row():
    x, index = normal(4, 6, 3), np.array([[5, -1, 0], [2, 2, 1]])
    assertSame(lambda x, i: scatter.gather(x.swapaxes(0, 1), i), x, index)
    grad = normal(3, 4, 2, 3)
    assertSame(lambda g, i: scatter.scatterAdd(g.transpose(2, 3, 0, 1), i, 6), grad, index)
    weights, ids = normal(5), np.array([[4, 0, 7], [2, 2, 1]])
    assertSame(lambda w, n: scatter.gather(w, labels.classIndex(n, 5, 7)), weights, ids)


def test_which_moments_count():
    lengths = np.array([0, 3, 7, 1])
    assertSame(lambda n: recurrent.alive(n, 7), lengths)
    program = programOf(lambda n: recurrent.alive(n, 7), lengths)
    with pytest.raises(IndexError, match="wanted lengths from 0 to 7"):
        program.run(np.array([0, 3, 8, 1]))


@pytest.mark.parametrize("shapes", [[(7,)], [(300, 200), (5,), (3, 1, 4)], [(70000,), (2, 2)]])
def test_the_norm_of_several_arrays(shapes):
    assertSame(lambda *xs: norm(*xs), *[normal(*s, seed=i) for i, s in enumerate(shapes)], tolerance=1e-6)


def test_counts_and_numbers_of_float64_among_others():
    count = np.array([3])
    assertSame(lambda x, n: x + (1 / n) * x[0], normal(4, 5).astype(np.float64).astype(np.float32), count)
    assertSame(lambda n: np.where(n > 2, n + 2, -n), np.arange(-3, 9))


def test_maps_stay_channels_last_where_others_do_not():
    """A gradient that comes in row by row meets maps that a convolution made: what they make lies as the maps do."""
    x = pg.Input(name="x").node()
    net = pg.Graph(x, pg.Relu(name="relu").node(pg.Conv2D(3, 8, 3, pad=1, name="conv").node(x)))
    program = Program(net, [(2, 3, 6, 6)], grads=[True])
    found = {y.name: y.strides for call in program.plan.schedule.calls for y in call.outs if y is not None}
    assert found["relu"] == found["grad:relu"] == (8 * 36 * 4, 4, 8 * 6 * 4, 8 * 4)


def test_float64_is_native_like_float32():
    """Also of a graph that has no parameters, whose inputs alone say what is computed in."""
    a, b = (np.random.default_rng(i).standard_normal((7, 7)) for i in range(2))
    function = lambda a, b: np.einsum("ij,jk->ki", a, b, optimize=True).repeat(2, axis=0)  # noqa: E731
    program = programOf(function, a, b)
    assert all(call.kind.isNative or call.kind.isView for call in program.plan.schedule.calls)
    np.testing.assert_allclose(program.run(a, b), function(a, b), rtol=1e-12, atol=1e-13)
