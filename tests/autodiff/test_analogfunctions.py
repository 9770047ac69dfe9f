"""Functions as nodes of graphs of callables: what a tape, a puregraph Graph and a backward graph find is equal."""

from collections import Counter

import numpy as np
import pytest

from puregraph import Graph
from puregraph.autodiff import BackwardGraph
from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.modelgraph import ModelGraph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.core.accumulate import accumulate
from puregraph.core.errors import AutoDiffException
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Tanh


class Scale(Function):
    """y = 2 x w, z = x + w."""

    outputNames = ("y", "z")

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return 2 * x * w, x + w

    @staticmethod
    def backward(ctx, gy, gz):
        x, w = ctx.saved_variables
        return 2 * gy * w + gz, 2 * gy * x + gz


class Square(Function):
    """y = x^2, in the style with setup_context."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_variables
        return 2 * x * g


class Bare(Function):
    """y = 3x, written for arrays only."""

    @staticmethod
    def forward(ctx, x):
        if type(x) is not np.ndarray:
            raise TypeError("arrays only")
        return 3 * x

    @staticmethod
    def backward(ctx, g):
        if type(g) is not np.ndarray:
            raise TypeError("arrays only")
        return 3 * g


def chain(*nodes):
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, *nodes, graph.OUTPUT)
    return graph


def test_tape_graph_and_backward_graph_agree():
    x, w = np.array([1.0, 2.0]), np.array([3.0, 5.0])
    gy, gz = np.array([7.0, 11.0]), np.array([0.5, 0.25])
    vx, vw = Variable(x, requires_grad=True), Variable(w, requires_grad=True)
    y, z = Scale.apply(Square.apply(vx), vw)
    y.backward(gy, retain_graph=True)
    z.backward(gz)

    calls = ForwardGraph()
    calls.add_edge(calls.INPUT, Square, in_arg=0).add_edge(Square, Scale, out_arg=0)
    calls.add_edge(calls.INPUT, Scale, in_arg=1, out_kwarg="w").add_edge(Scale, calls.OUTPUT)
    assert [v.tolist() for v in calls(x, w)] == [y.data.tolist(), z.data.tolist()]
    found = calls.backward([gy, gz])

    nodes = [Input(name=n).node() for n in "xw"]
    graph = Graph(nodes, Scale.node(Square.node(nodes[0]), nodes[1]))
    graph([x, w])
    again = BackwardGraph().from_forward(graph)([gy, gz])
    for a, b, c in zip(found, again, (vx.grad, vw.grad), strict=True):
        assert np.array_equal(a, b) and np.allclose(a, c)
    assert list(calls.names.values()) == ["INPUT", "Square", "Scale", "OUTPUT"]


def test_an_output_of_a_function_that_nobody_reads():
    calls = ForwardGraph()
    calls.add_edge(calls.INPUT, Scale).add_edge(Scale, calls.OUTPUT, in_arg=1)
    calls(np.array([2.0]), np.array([3.0]))
    assert [g.tolist() for g in calls.backward(np.array([1.0]))] == [[1.0], [1.0]]


def test_a_function_twice_and_on_gradients():
    calls = chain(Square, Occurrence(Square, "again"))
    assert calls(np.array([2.0])).tolist() == [16.0]
    assert calls.backward(np.array([1.0])).tolist() == [32.0]
    calls = chain(np.tanh)
    back = BackwardGraph(calls.graph_state).add_connection(calls.OUTPUT, Square, calls.INPUT)
    calls(np.array([2.0]))
    assert back(np.array([3.0])).tolist() == [9.0]


def test_a_function_that_is_written_for_arrays():
    calls = chain(Bare)
    assert calls(np.array([2.0])).tolist() == [6.0]
    assert calls.backward(np.array([1.0])).tolist() == [3.0]
    assert calls(np.array([2.0]), is_training=False).tolist() == [6.0]


def test_a_function_with_the_wrong_number_of_gradients_is_named():
    class Wrong(Square):
        @staticmethod
        def backward(ctx, g):
            return g, g

    calls = chain(Wrong)
    calls(np.array([2.0]))
    with pytest.raises(AutoDiffException, match=r"at 'Wrong' \(Function\), backward: .*2 gradients, expected 1"):
        calls.backward(np.array([1.0]))


@accumulate.register
def addCounters(total: Counter, new: Counter):
    return total + new


class Count(Function):
    """Counts the words of a text; each reader hands back what it was told."""

    @staticmethod
    def forward(ctx, text):
        return Counter((text.data if isinstance(text, Variable) else text).split())

    @staticmethod
    def backward(ctx, g):
        return Counter(g.data if isinstance(g, Variable) else g)


def test_gradients_of_a_type_of_ones_own_flow_and_add_up():
    calls = ForwardGraph()
    first, second = Occurrence(Count, "first"), Occurrence(Count, "second")
    for node in (first, second):
        calls.add_edge(calls.INPUT, node).add_edge(node, calls.OUTPUT)
    assert calls("a b a") == [Counter(a=2, b=1)] * 2
    assert calls.backward([Counter(a=1), Counter(a=2, c=1)]) == Counter(a=3, c=1)


# One tape for a whole graph --------------------------------------------------------------------------------------------


class Identity:
    """y = x, z = 2 x by name, with a gradient of its own: straight through, thrice."""

    def __call__(self, x):
        return ArgsKwargs([x], {"z": 2 * x})

    def backward(self, g, z=None):
        return 3 * g if z is None else 3 * g + z


def both():
    """One graph with every kind of node, as an explicit graph and on one tape."""
    for use_autograd_graph in (False, True):
        fc = Linear(2, 2, name="fc").calcMode("float64")
        fc.W.data = np.array([[1.0, 2.0], [3.0, 4.0]])
        net = Sequential(fc, Tanh(name="t"))
        inner = chain(np.tanh)
        graph = ForwardGraph(ModelGraphState(use_autograd_graph))
        own = Identity()
        graph.add_connection(graph.INPUT, Square, net, own)
        graph.add_edge(own, Scale, in_arg=0).add_edge(own, Scale, in_kwarg="z", out_arg=True)
        graph.add_edge(Scale, inner, in_arg=0).add_edge(Scale, graph.OUTPUT, in_arg=1, out_arg=1)
        graph.add_edge(inner, graph.OUTPUT, out_arg=0)
        yield graph, fc


def test_one_tape_and_an_explicit_graph_agree():
    x, seeds = np.array([[0.1, 0.2]]), [np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])]
    found = []
    for graph, fc in both():
        outputs = graph(x)
        found.append([*map(values, outputs), graph.backward(seeds, retain_graph=True), fc.W.grad, fc.b.grad])
        assert np.array_equal(graph.backward(seeds), found[-1][2])
        assert np.array_equal(fc.W.grad, 2 * found[0][3])
        with pytest.raises(ValueError, match="used it up"):
            graph.backward(seeds)
        with pytest.raises(ValueError, match="wanted a gradient"):
            graph(x)
            graph.backward(seeds[:1])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_a_tape_goes_back_as_a_whole():
    graph = ForwardGraph(ModelGraphState(use_autograd_graph=True))
    graph.add_connection(graph.INPUT, np.tanh, graph.OUTPUT)
    graph(np.ones(2))
    with pytest.raises(ValueError, match="goes back as a whole"):
        graph.backward_graph._pass(graph.OUTPUT, np.ones(2))


def values(v):
    return v.data if isinstance(v, Variable) else v


def test_a_graph_on_variables_is_a_piece_of_their_tape():
    inner = chain(lambda x: x * x)
    v = Variable(np.array([3.0]), requires_grad=True)
    (2 * inner(v)).backward(np.ones(1))
    assert v.grad.tolist() == [12.0]
    assert not inner.graph_state.ready_for_backward()
    outer = chain(lambda x: 2 * inner.calculate(x))
    assert outer(np.array([3.0])).tolist() == [18.0]
    assert outer.backward(np.ones(1)).tolist() == [12.0]


@pytest.mark.parametrize("use_autograd_graph", [False, True])
def test_a_loss_starts_the_backward_graph(use_autograd_graph):
    model = ModelGraph(use_autograd_graph)
    model.forward_graph.add_connection(model.INPUT, lambda x: 3 * x, model.OUTPUT)
    model.compile(auto_backward_graph=True)
    model(np.array([1.0, 2.0]))
    (y,) = model.leaves.args
    model.set_loss(np.sum(y * y))
    assert model.loss is not None
    assert model.backward().tolist() == [18.0, 36.0]
    assert model.loss is None and model.leaves is None
    model(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="left out only where that is one number"):
        model.backward()
    assert model.backward(np.ones(2)).tolist() == [3.0, 3.0]
