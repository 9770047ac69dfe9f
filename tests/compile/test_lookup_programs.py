"""Elements read and written by index in a compiled step: native, also by indices that the step makes itself."""

import numpy as np
import pytest
from leftovers import leftToNumpy
from natively import needsNative, unverified
from test_simpler import programOf

import puregraph as pg
from puregraph import DataError, Graph, Input, Linear, Sequential, costs
from puregraph.modules import GatherElements, GatherND, ScatterElements, ScatterND
from puregraph.optimizers import Adam

pytestmark = needsNative
TABLE = np.arange(12).reshape(3, 4) % 7
LOOKUPS = {
    "along, in order": lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "along, the largest": lambda x: np.take_along_axis(x, np.expand_dims(np.argmax(x, axis=1), 1), axis=1),
    "along, from the last axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=-1), axis=-1),
    "along, flat": lambda x: np.take_along_axis(x, np.array([3, -1, 5]), None),
    "along, broadcast": lambda x: np.take_along_axis(x, np.array([[2, -1, 0]]), 1),
    "clipped": lambda x: np.take(x, np.clip((3 * x[:, 0]).astype(np.int64), 0, 9), axis=1),
    "by a table": lambda x: np.take(x, TABLE, axis=0),
    "by a table, flat": lambda x: np.take(x, TABLE),
    "rows": lambda x: x[np.argmax(x, axis=0)],
    "rows of 32 bits": lambda x: x[np.argmax(x, axis=0).astype(np.int32)],
    "columns": lambda x: x[:, np.argmin(x, axis=1) - 3],
    "points": lambda x: x[np.argmax(x, axis=0), np.arange(10) - 5],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", LOOKUPS.values(), ids=LOOKUPS)
def test_it_is_native_and_equal(rng, rule, dtype):
    x = rng.standard_normal((7, 10)).astype(dtype)
    program = programOf(rule, x)
    assert not leftToNumpy(program)
    assert np.array_equal(program.run(x), rule(x))


class Chosen(pg.Module):
    """y = the element of each row at the position that t says."""

    def dataShapeFrom(self, x, t):
        return (x[0], 1)

    def updateData(self, x, t):
        return np.take_along_axis(x, np.expand_dims(t.astype(np.int64) * 2, 1), 1)

    def updateGrad(self, grad, x, t, y):
        return np.zeros_like(x) + grad, None


@unverified
def test_a_fault_names_the_node_and_leaves_the_weights_alone(rng):
    x, t, target = (Input(name=name).node() for name in ("x", "t", "target"))
    hidden = Linear(4, 6, name="fc").node(x)
    net = Graph([x, t, target], costs.MSE(name="cost")(Chosen(name="pick").node(hidden, t), target))
    x, good = rng.standard_normal((5, 4)).astype("f4"), np.zeros(5, np.float32)
    shapes = [(5, 4), (5,), (5, 1)]
    program = net.compile(shapes, train=True, optimizer=Adam(), dtypes=["float32"] * 3)
    assert not leftToNumpy(program)
    y = np.zeros((5, 1), np.float32)
    program.run(x, good, y)
    before = [p.data.copy() for p in net.params.values()]
    with pytest.raises(IndexError, match="pick"):
        program.run(x, good + 3, y)
    assert all(np.array_equal(p.data, old) for p, old in zip(net.params.values(), before))
    assert np.isfinite(program.run(x, good + 2, y)) and program.executable is not None


MODULES = [
    (GatherElements(1), [(3, 4), (2, 5)]),
    (GatherND(1), [(3, 4, 5), (3, 6, 1)]),
    (GatherND(), [(3, 4, 5), (6, 2)]),
    *[(ScatterElements(1, kind), [(3, 4), (2, 9), (2, 9)]) for kind in ("none", "add", "mul", "min", "max")],
    *[(ScatterND(kind), [(3, 4, 5), (9, 2), (9, 5)]) for kind in ("none", "add", "mul", "min", "max")],
]


@pytest.mark.parametrize(("module", "shapes"), MODULES, ids=lambda v: getattr(v, "title", lambda: None)())
def test_modules_are_native_with_their_gradients(rng, module, shapes):
    data = [x.astype("f4") if x.dtype.kind == "f" else x for x in module.sample(rng, *shapes)]
    net = Sequential(module)
    program = net.compile(shapes, train=True)
    assert not leftToNumpy(program)
    y = net(data)
    g = rng.standard_normal(y.shape).astype("f4")
    net.backward(g)
    assert np.array_equal(program.run(*data, g), y)
    for found, wanted in zip(program.grad, net.grad):
        assert wanted is None or np.array_equal(found, wanted)


def test_an_index_out_of_range_is_refused_by_the_module(rng):
    net = Sequential(ScatterND(name="put"))
    program = net.compile([(3, 2), (2, 1), (2, 2)], train=False)
    x, updates = (rng.standard_normal(shape).astype("f4") for shape in ((3, 2), (2, 2)))
    with pytest.raises(DataError, match=r"ScatterND: wanted indices from -3 to 2, got 0 to 3\nat 'put'"):
        program.run(x, np.array([[0], [3]]), updates)


@pytest.mark.parametrize("cost", [costs.Lovasz, costs.LovaszHinge])
def test_lovasz_is_native(rng, cost):
    (module, shapes) = next(iter(cost.examples()))
    data = module.sample(rng, *shapes)
    net = Graph(nodes := [Input().node() for _ in shapes], module.node(*nodes))
    program = net.compile(shapes, dtypes=[np.dtype("f4") if x.dtype.kind == "f" else x.dtype for x in data], train=True)
    assert not leftToNumpy(program)


@pytest.mark.peers
@pytest.mark.parametrize("kind", ["sum", "prod", "amin", "amax"])
def test_scattering_as_torch_reduces(rng, kind):
    torch = pytest.importorskip("torch")
    ours = {"sum": "add", "prod": "mul", "amin": "min", "amax": "max"}[kind]
    for _ in range(20):
        shape = tuple(rng.integers(1, 6, 3))
        axis = int(rng.integers(-3, 3))
        lengths = [int(rng.integers(1, n + 1)) for n in shape]
        lengths[axis] = int(rng.integers(1, 9))
        x, index = rng.standard_normal(shape), rng.integers(0, shape[axis], lengths)
        updates = rng.standard_normal(lengths)
        a, b = torch.tensor(x, requires_grad=True), torch.tensor(updates, requires_grad=True)
        y = a.scatter_reduce(axis, torch.tensor(index), b, kind)
        g = rng.standard_normal(shape)
        y.backward(torch.tensor(g))
        net = Sequential(ScatterElements(axis, ours)).calcMode("float64")
        np.testing.assert_allclose(net([x, index, updates]), y.detach().numpy(), 1e-12, 1e-12)
        net.backward(g)
        np.testing.assert_allclose(net.grad[0], a.grad.numpy(), 1e-10, 1e-12)
        np.testing.assert_allclose(net.grad[2], b.grad.numpy(), 1e-10, 1e-12)
