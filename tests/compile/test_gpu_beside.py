"""Costly functions, reductions, comparisons and norms side by side, at small sizes, on a GPU as a tracer for CuPy
carries them out: whole steps give what the graph gives."""

import copy

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator
from test_compile_beside import COMPARED, COSTLY, NORMS, REDUCED, Rms

from puregraph.core import device, initial
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Add, LayerNorm, Linear, Max, Min, Mul, Relu, Reshape, Sigmoid, Sub, Sum
from puregraph.modules.costs import MSE, CrossEntropy
from puregraph.optimizers import SGD

pytestmark = [needsEmulator, pytest.mark.filterwarnings("ignore::puregraph.core.errors.GraphWarning")]


def agree(monkeypatch, make, data, cost=MSE):
    """Two steps on a GPU leave the parameters, and give the costs, of two steps of the graph on the CPU."""
    with device.useDevice("cpu"):
        initial.seed(1)
        net = make()
        target = data.pop() if cost is CrossEntropy else np.zeros(net.dataShapeFrom([x.shape for x in data]), "f4")
        twin, optimizer = copy.deepcopy(net), SGD(0.1).setupOn(net)
        costs = []
        for _ in range(2):
            nodes = [Input(name=f"d{i}").node() for i in range(len(data) + 1)]
            whole = Graph(nodes, cost().node(net.node(*nodes[:-1]), nodes[-1]))
            costs.append(float(whole(*data, target)))
            whole.backward(np.float32(1))
            optimizer.update()
        wanted = {path: np.array(p.data) for path, p in net.params.items()}
    useGpu(monkeypatch)
    for p in twin.params.values():
        p.data = device.toDevice(p.data)
    program = twin.compile(*[x.shape for x in (*data, target)], cost=cost(), optimizer=SGD(0.1), poison=True)
    found = [float(device.toHost(program.run(*data, target)[0])) for _ in range(2)]
    assert program.why == ""
    np.testing.assert_allclose(found, costs, 2e-5, 1e-6)
    for path, stored in twin.params.items():
        np.testing.assert_allclose(device.toHost(stored.data), wanted[path], 2e-4, 2e-5, err_msg=path)


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def after(size, rest):
    """A graph of what is made of a linear layer's sums."""

    def make():
        x = Input(name="x").node()
        return Graph(x, rest(Linear(size, size, name="first").node(x)))

    return make


@pytest.mark.parametrize("reduced", REDUCED)
@pytest.mark.parametrize("costly", ["sigmoid", "swish", "gelu"])
def test_a_costly_function_beside_a_reduction_of_the_same_array(monkeypatch, costly, reduced):
    make = after(9, lambda h: Mul().node(COSTLY[costly]().node(h), REDUCED[reduced](9).node(h)))
    agree(monkeypatch, make, [normal(5, 9)])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("text", ["x + 0.7 x", "x tanh(x) - 0.2 x"])
def test_a_largest_number_gets_its_gradient(monkeypatch, text, axis):
    agree(monkeypatch, after(9, lambda h: Max(axis=axis).node(COMPARED[text](h))), [normal(12, 9)])
    agree(monkeypatch, after(9, lambda h: Min(axis=axis).node(COMPARED[text](h))), [normal(12, 9)])


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 3, 4), (3, 1, 4), (2, 1, 1)])
def test_reductions_over_axes_of_length_one(monkeypatch, shape):
    size = shape[-1]
    agree(monkeypatch, after(size, lambda h: LayerNorm(size).node(Max(axis=1).node(h))), [normal(*shape)])
    agree(monkeypatch, after(size, lambda h: Sub().node(Max(axis=1, keepdims=True).node(h), h)), [normal(*shape)])
    agree(monkeypatch, after(size, lambda h: Mul().node(Sum(axis=0, keepdims=True).node(h), h)), [normal(*shape)])


@pytest.mark.parametrize("second", NORMS)
@pytest.mark.parametrize("first", ["layer", "batch"])
def test_two_norms_before_a_cost(monkeypatch, first, second):
    agree(
        monkeypatch,
        after(8, lambda h: NORMS[second]().node(NORMS[first]().node(h))),
        [normal(6, 8), np.arange(6)],
        CrossEntropy,
    )


@pytest.mark.parametrize("classes", [1, 4])
def test_classes_with_positions_beside_a_gate(monkeypatch, classes):
    def rest(h):
        return Reshape((-1, classes, 2)).node(Mul().node(Relu().node(h), Sigmoid().node(h)))

    agree(monkeypatch, after(2 * classes, rest), [normal(3, 2 * classes), np.zeros((3, 2), int)], CrossEntropy)


@pytest.mark.parametrize("make", [LayerNorm, Rms])
def test_one_norm_at_two_nodes(monkeypatch, make):
    norm = make(6)
    agree(monkeypatch, after(6, lambda h: Add().node(norm.node(h), norm.node(Relu().node(h)))), [normal(4, 6)])
