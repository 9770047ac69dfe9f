"""Backward graphs that are written by hand or edited: layers skipped, gradients clipped, straight through."""

import sys

import numpy as np
import pytest

from puregraph import Graph
from puregraph.autodiff import BackwardGraph, NoForwardPassError
from puregraph.compat.analog.accumulategrad import AccumulateGrad
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.backwardmodule import (
    BackwardFunction,
    BackwardIdentity,
    BackwardModule,
    BackwardUsingForward,
)
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.modelgraph import ModelGraph
from puregraph.compat.analog.modelgraphstate import ModelGraphState
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.core.errors import ArgumentError, AutoDiffException
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, Identity, Linear, Mul, Relu, Split, Tanh


class Times:
    """y = n x, with a gradient of its own."""

    def __init__(self, n, name=None):
        self.n, self.name = n, name or f"times{n}"

    def __call__(self, x):
        return self.n * x

    def backward(self, grad):
        return self.n * grad


def clip(g):
    return np.clip(g, -1.0, 1.0)


def half(g):
    return 0.5 * g


def chain(*nodes):
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, *nodes, graph.OUTPUT)
    return graph


def model():
    """x -> 2x -> 7x (noise) -> 5x, as a forward graph and an empty backward graph of one state."""
    a, noise, b = Times(2, "a"), Times(7, "noise"), Times(5, "b")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, a, noise, b, made.OUTPUT)
    return made, a, noise, b


def dense(seed=0):
    net = Sequential(Linear(3, 4, name="fc1"), Tanh(name="noise"), Linear(4, 2, name="fc2")).calcMode("float64")
    rng = np.random.default_rng(seed)
    return net, rng.standard_normal((5, 3)), rng.standard_normal((5, 2))


# By hand ----------------------------------------------------------------------------------------------------------


def test_a_layer_is_skipped():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, a, made.INPUT)
    made.compile()
    assert made(1.0) == 70.0
    assert made.backward(1.0) == 10.0


def test_a_function_on_gradients_is_inserted():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, clip, a, made.INPUT)
    made.compile()
    made(np.ones(2))
    assert made.backward(np.array([1.0, 0.1])).tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (BackwardIdentity(), 10.0),
        (BackwardFunction(half), 5.0),
        (BackwardUsingForward(Times(3)), 30.0),
        (Times(3), 30.0),
        (half, 5.0),
        (Occurrence(half, "second"), 5.0),
    ],
)
def test_a_gradient_only_node(node, wanted):
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, node, a, made.INPUT)
    made.compile()
    made(np.ones(()))
    assert made.backward() == wanted


def test_a_module_and_its_node_run_on_gradients():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, Relu(), Relu().node(name="again"), a, made.INPUT)
    made.compile()
    made(np.ones(2))
    assert made.backward(np.array([-1.0, 1.0])).tolist() == [0.0, 10.0]


def test_gradients_that_meet_at_a_forward_node_add_up_by_hand():
    a, b, c, d = Times(2, "a"), Times(3, "b"), Times(5, "c"), Add(name="d")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, a, b, d, made.OUTPUT)
    made.forward_graph.add_connection(a, c, d)
    back = made.backward_graph
    back.add_connection(made.OUTPUT, d, b, a, made.INPUT)
    back.add_connection(d, c, a)
    made.compile()
    x = np.array([1.0, 2.0])
    assert made(x).tolist() == [16.0, 32.0]
    assert made.backward(np.ones(2)).tolist() == [16.0, 16.0]
    back.remove_edge(c, a)
    made(x)
    assert made.backward(np.ones(2)).tolist() == [6.0, 6.0]


def test_an_accumulator_by_hand():
    a, b, c, d = Times(2, "a"), Times(3, "b"), Times(5, "c"), Add(name="d")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, a, b, d, made.OUTPUT)
    made.forward_graph.add_connection(a, c, d)

    class Mean(AccumulateGrad):
        def grad(self, contributions):
            return ArgsKwargs([sum(c) / len(c) for c in contributions.args])

    for fan, wanted in ((AccumulateGrad(a), 16.0), (Mean(a), 8.0)):
        back = made.backward_graph = BackwardGraph(made)
        back.add_connection(made.OUTPUT, d, b, fan, a, made.INPUT)
        back.add_connection(d, c, fan)
        made.compile()
        made(np.ones(2))
        assert made.backward(np.ones(2)).tolist() == [wanted, wanted]


def test_an_edge_by_hand_can_say_which_gradient():
    m = Mul(name="m")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, m, made.OUTPUT)
    made.backward_graph.add_connection(made.OUTPUT, m)
    made.backward_graph.add_edge(m, made.INPUT, in_arg=0, out_arg=1)
    made.compile()
    made(np.array([2.0]), np.array([3.0]))
    first, second = made.backward(np.array([1.0]))
    assert first is None and second.tolist() == [3.0]


def test_more_gradients_than_outputs_are_refused_by_name():
    m, f = Mul(name="m"), Times(2, "f")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, f, made.OUTPUT)
    made.backward_graph.add_connection(made.OUTPUT, lambda g: (g, g), f, made.INPUT)
    made.compile()
    made(1.0)
    with pytest.raises(ValueError, match=r"at 'f'.*output 1.*gave 1 value"):
        made.backward(1.0)
    assert made.backward_graph.remove_node("lambda").add_connection(made.OUTPUT, f)
    assert made.backward(1.0) == 2.0
    assert m.name == "m"


def test_a_gradient_of_the_wrong_shape_names_both_shapes():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, np.sum, a, made.INPUT)
    made.compile()
    made(np.ones(3))
    with pytest.raises(ValueError, match=r"at 'a' \(Times\): wanted a gradient of shape \(3,\) for output 0, got \(\)"):
        made.backward(np.ones(3))


def test_a_backward_graph_without_input_gives_none_and_still_teaches_parameters():
    fc = Linear(2, 1, name="fc").calcMode("float64")
    made = ModelGraph()
    made.forward_graph.add_connection(made.INPUT, fc, made.OUTPUT)
    made.backward_graph.add_connection(made.OUTPUT, fc)
    made.compile()
    made(np.ones((3, 2)))
    assert made.backward(np.ones((3, 1))) is None
    assert fc.W.grad.tolist() == [[3.0], [3.0]]


# BackwardModule ---------------------------------------------------------------------------------------------------


def test_a_layer_with_a_gradient_of_its_own():
    for node, wanted in (
        (BackwardIdentity(Times(7)), 10.0),
        (BackwardUsingForward(Times(7)), 70.0),
        (BackwardFunction(half, Times(7)), 5.0),
    ):
        graph = chain(Times(2), node, Times(5))
        assert graph(1.0) == 70.0
        assert graph.backward(1.0) == wanted
    assert node.get_layer().n == 7 and node.set_layer(None).layer is None


def test_a_backward_module_may_read_the_forward_values():
    class Spike(BackwardModule):
        def backward(self, grad, *, inputs, outputs):
            return grad * (np.abs(inputs.args[0] - outputs.args[0]) < 0.25)

    x = np.array([0.1, 0.4, 0.9])
    graph = chain(Spike(np.round))
    assert graph(x).tolist() == [0.0, 0.0, 1.0]
    assert graph.backward(np.ones(3)).tolist() == [1.0, 0.0, 1.0]

    net = Sequential(Linear(3, 3, useBias=False, name="fc"), Identity(name="step")).calcMode("float64")
    net["fc"].W.data = np.eye(3)
    back = BackwardGraph().from_forward(net).replace("step", Spike())
    net(x[None])
    assert back(np.ones((1, 3))).tolist() == [[1.0, 1.0, 1.0]]


def test_a_backward_module_without_a_layer_or_backward_says_so():
    graph = chain(BackwardIdentity())
    with pytest.raises(AutoDiffException, match="has no layer to run forward"):
        graph(1.0)
    graph = chain(BackwardModule(Times(2)))
    graph(1.0)
    with pytest.raises(NotImplementedError, match="write backward"):
        graph.backward(1.0)


# Editing a graph made from a forward one -------------------------------------------------------------------------------


def test_straight_through_in_a_puregraph_graph():
    net, x, g = dense()
    back = BackwardGraph().from_forward(net).compile()
    net(x)
    usual = back(g)
    W1, W2 = net["fc1"].W.data, net["fc2"].W.data
    net["fc1"].W.grad = net["fc2"].W.grad = None
    plan = back.plan
    assert back.plan is plan
    back.replace("noise", BackwardIdentity())
    assert back.plan is not plan
    net(x)
    found = back(g)
    assert np.array_equal(found, (g @ W2.T) @ W1.T) and not np.allclose(found, usual)
    assert np.array_equal(net["fc1"].W.grad, x.T @ (g @ W2.T))
    assert "noise by BackwardIdentity" in str(back)


def test_a_function_is_put_on_an_edge_of_a_puregraph_graph():
    net, x, g = dense()
    back = BackwardGraph().from_forward(net)
    back.insert(half, "fc2", "noise")
    net(x)
    found = back(g, retain_graph=True)
    assert np.allclose(found, 0.5 * BackwardGraph().from_forward(net)(g))
    assert [row.node for row in back.inspect()] == ["OUTPUT", "fc2", "half", "noise", "fc1", "INPUT"]


def test_skipping_by_hand_in_a_puregraph_graph_goes_by_paths():
    net, x, g = dense()
    back = BackwardGraph().from_forward(net)
    back.remove_node("noise").add_connection("fc2", clip, "fc1")
    net(x)
    W1, W2 = net["fc1"].W.data, net["fc2"].W.data
    assert np.array_equal(back(g), clip(g @ W2.T) @ W1.T)
    assert back["fc1"] is net.getNodeByName("fc1") and "fc1" in back and "noise" not in back


def test_a_hand_added_edge_takes_only_what_came_from_there():
    x = Input(name="x").node()
    a, b = Tanh(name="a").node(x), Identity(name="b").node(x)
    graph = Graph(x, Mul(name="m").node(a, b))
    back = BackwardGraph().from_forward(graph)
    back.remove_edge("m", "b").add_edge("m", "b")
    numbers = np.array([0.5, 2.0])
    graph(numbers)
    graph.backward(np.ones(2))
    assert np.array_equal(back(np.ones(2)), graph.grad)
    back.remove_edge("m", "a")
    graph(numbers)
    assert np.array_equal(back(np.ones(2)), np.tanh(numbers))


def test_one_of_two_edges_between_a_pair_is_cut():
    x = Input(name="x").node()
    s = Split(0, (1, 1), name="s").node(x)
    graph = Graph(x, Mul(name="m").node((s, 0), (s, 1)))
    back = BackwardGraph().from_forward(graph)
    back.insert(lambda first, second: (first, 10 * second), "m", "s")
    graph(np.array([3.0, 5.0]))
    assert back(np.ones(1)).tolist() == [5.0, 30.0]
    back._drop(back.edges_between("lambda", "s")[0])
    graph(np.array([3.0, 5.0]))
    assert back(np.ones(1)).tolist() == [0.0, 30.0]


def test_a_node_on_an_edge_whose_width_shows_only_in_the_pass():
    pair, join = BackwardFunction(lambda a, b: a + b, lambda x: (x, 2 * x)), Mul(name="join")
    graph = chain(pair, join)
    back = BackwardGraph().from_forward(graph)
    seen = []

    def watch(*grads):
        seen.append(grads)
        return tuple(10 * g for g in grads)

    back.insert(watch, join, pair)
    graph(np.array(3.0))
    assert back(np.array(1.0)) == 90.0
    assert seen == [(6.0, 3.0)]
    back.replace(watch, lambda *grads: (*grads, 1.0))
    graph(np.array(3.0))
    with pytest.raises(ValueError, match="gave 3 gradients, was given 2 on the way"):
        back(np.array(1.0))


def test_a_graph_is_edited_after_compiling():
    a, b = Times(2, "a"), Times(5, "b")
    graph = chain(a, b).compile()
    back = BackwardGraph().from_forward(graph).compile()
    assert graph(1.0) == 10.0 and back(1.0) == 10.0
    plans = graph.plan, back.plan
    assert (graph.plan, back.plan) == plans and graph.plan is plans[0] and back.plan is plans[1]
    graph.insert(Times(3, "c"), a, b)
    assert graph(1.0) == 30.0 and back(1.0) == 30.0
    assert graph.plan is not plans[0] and back.plan is not plans[1]
    graph.replace(b, Times(7, "d"))
    assert graph(1.0) == 42.0 and back(1.0) == 42.0
    graph.remove_node("c").add_connection("a", "d")
    assert graph(1.0) == 14.0 and back(1.0) == 14.0


def test_dynamic_graphs_plan_each_time():
    graph = chain(Times(2)).compile(is_static=False)
    back = BackwardGraph().from_forward(graph).compile(is_static=False)
    assert graph.plan is not graph.plan and back.plan is not back.plan
    assert graph(1.0) == 2.0 and back(1.0) == 2.0
    assert "dynamic" in repr(back)


def test_edits_on_both_sides_are_not_guessed_at():
    a, b = Times(2, "a"), Times(5, "b")
    graph = chain(a, b)
    back = BackwardGraph().from_forward(graph).insert(half, "b", "a")
    graph(1.0)
    assert back(1.0) == 5.0
    graph.insert(Times(3), a, b)
    graph(1.0)
    with pytest.raises(ValueError, match="call from_forward again"):
        back(1.0)
    assert back.from_forward(graph)(1.0) == 30.0


def test_a_puregraph_graph_that_grows_is_followed():
    net = Sequential(Linear(2, 2, useBias=False, name="fc")).calcMode("float64")
    net["fc"].W.data = 2 * np.eye(2)
    back = BackwardGraph().from_forward(net)
    net(np.ones((1, 2)))
    assert back(np.ones((1, 2))).tolist() == [[2.0, 2.0]]
    net.append(Relu(name="relu"))
    net(-np.ones((1, 2)))
    assert back(np.ones((1, 2))).tolist() == [[0.0, 0.0]]
    assert "relu" in back


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda g: g.remove_node("nothing"), "no node 'nothing'; it has INPUT, times2, times5, OUTPUT"),
        (lambda g: g.remove_edge("times5", "times2"), "no edge from 'times5' to 'times2'"),
        (lambda g: g.insert(g["times2"], "times2", "times5"), "stands in the graph already"),
        (lambda g: g.replace("times2", g["times5"]), "stands in the graph already"),
        (lambda g: g.remove_node(half), "no node 'half'"),
        (lambda g: g.add_edge("times5", "times2").compile(), "Cycle detected: 'times.' -> 'times.' -> 'times.'"),
        (lambda g: g.add_edge("times2", "times2").compile(), "Cycle detected: 'times2' -> 'times2'"),
        (lambda g: g.remove_node("INPUT").compile(), "INPUT doesn't exist in the ForwardGraph"),
        (lambda g: g.remove_node("OUTPUT").compile(), "OUTPUT doesn't exist in the ForwardGraph"),
        (lambda g: BackwardGraph().replace("OUTPUT", half), "no node 'OUTPUT'"),
        (lambda g: BackwardGraph().from_forward(g).replace("OUTPUT", half), "OUTPUT cannot be replaced"),
        (lambda g: BackwardGraph().compile(), "OUTPUT doesn't exist in the backward graph, which is empty"),
        (lambda g: BackwardGraph().from_forward(g.remove_node("OUTPUT")), "OUTPUT doesn't exist in the ForwardGraph"),
        (lambda g: BackwardGraph().from_forward(half), "wanted a Graph, a ForwardGraph, or a networkx"),
        (lambda g: ModelGraph().compile(), "INPUT doesn't exist"),
        (lambda g: ModelGraphState(allow_loops=True), "unroll them"),
    ],
)
def test_edits_that_make_no_sense_are_refused_by_name(edit, words):
    graph = chain(Times(2), Times(5))
    with pytest.raises(ValueError, match=words):
        edit(graph)


def test_a_model_without_a_backward_graph_says_what_to_do():
    made, *_ = model()
    with pytest.raises(ValueError, match="make it with from_forward"):
        made.compile()
    made.compile(auto_backward_graph=True)
    assert made(1.0) == 70.0 and made.backward(1.0) == 70.0


# Passes ------------------------------------------------------------------------------------------------------------


def test_a_pass_is_used_once():
    for graph in (chain(Times(2)), Sequential(Identity(name="i"))):
        back = BackwardGraph().from_forward(graph)
        x = np.ones(2)
        for run in (back, back.calculate):
            with pytest.raises(NoForwardPassError, match=r"No forward pass has been performed yet|used up"):
                run(x)
        graph(x)
        first = back.calculate(x, retain_graph=True)
        assert np.array_equal(back.calculate(x), first)
        with pytest.raises(ValueError, match="used"):
            back.calculate(x)
        graph(x)
        assert np.array_equal(back(x), first)


def test_a_pass_without_training_leaves_nothing():
    graph = chain(Times(2))
    assert graph(1.0, is_training=False) == 2.0
    assert graph.graph_state.inputs is None
    with pytest.raises(ValueError, match="is_training=True"):
        graph.backward(1.0)


def test_a_failed_pass_can_be_tried_again_and_leaves_no_gradient():
    fc1, fc2 = (Linear(2, 2, name=n).calcMode("float64") for n in ("fc1", "fc2"))
    fail = [True]

    class Shaky(Times):
        def backward(self, grad):
            if fail[0]:
                raise ArithmeticError("not now")
            return grad

    graph = chain(fc1, Shaky(1, "shaky"), fc2)
    x = np.ones((3, 2))
    graph(x)
    with pytest.raises(ValueError, match=r"at 'OUTPUT' \(BackwardGraph\): wanted a gradient of shape \(3, 2\)"):
        graph.backward(np.ones((2, 2)))
    with pytest.raises(ArithmeticError) as error:
        graph.backward(x)
    if sys.version_info >= (3, 11):
        assert error.value.__notes__ == ["at 'shaky' (Shaky), backward"]
    assert fc2.W.grad is None and fc1.W.grad is None
    fail[0] = False
    assert np.allclose(graph.backward(x), x @ fc2.W.data.T @ fc1.W.data.T)
    assert fc2.W.grad is not None and fc1.W.grad is not None


def test_parameters_add_up_over_passes_and_occurrences():
    fc = Linear(2, 2, useBias=False, name="fc").calcMode("float64")
    graph = chain(fc, Occurrence(fc, "second"), fc.node(name="third"))
    W, x, g = fc.W.data, np.ones((1, 2)), np.ones((1, 2))
    once = x.T @ (g @ W.T @ W.T) + (x @ W).T @ (g @ W.T) + (x @ W @ W).T @ g
    graph(x)
    assert np.allclose(graph.backward(g), g @ W.T @ W.T @ W.T)
    assert np.allclose(fc.W.grad, once)
    graph(x)
    graph.backward(g)
    assert np.allclose(fc.W.grad, 2 * once)
    assert list(graph.names.values()) == ["INPUT", "fc", "second", "third", "OUTPUT"]


def test_nothing_of_the_callers_changes_hands():
    graph = chain(BackwardIdentity(lambda x: x))
    x, g = np.ones(3), np.ones(3)
    x.flags.writeable = g.flags.writeable = False
    graph(x)
    found = graph.backward(g)
    assert found is not g and not np.shares_memory(found, g)
    fan = chain(Add())
    fan = ForwardGraph()
    left, right, add = (BackwardIdentity(lambda x: x) for _ in range(3))
    add = Add()
    fan.add_connection(fan.INPUT, left, add, fan.OUTPUT)
    fan.add_connection(fan.INPUT, right, add)
    fan(x)
    assert fan.backward(g).tolist() == [2.0, 2.0, 2.0]
    assert g.tolist() == [1.0, 1.0, 1.0]


def test_a_pass_shows_what_reaches_each_node():
    made, a, noise, b = model()
    made.compile(auto_backward_graph=True)
    made(1.0)
    found = made.backward_graph._pass(made.OUTPUT, 1.0)
    assert [(n, r.inputs.args, r.outputs.args) for n, r in found.items()] == [
        (made.OUTPUT, [1.0], [1.0]),
        (b, [1.0], [5.0]),
        (noise, [5.0], [35.0]),
        (a, [35.0], [70.0]),
        (made.INPUT, [70.0], [70.0]),
    ]
    assert list(made.backward_graph._pass(noise, 1.0)) == [noise, a, made.INPUT]
    assert made.backward_graph._calculate_gradients(b, ArgsKwargs([2.0])).args == [10.0]
    forward = made.forward_graph._pass(noise, 3.0)
    assert forward[made.OUTPUT].outputs.args == [105.0]


def test_one_nodes_gradients_outside_a_pass_teach_its_parameters():
    fc = Linear(2, 1, useBias=False).calcMode("float64")
    graph = chain(fc)
    graph(np.ones((1, 2)))
    graph.backward_graph._calculate_gradients(fc, ArgsKwargs([np.ones((1, 1))]))
    assert fc.W.grad.tolist() == [[1.0], [1.0]]


def test_a_subclass_sees_every_gradient():
    seen = []

    class Watching(BackwardGraph):
        def _calculate_gradients(self, module, grad_outputs):
            found = super()._calculate_gradients(module, grad_outputs)
            seen.append((self.name_of(module), found.args))
            return found

    graph = chain(Times(2, "a"), Times(5, "b"))
    back = Watching().from_forward(graph)
    graph(1.0)
    back(1.0)
    assert seen == [("OUTPUT", [1.0]), ("b", [5.0]), ("a", [10.0]), ("INPUT", [10.0])]


# Nesting -----------------------------------------------------------------------------------------------------------


def test_graphs_nest():
    W1, W2 = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[10.0], [100.0]])
    first, second = Linear(2, 2, useBias=False), Linear(2, 1, useBias=False)
    for module, W in ((first, W1.T), (second, W2)):
        module.calcMode("float64").W.data = W
    inner = ModelGraph()
    inner.forward_graph.add_connection(inner.INPUT, first, inner.OUTPUT)
    inner.compile(auto_backward_graph=True)
    for nested in (inner, inner.forward_graph, Sequential(first)):
        first.W.grad = second.W.grad = None
        graph = chain(nested, second)
        x = np.ones((1, 2))
        assert graph(x).tolist() == [[730.0]]
        assert graph.backward(np.ones((1, 1))).tolist() == [[310.0, 420.0]]
        assert second.W.grad.tolist() == [[3.0], [7.0]]
        assert first.W.grad.tolist() == [[10.0, 100.0], [10.0, 100.0]]


def test_one_graph_nests_at_two_places_with_a_backward_graph_of_its_own():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, a, made.INPUT)
    made.compile()
    graph = chain(made, Occurrence(made, "again"))
    assert graph(1.0) == 4900.0
    assert graph.backward(1.0) == 100.0
    assert made.forward_input_output_graph is None


def test_graphs_nest_deeply():
    graph = chain(Times(2))
    for _ in range(20):
        graph = chain(graph)
    assert graph(1.0) == 2.0
    assert graph.backward(1.0) == 2.0


def test_nested_puregraph_graphs_unfold_into_nodes_by_path():
    inner = Sequential(Linear(2, 2, name="fc"), Relu(name="act"), name="block")
    net = Sequential(inner, Linear(2, 1, name="head")).calcMode("float64")
    back = BackwardGraph().from_forward(net)
    assert list(back.names.values()) == ["OUTPUT", "head", "block.act", "block.fc", "INPUT"]
    back.replace("block.act", BackwardIdentity())
    x = np.array([[1.0, -1.0]])
    net(x)
    assert np.array_equal(back(np.ones((1, 1))), np.ones((1, 1)) @ net["head"].W.data.T @ inner["fc"].W.data.T)


# Looking -----------------------------------------------------------------------------------------------------------


def test_a_backward_graph_is_printed_as_a_table():
    x = Input(name="x").node()
    h = Linear(3, 4, name="fc").node(x)
    graph = Graph(x, Mul(name="gate").node(h, Tanh(name="tanh").node(h)))
    back = BackwardGraph().from_forward(graph).compile()
    assert str(back) == TABLE.strip("\n")
    rows = back.inspect()
    assert rows[4] == (4, "fc", ("AccumulateGrad(fc)",), ("INPUT", "fc.W.grad", "fc.b.grad"))


TABLE = """
<BackwardGraph: 6 nodes, 6 edges, static>

step  node                reads               writes
-------------------------------------------------------------------------
   0  OUTPUT              -                   gate
   1  gate                OUTPUT              tanh, AccumulateGrad(fc)
   2  tanh                gate[1]             AccumulateGrad(fc)
   3  AccumulateGrad(fc)  tanh, gate[0]       fc
   4  fc                  AccumulateGrad(fc)  INPUT, fc.W.grad, fc.b.grad
   5  INPUT               fc                  -
"""


def test_what_is_not_reached_is_said():
    made, a, noise, b = model()
    made.backward_graph.add_connection(made.OUTPUT, b, a, made.INPUT)
    made.backward_graph.add_connection(noise, a)
    assert str(made.backward_graph).endswith("\n\nnot reached from OUTPUT: noise")
    made.compile()
    made(1.0)
    assert made.backward(1.0) == 10.0


def test_a_graph_that_cannot_run_is_printed_with_the_reason():
    assert str(BackwardGraph()).startswith("<BackwardGraph: 0 nodes, 0 edges, static>\n\nOUTPUT doesn't exist")
    a = Times(2, "a")
    looped = chain(a).add_connection(a, a)
    assert str(looped).endswith(
        "Cycle detected: 'a' -> 'a'; a node runs once: to run a module again, add an Occurrence of it"
    )


def test_a_graph_is_drawn(tmp_path):
    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, np.tanh, in_arg=0)
    graph.add_node(np.tanh, 'say "tanh"')
    graph.add_connection(np.tanh, graph.OUTPUT)
    text = graph.dot()
    assert text.startswith("digraph ForwardGraph {") and text.endswith("}\n")
    assert 'n1 [label="say \\"tanh\\""];' in text
    assert 'n0 -> n1 [label="[0] -> []"];' in text and "n1 -> n2;" in text
    assert graph.save(tmp_path / "graph.dot").read_text() == text


def test_a_graph_is_rendered_as_the_name_or_the_format_says(tmp_path):
    graph = chain(Times(2), Times(3))
    back = BackwardGraph().from_forward(graph)
    assert back.render(tmp_path / "back.svg").read_text() == back.draw().svg()
    assert graph.render("net", tmp_path / "new", format="html").name == "net.html"
    assert graph.render("net.v2", tmp_path, "dot").name == "net.v2.dot"
    assert back.render(directory=tmp_path) == tmp_path / "graph.svg"
    with pytest.raises(ArgumentError, match="ends in .svg, .html, .dot, .png"):
        graph.render(tmp_path / "net.pdf")


def test_names_are_numbered_where_they_would_stand_twice():
    graph = chain(Times(2), Times(2), Linear(1, 1), lambda x: x, Linear(1, 1), half)
    assert list(graph.names.values()) == [
        "INPUT", "times2", "times22", "linear", "lambda", "linear2", "half", "OUTPUT"
    ]  # fmt: skip
    assert repr(graph) == "<ForwardGraph: 8 nodes, 7 edges, static>"
    assert repr(AccumulateGrad(half)).startswith("AccumulateGrad(<function half")
    assert repr(BackwardIdentity()) == "BackwardIdentity()"
    assert repr(Occurrence(3, "x")) == "Occurrence(3, 'x')"
    assert "forward" in repr(ModelGraph()).lower()


# networkx ----------------------------------------------------------------------------------------------------------


def test_networkx_graphs_without_attributes():
    networkx = pytest.importorskip("networkx")
    a, b, c, d = Times(2, "a"), Times(3, "b"), Times(5, "c"), Add(name="d")
    for kind in (networkx.DiGraph, networkx.MultiDiGraph):
        given = kind([(a, b), (a, c), (b, d), (c, d)])
        back = BackwardGraph().from_forward(given).compile()
        x = np.array([1.0, 2.0])
        assert back.forward_graph(x).tolist() == [16.0, 32.0]
        assert back(np.ones(2)).tolist() == [16.0, 16.0]


def test_networkx_graphs_with_attributes_go_round():
    networkx = pytest.importorskip("networkx")
    m = Mul(name="m")
    given = networkx.MultiDiGraph()
    given.add_edge(ForwardGraph.INPUT, m, in_arg=1, out_arg=0, weight=3)
    given.add_edge(ForwardGraph.INPUT, m, in_arg=0, out_arg=1)
    given.add_edge(m, ForwardGraph.OUTPUT)
    forward = ForwardGraph().from_networkx(given)
    assert forward(np.array([2.0]), np.array([3.0])).tolist() == [6.0]
    assert [g.tolist() for g in forward.backward(np.array([1.0]))] == [[3.0], [2.0]]
    shown = forward.graph
    assert isinstance(shown, networkx.MultiDiGraph) and networkx.is_directed_acyclic_graph(shown)
    assert sorted(d["label"] for _, _, d in shown.edges(data=True)) == ["* -> *", "[0] -> [1]", "[1] -> [0]"]
    again = ForwardGraph().from_networkx(shown)
    again(np.array([2.0]), np.array([3.0]))
    assert [g.tolist() for g in again.backward(np.array([1.0]))] == [[3.0], [2.0]]
    assert networkx.is_directed_acyclic_graph(again.backward_graph.graph)


def test_networkx_sources_and_sinks_meet_input_and_output():
    networkx = pytest.importorskip("networkx")
    a, b, m, n = Times(2, "a"), Times(3, "b"), Mul(name="m"), Times(7, "n")
    back = BackwardGraph().from_forward(networkx.DiGraph([(a, m), (b, m), (b, n)]))
    first, second = back.forward_graph(np.array(1.0), np.array(1.0))
    assert (first, second) == (6.0, 21.0)
    assert back([np.array(1.0), np.array(1.0)]) == [6.0, 27.0]


def test_networkx_graphs_that_cannot_run_are_refused():
    networkx = pytest.importorskip("networkx")
    a, b = Times(2, "a"), Times(3, "b")
    with pytest.raises(ValueError, match="undirected"):
        BackwardGraph().from_forward(networkx.Graph([(a, b)]))
    with pytest.raises(ValueError, match="wanted something to call"):
        BackwardGraph().from_forward(networkx.DiGraph([("a", "b")]))
    with pytest.raises(ValueError, match="Cycle detected: 'a' -> 'b' -> 'a'|Cycle detected: 'b' -> 'a' -> 'b'"):
        given = networkx.DiGraph([(ForwardGraph.INPUT, a), (a, b), (b, a), (b, ForwardGraph.OUTPUT)])
        BackwardGraph().from_forward(given)
    given = networkx.DiGraph()
    given.add_edge(a, b, in_arg=-1)
    with pytest.raises(ValueError, match="'a' to 'b': in_arg wanted a position"):
        BackwardGraph().from_forward(given)


def test_everything_else_runs_without_networkx(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    graph = chain(Times(2), Times(5)).compile()
    back = BackwardGraph().from_forward(graph).compile()
    assert graph(1.0) == 10.0 and back(1.0) == 10.0
    assert "times5" in str(back) and "times5" in back.dot()
    with pytest.raises(ImportError, match=r"pip install puregraph\[networkx\]"):
        graph.graph
