"""BackwardGraph of a puregraph Graph: states, modes, frozen parameters, ties, hidden outputs, rules by name."""

import numpy as np
import pytest

from puregraph import Graph
from puregraph.autodiff import BackwardGraph
from puregraph.compat.analog.backwardmodule import BackwardIdentity
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.core import device as devices
from puregraph.core.errors import AutoDiffException
from puregraph.core.rules import registerRule
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    BatchNorm,
    Concat,
    Conv2D,
    Dropout,
    Embedder,
    Flatten,
    Linear,
    MaxPool2D,
    Relu,
    Tanh,
)
from puregraph.modules.costs import MSE


def convnet():
    return Sequential(
        Conv2D(2, 3, 3, pad=1, name="conv"),
        BatchNorm(3, name="norm"),
        Relu(name="relu"),
        MaxPool2D(2, name="pool"),
        Flatten(name="flat"),
        Dropout(0.5, name="drop"),
        Linear(12, 2, name="fc"),
    ).calcMode("float64")


def compare(graph, data, grads):
    """Gradients of inputs and parameters, by Graph.backward and by a BackwardGraph, from one pass."""
    graph(data)
    graph.backward(grads)
    params = list(graph.params.values())
    wanted = [graph.grad, *(p.grad for p in params)]
    for p in params:
        p.grad = None
    found = [BackwardGraph().from_forward(graph)(grads), *(p.grad for p in params)]
    assert [g is None for g in found] == [g is None for g in wanted]
    assert all(np.array_equal(f, w) for f, w in zip(found, wanted, strict=True) if w is not None)
    return found


@pytest.mark.parametrize("mode", ["trainMode", "evalMode"])
def test_modes_and_states(mode, rng):
    net = getattr(convnet(), mode)()
    found = compare(net, rng.standard_normal((4, 2, 4, 4)), rng.standard_normal((4, 2)))
    assert (found[1] is None) == (mode == "evalMode")


def test_frozen_parameters_and_a_mode_that_changes(rng):
    net = convnet()
    back = BackwardGraph().from_forward(net).compile()
    x, g = rng.standard_normal((4, 2, 4, 4)), rng.standard_normal((4, 2))
    net["conv"].W.trainable = False
    net(x)
    back(g)
    assert net["conv"].W.grad is None and net["conv"].b.grad is not None
    assert "conv.W.grad" not in str(back) and "conv.b.grad" in str(back)
    net["conv"].W.trainable = True
    net(x)
    back(g)
    assert net["conv"].W.grad is not None and "conv.W.grad" in str(back)
    net(x)
    net["drop"].isTraining = False
    with pytest.raises(ValueError, match="have changed since the forward pass"):
        back(g)


def test_a_cost_without_a_given_gradient():
    x, t = Input(name="x").node(), Input(name="t").node()
    graph = Graph([x, t], MSE(name="cost").node(Linear(3, 2, name="fc").node(x), t)).calcMode("float64")
    back = BackwardGraph().from_forward(graph)
    data = [np.ones((4, 3)), np.zeros((4, 2))]
    graph(data)
    graph.backward()
    found = back()
    assert all(np.array_equal(a, b) for a, b in zip(found, graph.grad, strict=True))


def test_whole_numbers_as_indices(rng):
    graph = Graph(ids := Embedder(5, 3, name="table").node(), Linear(3, 2, name="fc").node(ids)).calcMode("float64")
    found = compare(graph, np.array([[1, 2], [2, 2]]), rng.standard_normal((2, 2, 2)))
    assert found[0] is None and found[1] is not None


def test_tied_parameters_are_added_up_once(rng):
    a, b = Linear(3, 3, name="a"), Linear(3, 3, name="b")
    b.W = a.W
    net = Sequential(a, Tanh(name="t"), b, a.node(name="again").module).calcMode("float64")
    compare(net, rng.standard_normal((2, 3)), rng.standard_normal((2, 3)))


def test_any_number_of_inputs(rng):
    graph = Graph(join := Concat(0, name="join").node(), Tanh(name="t").node(join))
    back = BackwardGraph().from_forward(graph)
    for count in (1, 2, 3):
        data = [rng.standard_normal((2, 3)) for _ in range(count)]
        graph(data)
        graph.backward(np.ones((2 * count, 3)))
        found = back(np.ones((2 * count, 3)))
        wanted = graph.grad if count > 1 else [graph.grad]
        assert all(np.array_equal(f, w) for f, w in zip(found if count > 1 else [found], wanted, strict=True))


class Cube(Function):
    """y = x^3."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_variables
        return 3 * x**2 * grad


def test_a_function_in_a_puregraph_graph():
    x = Input(name="x").node()
    graph = Graph(x, Cube.node(x))
    graph(np.array([1.0, 2.0]))
    assert BackwardGraph().from_forward(graph)(np.ones(2)).tolist() == [3.0, 12.0]


class Silent(Module):
    """y = x, without a gradient."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x


def test_a_node_without_a_gradient_is_named_with_what_to_write():
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, Silent("quiet"), graph.OUTPUT)
    net = Sequential(Silent("quiet"))
    for made, back in ((graph, graph.backward_graph), (net, BackwardGraph().from_forward(net))):
        made(np.ones(2))
        with pytest.raises(AutoDiffException, match=r"at 'quiet' \(Silent\), backward: .*write Silent.updateGrad"):
            back(np.ones(2))


@registerRule(Tanh, "straight in this test")
def straight(module, grad, x, y):
    return grad


def test_a_rule_named_on_a_node_holds_in_both_kinds_of_graph():
    tanh = Tanh(name="t")
    x = Input(name="x").node()
    graph = Graph(x, tanh.node(x, rule="straight in this test"))
    graph(np.array([3.0]))
    assert BackwardGraph().from_forward(graph)(np.ones(1)).tolist() == [1.0]
    calls = ForwardGraph()
    calls.add_connection(calls.INPUT, tanh.node(rule="straight in this test"), calls.OUTPUT)
    calls(np.array([3.0]))
    assert calls.backward(np.ones(1)).tolist() == [1.0]


def test_gradients_stay_on_the_device(device, rng):
    net, seed = convnet(), rng.standard_normal((4, 2))
    x, g = devices.toDevice(rng.standard_normal((4, 2, 4, 4))), devices.toDevice(seed)
    net(x)
    net.backward(g)
    found = BackwardGraph().from_forward(net).replace("drop", BackwardIdentity())(g, retain_graph=True)
    assert type(found) is type(x)
    again = BackwardGraph().from_forward(net)(g)
    assert np.array_equal(devices.toHost(again), devices.toHost(net.grad))
    calls = ForwardGraph()
    calls.add_connection(calls.INPUT, Tanh(name="t"), calls.OUTPUT)
    y = calls(x)
    assert type(y) is type(x) and type(calls.backward(y)) is type(x)
