"""Forward mode: derivatives along directions against central differences, its transpose against the backward pass, and
products with Hessians against differences of gradients."""

import copy
from random import Random

import numpy as np
import pytest
from everyexample import everyExample
from everymodule import DERIVED, MODES, examplesOf, toStrict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import randomGraph
from strict import Strict, useStrict

from puregraph import modules
from puregraph.autodiff import register_tangent
from puregraph.autodiff.derivatives.declarations import jvpOf
from puregraph.autodiff.forward.dual import Dual
from puregraph.autodiff.forward.forwardmode import hessian, hvp, jacobian, jvp, vjp
from puregraph.autodiff.functionalcall import Pure
from puregraph.autodiff.joint.addbackward import add_backward_pass
from puregraph.core.errors import AutoDiffException, GraphError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.models import lenet, mlp
from puregraph.modules import (
    Add,
    BatchNorm,
    Conv2D,
    Dropout,
    Embedder,
    Flatten,
    Linear,
    MaxPool2D,
    Sum,
    Tanh,
    costs,
)
from puregraph.ops.formula import Formula
from puregraph.ops.formula.ufunctexts import TEXTS
from puregraph.ops.kernel import CompositeKernel, kernel, registry, useFast
from puregraph.testing.check import Case

STEP = 1e-6


def floats(arrays):
    return [a for a in arrays if a.dtype.kind == "f"]


def directions(rng, arrays):
    """A random direction for each array of floats, None for others."""
    return [rng.standard_normal(a.shape) if a.dtype.kind == "f" else None for a in arrays]


def inner(left, right):
    """The inner product of two lists of arrays; where a list has None, the other does not count."""
    return sum(float(np.sum(a * b)) for a, b in zip(left, right) if a is not None and b is not None)


def asList(found):
    return list(found) if isinstance(found, (list, tuple)) else [found]


def moved(pure, inputs, vs, params, step):
    """The outputs at a place a small step along a direction."""
    xs = [x if v is None else x + step * v for x, v in zip(inputs, vs)]
    by = {id(pure.params[path]): v for path, v in params.items()}
    stored = pure.stored(lambda s, array: array + step * by[id(s)] if id(s) in by else array)
    return pure.outputs(pure.run(xs, stored))


def prove(module, inputs, rng, tolerance=2e-6):
    """J v is what central differences say, and <u, J v> is <J' u, v>."""
    pure = Pure(module, inputs)
    states = {n: s.data.copy() for n, s in pure.graph.states.items()}
    vs = directions(rng, inputs)
    params = {path: rng.standard_normal(p.shape) for path, p in pure.params.items()}
    ys, dys = map(asList, jvp(module, inputs, vs, params))
    plus, minus = (moved(pure, inputs, vs, params, s) for s in (STEP, -STEP))
    for y, dy, a, b in zip(ys, dys, plus, minus, strict=True):
        if y.dtype.kind != "f":
            assert dy is None  # integers and booleans do not move
            continue
        assert dy.shape == y.shape and dy.dtype == y.dtype
        numeric = (a - b) / (2 * STEP)
        scale = max(1.0, np.abs(numeric).max(initial=0), np.abs(y).max(initial=0))
        assert np.abs(dy - numeric).max(initial=0) <= tolerance * scale
    us = directions(rng, ys)
    back = vjp(module, inputs, us, params=True)
    left = inner(us, dys)
    right = inner(asList(back.inputs), vs) + inner(back.params.values(), params.values())
    size = sum(float(np.sum(np.abs(u * d))) for u, d in zip(us, dys) if u is not None) + 1
    assert abs(left - right) <= 1e-12 * size
    for n, s in pure.graph.states.items():
        assert np.array_equal(s.data, states[n]), f"the state {n} has moved"


@everyExample(DERIVED, mode=MODES)
def test_every_module_has_a_derivative_along_directions(found, index, mode, rng):
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    prove(case.module, case.inputs, rng)


def random(net, rng):
    """A net whose biases are not 0, where rectifiers have their kink."""
    for p in net.params.values():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    return net


MODELS = {
    "lenet": (lambda: lenet(size=8, maps=(2, 3)), (2, 1, 8, 8)),
    "lenet with norms and dropout": (lambda: lenet(size=8, maps=(2, 3), norm=True, dropout=0.3), (3, 1, 8, 8)),
    "mlp": (lambda: mlp(6, (5, 4), 3), (4, 6)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_models_have_derivatives_along_directions(name, mode, rng):
    make, shape = MODELS[name]
    net = random(make().calcMode(np.float64), rng)
    net.mode(MODES[mode])
    prove(net, [rng.standard_normal(shape)], rng, 1e-5)


def residual():
    """Small: a convolution, norms, a shortcut, pooling, dropout, softmax cross entropy."""
    x, t = Input(name="x").node(), Input(name="t").node()
    h = Conv2D(2, 3, 3, pad=1, name="conv1")(x)
    h = Tanh(name="tanh1")(BatchNorm(3, name="norm1")(h))
    h = Add(name="add")(h, Conv2D(3, 3, 3, pad=1, useBias=False, name="conv2")(h))
    h = Dropout(0.3, name="drop")(MaxPool2D(2, name="pool")(h))
    h = Linear(12, 3, name="fc")(Flatten(name="flat")(h))
    return Graph([x, t], costs.CrossEntropy(name="cost")(h, t)).calcMode(np.float64)


def data(rng, n=4):
    return [rng.standard_normal((n, 2, 4, 4)), rng.integers(0, 3, n)]


@pytest.mark.parametrize("mode", MODES)
def test_products_with_the_hessian_are_differences_of_gradients(mode, rng):
    net = random(residual(), rng)
    net.mode(MODES[mode])
    inputs = data(rng)
    pure = Pure(net, inputs)
    v = rng.standard_normal(inputs[0].shape)
    params = {path: rng.standard_normal(p.shape) for path, p in pure.params.items()}
    got = hvp(net, inputs, [v, None], params)
    kept = {path: p.data for path, p in pure.params.items()}
    grads = []
    for s in (STEP, -STEP):
        for path, p in pure.params.items():
            p.data = kept[path] + s * params[path]
        grads.append(vjp(net, [inputs[0] + s * v, inputs[1]], params=True))
    for path, p in pure.params.items():
        p.data = kept[path]
    wanted = (grads[0].inputs[0] - grads[1].inputs[0]) / (2 * STEP)
    assert np.allclose(got.inputs[0], wanted, rtol=1e-6, atol=1e-7) and got.inputs[1] is None
    for path in params:
        wanted = (grads[0].params[path] - grads[1].params[path]) / (2 * STEP)
        assert np.allclose(got.params[path], wanted, rtol=1e-6, atol=1e-7), path


@everyExample(DERIVED, mode=MODES)
def test_every_gradient_rule_has_a_derivative_itself(found, index, mode, rng):
    """The Hessian of <u, sin y> along v, forward over reverse, against differences of gradients."""
    module, shapes = examplesOf(found)[index]
    case = Case(module, shapes, train=MODES[mode])
    net, inputs = case.module, case.inputs
    pure = Pure(net, inputs)
    vs = directions(rng, inputs)
    params = {path: rng.standard_normal(p.shape) for path, p in pure.params.items()}
    level = 1
    values = pure.run(
        [x if v is None else Dual(x, v, level) for x, v in zip(inputs, vs)],
        pure.stored(lambda s, a: Dual(a, directionOf(pure, params, s), level) if a.dtype.kind == "f" else a),
    )
    us = [rng.standard_normal(y.shape) for y in pure.outputs(values)]
    seeds = [u * np.cos(y) for u, y in zip(us, pure.outputs(values))]
    found, _ = pure.pull(seeds, values, True, pure.params.values())
    far = []
    for s in (STEP, -STEP):
        xs = [x if v is None else x + s * v for x, v in zip(inputs, vs)]
        stored = pure.stored(lambda p, a, s=s: a + s * directionOf(pure, params, p) if id(p) in ids(pure) else a)
        at = pure.run(xs, stored)
        far.append(pure.pull([u * np.cos(y) for u, y in zip(us, pure.outputs(at))], at, True, pure.params.values())[0])
    for g, a, b in zip(found, *far, strict=True):
        if g is not None:
            numeric = (a - b) / (2 * STEP)
            dg = np.zeros(g.shape) if not isinstance(g, Dual) or g.tangent is None else g.tangent
            scale = max(1.0, np.abs(numeric).max(initial=0))
            assert np.abs(dg - numeric).max(initial=0) <= 1e-5 * scale


def ids(pure):
    return {id(p) for p in pure.params.values()}


def directionOf(pure, params, stored):
    return next((params[path] for path, p in pure.params.items() if p is stored), None)


@pytest.mark.peers
def test_products_with_the_hessian_are_those_of_torch(rng):
    import torch
    from torch.nn import functional as F

    x, t = data(rng)
    net = Sequential(Conv2D(2, 3, 3, name="conv"), BatchNorm(3, name="norm"), Tanh(name="act"), Flatten(name="flat"))
    net.append(Linear(12, 3, name="fc"))
    a, b = Input(name="x").node(), Input(name="t").node()
    whole = random(Graph([a, b], costs.CrossEntropy(name="cost")(net.node(a, name="net"), b)).calcMode("float64"), rng)
    paths = list(Pure(whole, [x, t]).params)
    vx = rng.standard_normal(x.shape)
    vs = {path: rng.standard_normal(whole.params[path].shape) for path in paths}
    got = hvp(whole, [x, t], [vx, None], vs)

    leaves = [torch.tensor(v, requires_grad=True) for v in (x, *(whole.params[p].data for p in paths))]
    named = dict(zip(["x", *(p.removeprefix("net.") for p in paths)], leaves))
    h = F.conv2d(named["x"], named["conv.W"], named["conv.b"])
    h = torch.tanh(F.batch_norm(h, None, None, named["norm.scale"], named["norm.bias"], training=True))
    h = h.flatten(1) @ named["fc.W"] + named["fc.b"]
    cost = F.cross_entropy(h, torch.tensor(t))
    grads = torch.autograd.grad(cost, leaves, create_graph=True)
    dot = sum((g * torch.tensor(v)).sum() for g, v in zip(grads, (vx, *vs.values())))
    wanted = torch.autograd.grad(dot, leaves)
    assert np.allclose(got.value, cost.item(), rtol=1e-12)
    for mine, theirs in zip((got.inputs[0], *got.params.values()), wanted, strict=True):
        assert np.allclose(mine, theirs.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.costly
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**63))
def test_random_graphs(seed):
    """<u, J v> is <J' u, v>, and a Hessian is symmetric: <w, H v> is <v, H w>."""
    graph, shapes, _ = randomGraph(Random(seed))
    rng = np.random.default_rng(seed % 2**32)
    xs = [rng.standard_normal(s) for s in shapes]
    vs, ws = ([rng.standard_normal(s) for s in shapes] for _ in range(2))
    pv, pw = ({path: rng.standard_normal(p.shape) for path, p in graph.params.items()} for _ in range(2))
    ys, dys = map(asList, jvp(graph, xs, vs, pv))
    us = [rng.standard_normal(y.shape) for y in ys]
    assert all(np.array_equal(a, b) for a, b in zip(ys, asList(graph(xs)), strict=True))
    graph.backward(us if len(us) > 1 else us[0])
    grads = [*asList(graph.grad), *(p.grad for p in graph.params.values())]
    left, right = inner(us, dys), inner(grads, [*vs, *pv.values()])
    assert abs(left - right) <= 1e-12 * (1 + sum(float(np.sum(np.abs(u * d))) for u, d in zip(us, dys)))
    one, two = curvature(graph, xs, us, vs, pv), curvature(graph, xs, us, ws, pw)
    left, right = inner(one, [*ws, *pw.values()]), inner(two, [*vs, *pv.values()])
    size = sum(float(np.sum(np.abs(h))) for h in one if h is not None)
    assert abs(left - right) <= 1e-10 * (1 + size)


def curvature(graph, xs, us, vs, pv):
    """The derivative along v of the gradients of <u, sin y>."""
    pure = Pure(graph, xs)
    values = pure.run(
        [Dual(x, v, 1) for x, v in zip(xs, vs)], pure.stored(lambda s, a: Dual(a, directionOf(pure, pv, s), 1))
    )
    found, params = pure.pull(
        [u * np.cos(y) for u, y in zip(us, pure.outputs(values))], values, True, pure.params.values()
    )
    return [getattr(g, "tangent", None) for g in (*found, *(params.get(id(p)) for p in pure.params.values()))]


# ---- functions of arrays ------------------------------------------------------------------------------------

FAR = {"arccosh": 1.5}  # ufuncs that want their argument above this


def derivative(f, x, v):
    return (f(x + STEP * v) - f(x - STEP * v)) / (2 * STEP)


SMOOTH = [f for f in TEXTS if isinstance(f, np.ufunc) and {"d->d", "dd->d"} & {*f.types}]


@pytest.mark.parametrize("ufunc", SMOOTH, ids=lambda f: f.__name__)
def test_a_ufunc_has_a_tangent(ufunc, rng):
    name = ufunc.__name__
    xs = [rng.uniform(0.2, 0.8, (3, 1)) + FAR.get(name, 0), rng.uniform(0.9, 1.4, (1, 4))][: ufunc.nin]
    vs = [rng.standard_normal(x.shape) for x in xs]
    y, dy = jvp(lambda *a: ufunc(*a), xs, vs)
    numeric = (ufunc(*[x + STEP * v for x, v in zip(xs, vs)]) - ufunc(*[x - STEP * v for x, v in zip(xs, vs)])) / (
        2 * STEP
    )
    assert np.array_equal(y, ufunc(*xs)) and dy.shape == y.shape and dy.dtype == y.dtype
    assert np.allclose(dy, numeric, rtol=1e-7, atol=1e-8)


B = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.2]])
C = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.7]])
MASK = np.array([[True, False, True], [False, False, True]])
OF_ARRAYS = {
    "sum": lambda x: x.sum(),
    "sum over an axis": lambda x: np.sum(x, axis=0, keepdims=True),
    "sum from a start": lambda x: np.sum(x, initial=5.0),
    "mean": lambda x: x.mean(axis=-1),
    "max": lambda x: x.max(axis=1),
    "min of all": lambda x: np.min(x, keepdims=True),
    "maximum.reduce": lambda x: np.maximum.reduce(x),
    "add.reduce": lambda x: np.add.reduce(x, axis=1),
    "var": lambda x: x.var(axis=0),
    "var with ddof": lambda x: np.var(x, ddof=1),
    "std": lambda x: np.std(x, axis=1, keepdims=True),
    "prod": lambda x: x.prod(),
    "prod over an axis": lambda x: np.prod(x, axis=1, keepdims=True),
    "prod with zeros": lambda x: np.prod(x * MASK, axis=0),
    "multiply.reduce": lambda x: np.multiply.reduce(x),
    "cumsum": lambda x: x.cumsum(axis=1),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "cumprod of all": lambda x: x.cumprod(),
    "sort": lambda x: np.sort(x, axis=0),
    "sort of all": lambda x: np.sort(x, axis=None),
    "matmul": lambda x: x @ C,
    "matmul from the left": lambda x: C @ x,
    "matmul twice": lambda x: x @ x.T,
    "dot": lambda x: x.dot(C),
    "inner": lambda x: np.inner(x, B),
    "outer": lambda x: np.outer(x, x),
    "tensordot": lambda x: np.tensordot(x, C, axes=1),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "kron": lambda x: np.kron(x, C),
    "multiply.outer": lambda x: np.multiply.outer(x, C),
    "reshape": lambda x: x.reshape(3, 2) * C,
    "reshape to rows": lambda x: x.reshape(-1),
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(1, 0),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[None].squeeze(axis=0),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "ravel": lambda x: x.ravel() ** 2,
    "flatten": lambda x: x.flatten() ** 2,
    "flip": lambda x: np.flip(x, 1),
    "roll": lambda x: np.roll(x, 1, axis=1),
    "repeat": lambda x: x.repeat(2, axis=0),
    "tile": lambda x: np.tile(x, (2, 1)),
    "take": lambda x: x.take([0, 0, 2], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.array([[0], [2]]), axis=1),
    "getitem": lambda x: x[:, ::-2],
    "getitem by mask": lambda x: x[MASK],
    "getitem by arrays": lambda x: x[[0, 1, 1], [2, 2, 0]],
    "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace(),
    "triu": lambda x: np.triu(x),
    "diff": lambda x: np.diff(x, axis=1),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 2, 3)),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, C.T)[0],
    "concatenate": lambda x: np.concatenate([x, B, x * x], axis=1),
    "stack": lambda x: np.stack((x, B), axis=-1),
    "split": lambda x: np.split(x, 3, axis=1)[1],
    "pad": lambda x: np.pad(x, 1, constant_values=2.0),
    "pad by edge": lambda x: np.pad(x, ((1, 0), (0, 2)), mode="edge"),
    "pad by reflection": lambda x: np.pad(x, 1, mode="reflect"),
    "where": lambda x: np.where(x > 0.2, x * x, B),
    "where of several shapes": lambda x: np.where(MASK[0], x[0], B),
    "max from a start": lambda x: np.max(x, axis=1, initial=0.5),
    "clip": lambda x: np.clip(x, -0.5, 0.9),
    "clip from below": lambda x: x.clip(0.1, None),
    "clip at what changes": lambda x: np.clip(B, -x * x, x * x),
    "abs": lambda x: abs(x),
    "minus": lambda x: -x + (1 - x) / 2,
    "power": lambda x: (x * x) ** 1.5 + 2**x,
    "remainder": lambda x: x % 0.7,
    "floor": lambda x: np.floor(x) + x // 2,
    "astype": lambda x: x.astype(np.float64) * x.astype(np.int64),
    "copy": lambda x: x.copy(),
    "zeros and a write": lambda x: written(np.zeros_like(x), x),
    "write of a constant": lambda x: written(x * x, 0.0),
    "full_like": lambda x: np.full_like(x, x.sum()),
    "inv": lambda x: np.linalg.inv(x @ x.T + np.eye(2)),
    "solve": lambda x: np.linalg.solve(x @ x.T + np.eye(2), x),
    "solve for a constant": lambda x: np.linalg.solve(C[:2], x),
    "det": lambda x: np.linalg.det(x @ x.T),
    "norm": lambda x: np.linalg.norm(x),
    "norm along an axis": lambda x: np.linalg.norm(x, axis=1, keepdims=True),
    "formula": lambda x: Formula("where(x > 0, x * log(x), exp(x))").numpy()(x),
    "loop of python": lambda x: sum(x[i] * i for i in range(2)),
    "branch on a value": lambda x: x * 2 if x.sum() > 0 else x * x,
    "add with out": lambda x: np.add(np.ones_like(x), x * x, out=np.zeros_like(x)),
}


def written(y, x):
    y[:, 1] = x if np.isscalar(x) else x[:, 0]
    return y


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_a_function_of_arrays_has_a_tangent(name, rng):
    f = OF_ARRAYS[name]
    x, v = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    y, dy = jvp(f, x, v)
    assert np.array_equal(y, f(x)) and dy.shape == y.shape
    assert np.allclose(dy, derivative(f, x, v), rtol=1e-6, atol=1e-7)


def test_every_kernel_that_floats_go_through_has_a_tangent():
    library = {found for name, found in registry.items() if name.startswith("puregraph.ops.")}
    rest = {found.__name__ for found in library if jvpOf(found) is None and not isinstance(found, CompositeKernel)}
    of = {"alive", "classIndex", "firstIndex", "normal", "uniform", "wrapIndex"}  # whole numbers
    assert rest == of | {"norm", "fractions", "writeAt"}  # for optimizers, what only looks, and caches


def test_several_arguments_and_results_keep_their_form():
    a, b = np.array([1.0, 2.0]), np.array(3.0)
    (y, z), (dy, dz) = jvp(lambda a, b: (a * b, b > 2), (a, b), (None, np.array(1.0)))
    assert np.array_equal(dy, [1.0, 2.0]) and z and dz is None


def test_a_tangent_of_none_is_zero():
    y, dy = jvp(np.sin, np.array([1.0]), None)
    assert np.array_equal(dy, [0.0])


def test_numbers_are_arrays_without_axes():
    assert jvp(lambda x, n: x**n, (3.0, 2), (0.5, None)) == (9.0, 3.0)


def test_ties_share_a_tangent():
    _, dy = jvp(lambda x: x.max(), np.array([2.0, 1.0, 2.0]), np.array([1.0, 5.0, 4.0]))
    assert dy == 2.5
    _, dy = jvp(lambda x: np.maximum(x, 1.0), np.array([1.0]), np.array([4.0]))
    assert dy == 2.0


@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_nan_decides_the_tangent_of_an_extreme_as_it_decides_the_extreme():
    for function in (np.max, np.min):
        _, dy = jvp(function, np.array([np.nan, 1.0, np.nan]), np.array([1.0, 5.0, 4.0]))
        assert dy == 2.5


def test_what_a_condition_discards_spoils_no_tangent():
    with np.errstate(all="ignore"):
        _, dy = jvp(lambda x: np.where(x > 0, np.sqrt(np.where(x > 0, x, 1)), 0), np.zeros(1), np.ones(1))
    assert dy == 0
    _, dy = jvp(Formula("where(x > 0, sqrt(x), 0)").numpy(), np.array([0.0, 4.0]), np.ones(2))
    assert np.array_equal(dy, [0.0, 0.25])


def test_derivatives_may_lie_inside_one_another():
    def slope(x):
        return jvp(lambda z: x * z**3, x, np.ones_like(x))[1]  # 3 x z^2 at z = x, along 1

    y, dy = jvp(slope, np.array(2.0), np.array(1.0))
    assert y == 24.0 and dy == 36.0  # 3 x^3, 9 x^2


def test_a_module_inside_a_function_counts(rng):
    net = Sequential(Linear(3, 4), BatchNorm(4), Tanh()).calcMode("float64")
    x, v = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    lone = Linear(3, 4).calcMode("float64")
    for module in (net, lone):
        y, dy = jvp(lambda x, module=module: module(x * x).sum(), x, v)
        assert np.isclose(dy, derivative(lambda x, module=module: module(x * x).sum(), x, v), rtol=1e-6)
    assert net[1].mean.data.any()  # by the plain calls
    before = net[1].mean.data.copy()
    jvp(net, x, v)
    assert np.array_equal(net[1].mean.data, before)


def test_a_derivative_leaves_no_trace(rng):
    net = residual()
    inputs = data(rng)
    net(*inputs)
    net.backward()
    kept = {n: s.data.copy() for n, s in net.states.items()}
    grads = {n: p.grad for n, p in net.params.items()}
    last, shown = net.last, [(n.made, n.grad) for n in net.nodes]
    v = [rng.standard_normal(inputs[0].shape), None]
    jvp(net, inputs, v)
    hvp(net, inputs, v, {"fc.W": np.ones((12, 3))})
    vjp(net, inputs, params=True)
    assert net.last is last and all(n.made is d and n.grad is g for n, (d, g) in zip(net.nodes, shown))
    assert all(np.array_equal(s.data, kept[n]) for n, s in net.states.items())
    assert all(p.grad is grads[n] for n, p in net.params.items())


def test_masks_are_those_of_the_next_call(rng):
    drop = Dropout(0.5).calcMode("float64")
    x = rng.standard_normal(100)
    y, dy = jvp(drop, x, x)
    assert np.array_equal(y, dy) and np.array_equal(y, drop(x)) and not np.array_equal(y, drop(x))


def test_gradients_of_vjp_are_those_of_backward(rng):
    net = residual()
    inputs = data(rng)
    found = vjp(net, inputs, params=["fc.W", "conv1.b"])
    assert found.value == net(*inputs)
    net.backward()
    assert np.array_equal(found.inputs[0], net.grad[0]) and found.inputs[1] is None
    assert list(found.params) == ["fc.W", "conv1.b"]
    assert all(np.array_equal(g, net.params[path].grad) for path, g in found.params.items())


def test_frozen_parameters_have_derivatives_too(rng):
    lone = Linear(2, 3).calcMode("float64").evalMode()
    lone.W.trainable = False
    x = rng.standard_normal((4, 2))
    found = vjp(lone, x, np.ones((4, 3)), params=True)
    assert np.allclose(found.params["W"], x.T @ np.ones((4, 3))) and np.array_equal(found.params["b"], [4.0] * 3)


def test_a_parameter_at_two_nodes_moves_once(rng):
    fc = Linear(3, 3, useBias=False, name="fc").calcMode("float64")
    x, v = rng.standard_normal((2, 3)), rng.standard_normal((3, 3))
    _, dy = jvp(Sequential(fc, fc), x, None, {"fc.W": v})
    assert np.allclose(dy, x @ v @ fc.W.data + x @ fc.W.data @ v, rtol=1e-13)


class Straight(Function):
    """Round, with the gradient passed straight through."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.floor(x) + x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_variables[0] ** 2


def test_a_function_is_differentiated_as_it_is_written():
    x = Input(name="x").node()
    net = Graph(x, Straight.node(x, name="straight"))
    at, v = np.array([1.5]), np.array([2.0])
    assert jvp(net, at, v)[1] == 2 * 1.5 * 2.0  # the derivative of forward
    assert vjp(net, at, np.ones(1)).inputs == 3 * 1.5**2  # what backward says
    assert hvp(Sequential(net, Sum()), at, v).inputs == 6 * 1.5 * 2.0  # the derivative of what backward says


def test_jacobians_and_hessians_are_arrays(rng):
    x = rng.standard_normal((2, 2))
    whole = jacobian(lambda x: x @ x, x)
    assert whole.shape == (2, 2, 2, 2)
    for i in range(4):
        v = np.eye(4)[i].reshape(2, 2)
        assert np.allclose(whole.reshape(2, 2, 4)[..., i], v @ x + x @ v)
    cost = costs.CrossEntropy()
    a, t = Input(name="a").node(), Input(name="t").node()
    net = Graph([a, t], cost(a, t)).calcMode("float64")
    labels = np.array([0, 1])
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    found = [hvp(net, [x, labels], [np.eye(4)[i].reshape(2, 2), None]).inputs[0] for i in range(4)]
    for i, h in enumerate(found):
        n, k = divmod(i, 2)
        wanted = np.zeros((2, 2))
        wanted[n] = p[n] * ((np.arange(2) == k) - p[n, k]) / 2
        assert np.allclose(h, wanted)
    square = Sequential(Linear(3, 1, useBias=False), Sum()).calcMode("float64")
    assert not hessian(square, rng.standard_normal(3)).any()
    assert np.allclose(hessian(quadratic(), rng.standard_normal(3)), 2 * np.eye(3))


def quadratic():
    x = Input(name="x").node()
    return Graph(x, Sum()(x * x)).calcMode("float64")


def test_single_precision_stays_single(rng):
    net = Sequential(Linear(3, 4), BatchNorm(4), Tanh(), Linear(4, 2))
    x = rng.standard_normal((5, 3)).astype(np.float32)
    y, dy = jvp(net, x, x)
    assert y.dtype == dy.dtype == np.float32


# ---- what cannot be -----------------------------------------------------------------------------------------


@kernel
def strange(x):
    return np.asarray(x) * 2


class Odd(Module):
    """y = strange(x)

    Shapes    x (any) -> y as x
    Source    none
    """

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return strange(x)


def test_an_unknown_function_is_named_with_its_node():
    net = Sequential(Tanh(), Odd(name="odd"))
    with pytest.raises(AutoDiffException, match="no tangent of .*strange.*register_tangent") as caught:
        jvp(net, np.ones(2, np.float32), np.ones(2, np.float32))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "at 'odd' (Odd)" in text
    assert jvp(net, np.ones(2, np.float32))[1].any() == False  # noqa: E712 - without a tangent nobody asks


def test_a_rule_can_be_registered():
    @register_tangent(strange)
    def doubled(function, values, tangents, options):
        return function(*values), 2 * tangents[0]

    try:
        assert jvp(Odd(), np.ones(2), np.full(2, 3.0))[1].tolist() == [6.0, 6.0]
        with pytest.raises(ValueError, match="strange has declared its jvp already"):
            register_tangent(strange)(doubled)
    finally:
        del strange.declarations["jvp"]


@pytest.mark.parametrize("call", [np.asarray, float, lambda x: x.tolist(), lambda x: np.array([x, x])])
def test_leaving_numpy_is_named(call):
    with pytest.raises(AutoDiffException, match="does not become an array"):
        jvp(call, np.array(1.0), np.array(1.0))


def test_a_view_cannot_be_written_to():
    def f(x):
        y = np.zeros_like(x)
        y[0][0] = x[0, 0]
        return y

    with pytest.raises(AutoDiffException, match="not to a view"):
        jvp(f, np.ones((2, 2)), np.ones((2, 2)))


def test_wrong_directions_are_refused(rng):
    net = Sequential(Linear(3, 2, name="fc")).calcMode("float64")
    x = rng.standard_normal((4, 3))
    with pytest.raises(ShapeError, match="a tangent of shape .*input 0"):
        jvp(net, x, np.ones((3, 4)))
    with pytest.raises(ShapeError, match="parameter 'fc.W'"):
        jvp(net, x, None, {"fc.W": np.ones(3)})
    with pytest.raises(GraphError, match="no parameter 'fc.w'; it has fc.b, fc.W"):
        jvp(net, x, None, {"fc.w": np.ones(3)})
    with pytest.raises(AutoDiffException, match="a tangent for each of 1 input, got 2"):
        jvp(net, x, [x, x])
    with pytest.raises(AutoDiffException, match="holds no floats"):
        jvp(Embedder(3, 2), np.array([1]), np.array([1.0]))
    with pytest.raises(AutoDiffException, match="one number from"):
        hvp(net, x, x)
    with pytest.raises(AutoDiffException, match="wanted a direction"):
        hvp(net, x)
    with pytest.raises(ShapeError, match="a gradient of shape"):
        vjp(net, x, np.ones((4, 3)))


# ---- on arrays that are not numpy's -------------------------------------------------------------------------


def derivatives(case, move):
    """J v, and the derivative of the gradients along v, from arrays that `move` has taken elsewhere."""
    rng = np.random.default_rng(1)
    for stored in (*case.module.params.values(), *case.module.states.values()):
        stored.data = move(stored.data)
    inputs = [move(np.array(x)) for x in case.inputs]
    vs = [None if v is None else move(v) for v in directions(rng, case.inputs)]
    pure = Pure(case.module, inputs)
    params = {path: move(rng.standard_normal(p.shape)) for path, p in pure.params.items()}
    ys, dys = map(asList, jvp(case.module, inputs, vs, params))
    values = pure.run(
        [x if v is None else Dual(x, v, 1) for x, v in zip(inputs, vs)],
        pure.stored(lambda s, a: Dual(a, directionOf(pure, params, s), 1) if a.dtype.kind == "f" else a),
    )
    seeds = [np.cos(y) for y in pure.outputs(values)]
    grads, _ = pure.pull(seeds, values, True, pure.params.values())
    return [
        *ys,
        *(dy for dy in dys if dy is not None),
        *(g.tangent for g in grads if isinstance(g, Dual) and g.tangent is not None),
    ]


@everyExample([e for e in DERIVED if e[0] is not modules.Orthogonal], mode=MODES)  # which the host computes
def test_derivatives_run_on_device_arrays(found, index, mode, monkeypatch):
    cases = [Case(*examplesOf(found)[index], train=MODES[mode]) for _ in range(2)]
    cases[1].module = copy.deepcopy(cases[0].module)
    with useFast(False), monkeypatch.context() as patched:
        wanted = derivatives(cases[0], lambda array: array)
        useStrict(patched)
        got = derivatives(cases[1], toStrict)
    for a, b in zip(got, wanted, strict=True):
        assert isinstance(a, Strict) and a.dtype == b.dtype and np.array_equal(a.values, b)


def test_a_graph_with_gradients_has_derivatives_too(rng):
    x, t = Input(name="x").node(), Input(name="t").node()
    h = Tanh(name="act")(Linear(4, 3, name="fc")(x))
    net = Graph([x, t], costs.CrossEntropy(name="cost")(h, t)).calcMode("float64")
    inputs, v = [rng.standard_normal((5, 4)), rng.integers(0, 3, 5)], rng.standard_normal((5, 4))
    joint = add_backward_pass(net, ["cost"], ["x", "fc.W"])
    _, changes = jvp(joint, [*inputs, np.ones(())], [v, None, None])
    found = hvp(net, inputs, [v, None])
    assert np.array_equal(changes[1], found.inputs[0])
    joined = hvp(net, inputs, [v, None], {"fc.W": np.zeros((4, 3))})
    assert np.allclose(changes[2], joined.params["fc.W"], rtol=1e-13)


# ---- functions of arrays, backward --------------------------------------------------------------------------


def energy(x, w):
    return np.sum(np.tanh(x @ w) ** 2 * np.sin(x)) + np.log(1 + np.sum(x * x))


def test_functions_have_gradients_and_products_with_hessians(rng):
    x, w, v = (rng.standard_normal((3, 3)) for _ in range(3))
    found = vjp(energy, [x, w])
    assert found.value == energy(x, w) and found.params == {}
    for i, at in enumerate((x, w)):
        slope = derivative(lambda z, i=i: energy(*(z if j == i else a for j, a in enumerate((x, w)))), at, v)
        assert np.isclose(np.sum(found.inputs[i] * v), slope, rtol=1e-6)
    got = hvp(energy, [x, w], [v, None])
    plus, minus = (vjp(energy, [x + s * v, w]).inputs for s in (STEP, -STEP))
    for h, a, b in zip(got.inputs, plus, minus):
        assert np.allclose(h, (a - b) / (2 * STEP), rtol=1e-6, atol=1e-7)
    assert np.isclose(jvp(energy, [x, w], [v, None])[1], np.sum(found.inputs[0] * v), rtol=1e-12)


def test_hessians_of_functions(rng):
    A = rng.standard_normal((3, 3))
    x = rng.standard_normal(3)
    assert np.allclose(hessian(lambda x: x @ A @ x, x), A + A.T)
    assert not hessian(lambda x: np.sum(x), x).any()
    with pytest.raises(AutoDiffException, match="wanted one number from the function"):
        hvp(lambda x: x * x, x, x)


def test_a_function_of_several_results_and_constants(rng):
    x, n = rng.standard_normal(3), np.array([0, 2, 2])
    found = vjp(lambda x, n: (x[n] * 2, x.sum(), n), [x, n], [np.ones(3), np.array(1.0), None])
    assert np.array_equal(found.inputs[0], [3.0, 1.0, 5.0]) and found.inputs[1] is None
