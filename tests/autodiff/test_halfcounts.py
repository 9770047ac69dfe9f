"""float16 with more elements than it can count, 65504: every rule that divides by a count, against float64."""

import numpy as np
import pytest

from puregraph import Graph, Input
from puregraph.autodiff import Variable, add_backward_pass, grad, jvp
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import GlobalAvgPool, Max, Mean, Min
from puregraph.modules.scattering import ScatterElements

MANY = 70000
DEEP = {
    "mean": np.mean,
    "mean along an axis": lambda x: np.mean(x, axis=1).sum() * 8,
    "average": np.average,
    "weighted average": lambda x: np.average(x, weights=np.full(x.shape, 3, np.float16)),
    "var": np.var,
    "var along an axis": lambda x: np.var(x, axis=1, ddof=1).sum(),
    "std": np.std,
    "max": np.max,
    "min along an axis": lambda x: np.min(x, axis=1).sum(),
}


def data(isFlat=False):
    """Values around 0 whose squares do not add up to more than float16 holds, or equal ones."""
    x = np.random.default_rng(0).normal(scale=0.3, size=(1, MANY)).astype(np.float16)
    return np.ones_like(x) if isFlat else x


def near(y, wanted, tolerance=2e-3):
    """Compare with float64, relative to the largest, but for the last bit of numbers so small that they have few."""
    y, wanted = np.asarray(y, np.float64), np.asarray(wanted, np.float64)
    assert np.any(wanted)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=tolerance * np.abs(wanted).max() + 2.0**-25)


@pytest.mark.parametrize("name", DEEP)
def test_gradients_on_the_tape_divide_by_more_than_float16_holds(name):
    x = data("m" in name and name[:3] in ("max", "min"))
    found = []
    for dtype in (np.float16, np.float64):
        v = Variable(x.astype(dtype), requires_grad=True)
        with np.errstate(over="ignore"):  # numpy's own average counts in float16
            y = DEEP[name](v)
        (y * np.array(512, dtype)).backward()
        found.append(v.grad)
    assert found[0].dtype == np.float16
    near(*found)


@pytest.mark.parametrize("name", [name for name in DEEP if "average" not in name])
def test_tangents_divide_by_more_than_float16_holds(name):
    isExtreme = name[:3] in ("max", "min")
    x, t = data(isExtreme), data() + np.float16(0.5)
    pairs = [jvp(DEEP[name], x.astype(d), t.astype(d))[1] for d in (np.float16, np.float64)]
    assert pairs[0].dtype == np.float16
    near(*pairs)


def test_second_derivatives_divide_by_more_than_float16_holds():
    found = []
    for dtype in (np.float16, np.float64):
        v = Variable(data().astype(dtype), requires_grad=True)
        (g,) = grad(np.mean(v * v) * np.array(8192, dtype), v, create_graph=True)
        found.append(grad(g.sum(), v)[0])
    near(*found)


MODULES = {
    "GlobalAvgPool": (lambda: GlobalAvgPool(name="y"), (1, 1, 7, MANY // 7)),
    "Mean": (lambda: Mean(name="y"), (1, MANY)),
    "Mean along an axis": (lambda: Mean(axis=1, name="y"), (2, MANY)),
    "Max": (lambda: Max(axis=1, name="y"), (1, MANY)),
    "Min": (lambda: Min(axis=1, name="y"), (1, MANY)),
}


@pytest.mark.parametrize("name", MODULES)
def test_gradients_of_modules_divide_by_more_than_float16_holds(name):
    make, shape = MODULES[name]
    net = Sequential(make()).calcMode(np.float16).trainMode()
    y = net(np.ones(shape, np.float16))
    net.backward(np.full(y.shape, 512, np.float16))
    wanted = np.full(shape, np.float16(512 * y.size / np.prod(shape)))
    np.testing.assert_array_equal(net.grad, wanted)


@pytest.mark.parametrize("name", MODULES)
def test_compiled_gradients_divide_by_more_than_float16_holds(name):
    make, shape = MODULES[name]
    x = Input(name="x", dtype="float16").node()
    net = Graph(x, make().node(x)).calcMode(np.float16).trainMode()
    y = net(np.ones(shape, np.float16))
    both = add_backward_pass(net, "y", ["x"])
    program = both.compile(shape, y.shape, dtypes=["float16", "float16"])
    found = program.run(np.ones(shape, np.float16), np.full(y.shape, 512, np.float16))
    wanted = np.full(shape, np.float16(512 * y.size / np.prod(shape)))
    np.testing.assert_array_equal(found[-1], wanted)


@pytest.mark.parametrize("function", [np.var, np.std], ids=lambda f: f.__name__)
def test_compiled_variances_divide_by_more_than_float16_holds(function):
    class Spread(Module):
        def dataShapeFrom(self, x):
            return ()

        def updateData(self, x):
            return function(x)

    x = data()
    net = Graph(node := Input(name="x", dtype="float16").node(), Spread(name="s").node(node)).calcMode(np.float16)
    near(net.evalMode().compile(x.shape, dtypes=["float16"]).run(x), function(x.astype(float)))


def test_equal_updates_of_a_scatter_are_counted_beyond_what_float16_adds_by_ones():
    net = ScatterElements(reduction="max").calcMode(np.float16)
    x, index, updates = np.zeros(1, np.float16), np.zeros(5000, int), np.ones(5000, np.float16)
    net(x, index, updates)
    net.backward(np.array([512], np.float16))
    np.testing.assert_array_equal(net.grad[2], np.full(5000, np.float16(512 / 5000)))
