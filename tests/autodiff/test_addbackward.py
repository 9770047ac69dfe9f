"""add_backward_pass and make_backward_function: gradients as graphs of their own."""

import copy
import gc
import random
import sys

import numpy as np
import pytest
from randomgraphs import randomGraph
from strict import Strict, useStrict

from puregraph.autodiff import (
    BackwardImplementation,
    BackwardResult,
    Descriptor,
    add_backward_pass,
    make_backward_function,
)
from puregraph.core import rules
from puregraph.core.errors import AutoDiffException, DtypeError, ShapeError
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    GRU,
    LSTM,
    RNN,
    Add,
    BatchNorm,
    Conv2D,
    Dropout,
    Einsum,
    Embedder,
    Identity,
    Linear,
    MatMul,
    Max,
    MaxPool2D,
    Mean,
    Mul,
    Power,
    Relu,
    Split,
    Sum,
    Tanh,
)
from puregraph.ops.kernel import useFast


class NoGradient(Module):
    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x


def gemm():
    """S = sum (X Y)^2"""
    x, y = Input(name="X").node(), Input(name="Y").node()
    product = MatMul(name="P")(x, y)
    return Graph([x, y], Sum(name="S")(Power(2, name="square")(product)))


def squares():
    x = Input(name="X").node()
    return Graph(x, Sum(name="S")(Mul(name="XX")(x, x)))


def diamond():
    """S = sum (2 X)(3 X)"""
    x = Input(name="X").node()
    return Graph(x, Sum(name="S")((2 * x) * (3 * x)))


def scalar(*modules):
    """The sum of what modules make of one input X."""
    x = node = Input(name="X").node()
    for module in modules:
        node = module(node)
    return Graph(x, Sum(name="S")(node))


def snapshot(graph):
    """Everything about a graph and its nodes that a person could notice."""
    nodes = {link.node for node in graph.nodes for link in (*node.fwds, *node.bwds)} | set(graph.nodes)
    links = {n: [(str(link.node), link.slots, link.argument) for link in (*n.bwds, *n.fwds)] for n in nodes}
    return str(graph), graph.version, len(nodes), links, graph.arguments, graph.outputNames


# The matrix product, and names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-14)])
def test_the_gradients_of_a_matrix_product(rng, dtype, tolerance):
    x, y = rng.standard_normal((5, 4)).astype(dtype), rng.standard_normal((4, 3)).astype(dtype)
    joint = add_backward_pass(gemm(), ["S"], ["X", "Y"])
    assert joint.result == BackwardResult({"X": "gradient_X", "Y": "gradient_Y"}, {"S": "gradient_S"})
    assert joint.arguments == ("X", "Y", "gradient_S")
    assert joint.outputNames == ("S", "gradient_X", "gradient_Y")
    s, gx, gy = joint(x, y, np.ones((), dtype))
    scale = np.abs(x @ y).max()
    np.testing.assert_allclose(s, ((x @ y) ** 2).sum(), rtol=tolerance)
    np.testing.assert_allclose(gx, 2 * (x @ y) @ y.T, rtol=10 * tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(gy, 2 * x.T @ (x @ y), rtol=10 * tolerance, atol=tolerance * scale)
    assert (gx.dtype, gy.dtype) == (dtype, dtype)
    found = joint.run(X=x, Y=y, gradient_S=np.ones((), dtype))
    assert list(found) == ["S", "gradient_X", "gradient_Y"]
    assert all(np.array_equal(a, b) for a, b in zip(found.values(), (s, gx, gy)))


def test_nodes_and_slots_are_given_instead_of_names(rng):
    graph = gemm()
    x, y = graph.inputs
    data = rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    named = add_backward_pass(graph, "S", ["X", "Y", "P"])
    noded = add_backward_pass(graph, graph.outputs[0][0], [x, (y, 0), (graph.getNodeByName("P"), "y")])
    assert named.result == noded.result
    assert all(np.array_equal(a, b) for a, b in zip(named(*data), noded(*data)))
    assert np.array_equal(named(*data)[3], 2 * (data[0] @ data[1]))


def test_the_seed_of_a_number_may_be_left_out_and_scales_what_comes_back(rng):
    x = rng.standard_normal(4)
    joint = add_backward_pass(squares(), "S", "X")
    assert np.array_equal(joint(x)[1], 2 * x)
    assert np.array_equal(joint([x])[1], 2 * x)
    assert np.array_equal(joint(x, np.array(3.0))[1], 6 * x)
    assert np.array_equal(joint.run(X=x)["gradient_X"], 2 * x)
    assert joint(x.astype("float32"))[1].dtype == "float32"


def test_several_outputs_and_outputs_that_are_no_numbers(rng):
    x, y = Input(name="X").node(), Input(name="Y").node()
    graph = Graph([x, y], [MatMul(name="P")(x, y), Tanh(name="T")(x), Sum(name="S")(x)])
    a, b = rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    dp, dt = rng.standard_normal((5, 3)), rng.standard_normal((5, 4))
    joint = add_backward_pass(graph, ["P", "T", "S"], ["X", "Y"])
    assert joint.result.given_grad_names == {"P": "gradient_P", "T": "gradient_T", "S": "gradient_S"}
    p, t, s, gx, gy = joint(a, b, dp, dt)
    assert np.array_equal(p, a @ b) and np.array_equal(t, np.tanh(a)) and s == a.sum()
    np.testing.assert_allclose(gx, dp @ b.T + dt * (1 - t * t) + 1, rtol=1e-12)
    np.testing.assert_allclose(gy, a.T @ dp, rtol=1e-12)
    with pytest.raises(
        ShapeError, match=r"wanted a gradient of shape \(5, 3\), got \(\) .* only the gradient of a single"
    ):
        joint.run(X=a, Y=b, gradient_T=dt)
    with pytest.raises(ShapeError, match=r"wanted a gradient of shape \(5, 4\), got \(4, 5\)"):
        joint(a, b, dp, dt.T)
    one = add_backward_pass(graph, "P", "Y")
    assert np.array_equal(one(a, b, dp)[3], gy), "outputs that have no gradient are computed all the same"


def test_an_inner_value_may_be_what_is_differentiated_and_what_by(rng):
    graph, x, y = gemm(), rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    joint = add_backward_pass(graph, "square", ["X", "P", "square"])
    seed = rng.standard_normal((5, 3))
    s, gx, gp, gs = joint(x, y, seed)
    np.testing.assert_allclose(gp, 2 * (x @ y) * seed, rtol=1e-12)
    np.testing.assert_allclose(gx, gp @ y.T, rtol=1e-12)
    assert np.array_equal(gs, seed) and gs is not seed
    assert joint.result.required_grad_names["square"] == "gradient_square_0", "the seed has the first name"


def test_a_second_pass_on_the_returned_graph_takes_the_next_names(rng):
    x, y = rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    first = add_backward_pass(gemm(), "S", ["X", "Y"])
    second = add_backward_pass(first, "S", ["X", "P"])
    assert second.result == BackwardResult({"X": "gradient_X_0", "P": "gradient_P"}, {"S": "gradient_S_0"})
    assert second.outputNames == ("S", "gradient_X", "gradient_Y", "gradient_X_0", "gradient_P")
    s, gx, gy, again, gp = second(x, y, np.array(1.0))
    assert np.array_equal(gx, again) and np.array_equal(gp, 2 * (x @ y))
    third = add_backward_pass(second, "S", "X")
    assert third.result.required_grad_names == {"X": "gradient_X_1"}
    assert all(np.array_equal(a, b) for a, b in zip(third(x, y)[1:], (gx, gy, gx, gp, gx)))
    found = third.run(X=x, Y=y, gradient_S=np.array(2.0))
    assert np.array_equal(found["gradient_X"], 2 * gx) and np.array_equal(found["gradient_X_1"], gx)


def test_a_second_derivative_needs_a_rule_for_gradients_and_says_so():
    joint = add_backward_pass(diamond(), "S", "X")
    with pytest.raises(AutoDiffException, match="at 'grad:.*' .Gradient.: Gradient has no gradient: tried"):
        add_backward_pass(joint, "gradient_X", "gradient_S")


def test_parameters_by_whole_name_and_by_last_part(rng):
    net = Sequential(Linear(3, 4, name="a"), Tanh(), Linear(4, 2, useBias=False, name="b"), Sum(name="S"))
    net.calcMode("float64")
    x = rng.standard_normal((5, 3))
    joint = add_backward_pass(net, "S", ["a.W", "b.W", "a.b", "x"])
    assert list(joint.result.required_grad_names.values()) == [
        "gradient_a.W",
        "gradient_b.W",
        "gradient_a.b",
        "gradient_x",
    ]
    found = joint(x)
    net(x)
    net.backward()
    grads = net.params["a.W"].grad, net.params["b.W"].grad, net.params["a.b"].grad, net.grad
    assert all(np.array_equal(a, b) for a, b in zip(found[1:], grads))
    short = Sequential(Linear(3, 2, name="fc"), Sum(name="S")).calcMode("float64")
    assert add_backward_pass(short, "S", "W").result.required_grad_names == {"W": "gradient_W"}


def test_a_frozen_parameter_has_a_gradient_if_it_is_asked_for(rng):
    net = Sequential(Linear(3, 2, name="fc"), Sum(name="S")).calcMode("float64")
    net.params["fc.W"].trainable = False
    x = rng.standard_normal((5, 3))
    assert np.array_equal(add_backward_pass(net.evalMode(), "S", "fc.W")(x)[1], x.T @ np.ones((5, 2)))


def test_a_parameter_that_modules_share_has_the_sum_of_their_gradients(rng):
    a, b, c = (Linear(3, 3, name=name) for name in "abc")
    b.W = c.W = a.W
    net = Sequential(a, Tanh(), b, Tanh(name="t"), a, c, Sum(name="S")).calcMode("float64")
    x = rng.standard_normal((5, 3))
    found = [add_backward_pass(net, "S", name)(x)[1] for name in ("a.W", "b.W", "c.W", "W")]
    net(x)
    net.backward()
    assert all(np.array_equal(g, a.W.grad) for g in found)


def test_names_inside_nested_graphs_and_of_slots(rng):
    x = Input(name="x").node()
    inner = Sequential(Linear(3, 4, name="fc"), Split(axis=1, sections=(1, 3), name="parts"), name="enc")
    node = inner.node(x)
    graph = Graph(x, [Sum(name="S")((node, 1)), (node, 0)]).calcMode("float64")
    data = rng.standard_normal((2, 3))
    joint = add_backward_pass(graph, "S", ["enc.fc", "enc.parts.1", "enc.fc.W"])
    s, part, gfc, g1, gW = joint(data)
    assert gfc.tolist() == [[0, 1, 1, 1]] * 2 and g1.tolist() == [[1, 1, 1]] * 2
    np.testing.assert_allclose(gW, data.T @ gfc, rtol=1e-12)
    slot = add_backward_pass(graph, (graph.getNodeByName("enc.parts"), 0), graph.getNodeByName("enc.fc"))
    assert slot(data, np.ones((2, 1)))[-1].tolist() == [[1, 0, 0, 0]] * 2


@pytest.mark.parametrize(
    "outputs, inputs, words",
    [
        ("S", "Z", "input: .* no value named 'Z'; the nearest names are X"),
        ("s", "X", "output: .* no value named 's'; the nearest names are .*S"),
        ("S", ["X", "squar"], "input: .* no value named 'squar'; the nearest names are .*square"),
        ("S", ["X", "X"], "input 'X' is given twice"),
        (["S", "S"], "X", "output 'S' is given twice"),
        ([], "X", "wanted at least one output"),
        ("S", [], "wanted at least one input"),
        ("S", 3, "input must be a Node, .node, slot. or a name, got 3"),
        ("S", [None], "input must be a Node"),
        ("S", Input(name="X").node(), "does not hold input 'X' .Input. itself"),
    ],
)
def test_what_is_not_exactly_one_value_is_named_and_nothing_has_changed(outputs, inputs, words):
    graph = gemm()
    before = snapshot(graph)
    with pytest.raises(AutoDiffException, match=words):
        add_backward_pass(graph, outputs, inputs)
    assert snapshot(graph) == before


def test_a_name_of_several_values_lists_them():
    net = Sequential(Linear(3, 4, name="a"), Linear(4, 2, name="b"), Split(1, (1, 1), name="parts"))
    with pytest.raises(AutoDiffException, match="'W' must name one value, but names 2: a.W, b.W; give the name of one"):
        add_backward_pass(net, "parts.0", "W")
    with pytest.raises(AutoDiffException, match="output 'parts.0, parts.1' must name one value, but names 2"):
        add_backward_pass(net, net.getNodeByName("parts"), "a.W")
    with pytest.raises(AutoDiffException, match="has no output 5; it has 2"):
        add_backward_pass(net, (net.getNodeByName("parts"), 5), "a.W")


def test_what_is_no_graph_is_refused():
    for wrong in (Linear(3, 4), None, "net"):
        with pytest.raises(AutoDiffException, match="wanted a Graph, got"):
            add_backward_pass(wrong, "S", "X")
        with pytest.raises(AutoDiffException, match="wanted a Graph, got"):
            make_backward_function(wrong)


def test_a_node_without_a_rule_is_named_and_nothing_has_changed():
    graph = scalar(Tanh(name="t"), NoGradient(name="odd"))
    before = snapshot(graph)
    with pytest.raises(AutoDiffException, match="at 'odd' .NoGradient.: NoGradient has no gradient: tried .* write"):
        add_backward_pass(graph, "S", "X")
    assert snapshot(graph) == before
    assert np.array_equal(graph(np.zeros(2)), 0.0)


def test_a_node_without_a_rule_does_no_harm_where_no_gradient_goes(rng):
    x, y = Input(name="X").node(), Input(name="Y").node()
    odd = NoGradient(name="odd")(y)
    graph = Graph([x, y], [Sum(name="S")(Mul()(x, odd)), odd])
    a, b = rng.standard_normal(3), rng.standard_normal(3)
    assert np.array_equal(add_backward_pass(graph, "S", ["X", "odd"])(a, b)[2], b)


def test_what_no_gradient_goes_between_is_named_instead_of_zeros():
    x, y = Input(name="X").node(), Input(name="Y").node()
    graph = Graph([x, y], [Sum(name="S")(x), Sum(name="T")(y)])
    with pytest.raises(AutoDiffException, match=r"no gradient reaches input 'Y': none of the outputs S depends on it"):
        add_backward_pass(graph, "S", ["X", "Y"])
    with pytest.raises(AutoDiffException, match=r"output 'T' depends on none of the inputs X; leave it out"):
        add_backward_pass(graph, ["S", "T"], "X")
    net = Sequential(Linear(3, 3, name="fc"), BatchNorm(3, name="bn"), Sum(name="S"))
    with pytest.raises(AutoDiffException, match="input 'bn.mean' is a running state"):
        add_backward_pass(net, "S", f"bn.{next(iter(net.getNodeByName('bn').module.states))}".replace("var", "mean"))
    with pytest.raises(AutoDiffException, match="output 'fc.W' is a parameter"):
        add_backward_pass(net, "fc.W", "x")


# Whole numbers -------------------------------------------------------------------------------------------------------


def test_whole_numbers_may_be_read_and_only_requiring_their_gradient_is_an_error(rng):
    x, n = Input(name="X").node(), Input(name="N").node()
    graph = Graph([x, n], Sum(name="S")(Mul()(x, n)))
    a, b = rng.standard_normal(3), np.array([1, 2, 3])
    assert np.array_equal(add_backward_pass(graph, "S", "X")(a, b)[1], b)
    both = add_backward_pass(graph, "S", ["X", "N"])
    with pytest.raises(AutoDiffException, match="'N' holds int64, and only floating numbers have a gradient"):
        both(a, b)
    assert np.array_equal(both(a, b * 1.0)[2], a)


def test_indices_have_no_gradient_and_what_is_read_by_them_has():
    ids = Input(name="ids").node()
    graph = Graph(ids, Sum(name="S")(Embedder(4, 2, name="words")(ids))).calcMode("float64")
    found = add_backward_pass(graph, "S", "words.W")(np.array([1, 3, 1]))[1]
    assert found.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]
    with pytest.raises(
        AutoDiffException, match="no gradient reaches input 'ids': 'words' .Embedder. reads it as whole"
    ):
        add_backward_pass(graph, "S", "ids")


# Buffers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make, factor", [(squares, 2), (diamond, 12)])
def test_buffers_are_overwritten_or_added_to_whatever_the_graph_looks_like(make, factor):
    x = np.array([1.0, 2, 3])
    for accumulate, start in ((False, 0), (True, 100)):
        joint = add_backward_pass(make(), "S", "X", accumulate=accumulate)
        buffer = np.full(3, 100.0)
        found = joint.run(X=x, gradient_S=np.array(1.0), gradient_X=buffer)
        assert found["gradient_X"] is buffer
        assert np.array_equal(buffer, start + factor * x)
        joint.run(X=x, gradient_X=buffer)
        assert np.array_equal(buffer, 2 * factor * x + 100 if accumulate else factor * x)


def test_an_outputs_buffer_is_written_and_never_added_to():
    joint = add_backward_pass(squares(), "S", "X", accumulate=True)
    buffer = np.array(100.0)
    assert joint.run(X=np.array([1.0, 2]), S=buffer)["S"] is buffer and buffer == 5


def test_buffers_that_do_not_fit_are_refused_before_any_is_written():
    joint = add_backward_pass(gemm(), "S", ["X", "Y"])
    x, y, good = np.ones((5, 4)), np.ones((4, 3)), np.full((5, 4), 7.0)
    with pytest.raises(ShapeError, match=r"wanted gradient_Y of shape \(4, 3\), got \(3, 4\)"):
        joint.run(X=x, Y=y, gradient_X=good, gradient_Y=np.zeros((3, 4)))
    with pytest.raises(DtypeError, match="wanted gradient_Y of float64, got float32"):
        joint.run(X=x, Y=y, gradient_X=good, gradient_Y=np.zeros((4, 3), "float32"))
    assert (good == 7).all()


def test_names_that_are_wrong_or_missing_are_said():
    joint = add_backward_pass(gemm(), "square", ["X", "Y"])
    x, y = np.ones((5, 4)), np.ones((4, 3))
    with pytest.raises(AutoDiffException, match="has neither input nor output 'gradient_x'; near are .*gradient_X"):
        joint.run(X=x, Y=y, gradient_x=np.zeros((5, 4)))
    with pytest.raises(AutoDiffException, match="with gradients: Y is missing"):
        joint.run(X=x)
    with pytest.raises(AutoDiffException, match=r"wanted 3 inputs \(X, Y, gradient_square\), got 4"):
        joint(x, y, x, x)
    with pytest.raises(AutoDiffException, match="wanted 3 inputs .*, got 1"):
        joint(x)


def test_a_gradient_is_never_the_seed_nor_another_gradient():
    x, y = Input(name="X").node(), Input(name="Y").node()
    joint = add_backward_pass(Graph([x, y], Add(name="S")(Identity()(x), y)), "S", ["X", "Y", "S"])
    seed = np.ones(3)
    _, *grads = joint(np.zeros(3), np.zeros(3), seed)
    assert len({id(seed), *map(id, grads)}) == 4
    for g in grads:
        g += 1
    assert seed.tolist() == [1, 1, 1]


# What the graph is ---------------------------------------------------------------------------------------------------


def test_the_graph_that_was_given_does_not_change_and_parameters_are_shared(rng):
    net = Sequential(Linear(3, 4, name="a"), Tanh(), Linear(4, 2, name="b"), Sum(name="S")).calcMode("float64")
    before = snapshot(net)
    joint = add_backward_pass(net, "S", ["x", "a.W"])
    x = rng.standard_normal((5, 3))
    joint(x)
    assert snapshot(net) == before and net.data is None
    assert joint.params == net.params
    net.params["a.W"].data = 2 * net.params["a.W"].data
    assert np.array_equal(joint(x)[0], net(x))
    net.backward()
    assert np.array_equal(joint(x)[2], net.params["a.W"].grad)


def test_a_joint_graph_stands_in_another_graph(rng):
    joint = add_backward_pass(squares(), "S", "X")
    x, one = Input(name="x").node(), Input(name="one").node()
    inner = joint.node(Tanh()(x), one, name="inner")
    outer = Graph([x, one], [(inner, "S"), Sum(name="norm")((inner, "gradient_X"))])
    data = rng.standard_normal(3)
    s, norm = outer(data, np.array(1.0))
    np.testing.assert_allclose([s, norm], [(np.tanh(data) ** 2).sum(), 2 * np.tanh(data).sum()], rtol=1e-12)


def test_a_joint_graph_goes_back_only_by_another_one():
    joint = add_backward_pass(squares(), "S", "X")
    joint(np.ones(3))
    with pytest.raises(AutoDiffException, match="frees its values while it runs.* add_backward_pass"):
        joint.backward()
    with pytest.raises(TypeError, match="copy or pickle that"):
        copy.deepcopy(joint)


def test_a_joint_graph_prints_its_steps_and_knows_its_shapes():
    joint = add_backward_pass(gemm(), "S", "X")
    text = str(joint)
    for words in (
        "gradients: ",
        "X, Y, gradient_S -> S, gradient_X",
        "grad:P",
        "gradient of MatMul    <- grad:square, X, Y",
    ):
        assert words in text
    assert joint.dataShapeFrom([("N", 4), (4, 3), ()]) == [(), ("N", 4)]
    with pytest.raises(ShapeError, match="at 'P'"):
        joint.dataShapeFrom([(5, 4), (5, 3), ()])


def test_registered_rules_and_rules_named_on_nodes_count_here_too(monkeypatch):
    monkeypatch.setattr(rules, "REGISTRY", {})

    def register(value, **options):
        @BackwardImplementation.register(**options)
        class Rule(BackwardImplementation):
            @staticmethod
            def backward(forward_node, context, given_gradients, required_gradients):
                contexts.append((forward_node, context))
                reverse = Pointwise(formula="c * dy", c=value)
                return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    contexts = []
    register(5, op="Tanh", name="default")
    register(7, op="Tanh", name="mine")
    x = Input(name="X").node()
    graph = Graph(x, Sum(name="S")(Add()(Tanh(name="a")(x), Tanh().node(x, name="b", rule="mine"))))
    joint = add_backward_pass(graph, "S", "X")
    assert joint(np.zeros(2))[1].tolist() == [12, 12]
    nodes = {node.name for node, _ in contexts}
    assert nodes == {"a", "b"}
    for _, context in contexts:
        assert (context.forward_sdfg, context.forward_state) == (graph, graph)
        assert context.backward_sdfg is context.backward_state is context.backward_generator is joint
    again = add_backward_pass(joint, "S", "X")
    assert again(np.zeros(2), np.array(1.0))[-1].tolist() == [12, 12], "twins keep the rule that their node names"


def test_inputs_that_may_be_left_out_stay_so(rng):
    class Scale(Module):
        """y = a x + b, a and b optional."""

        def dataShapeFrom(self, x, a=None, b=None):
            return x

        def updateData(self, x, a=None, b=None):
            y = x if a is None else a * x
            return y if b is None else y + b

        def updateGrad(self, grad, x, a, b, y):
            return grad if a is None else a * grad, None if a is None else x * grad, None if b is None else grad

    x, b = Input(name="X").node(), Input(name="B").node()
    graph = Graph([x, b], Sum(name="S")(Scale().node(x, b=b)))
    for strategy in ("store_all", "recompute_all"):
        joint = add_backward_pass(graph, "S", ["X", "B"], data_forwarding_strategy=strategy)
        assert [g.tolist() for g in joint(np.ones(2), np.ones(2))[1:]] == [[1, 1], [1, 1]]


def test_functions_of_a_users_own(rng):
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_variables
            return 3 * x**2 * grad

    x = Input(name="X").node()
    graph = Graph(x, Sum(name="S")(Cube.node(x)))
    for strategy in ("store_all", "recompute_all"):
        joint = add_backward_pass(graph, "S", "X", data_forwarding_strategy=strategy)
        assert joint(np.array([1.0, 2]))[1].tolist() == [3, 12]


def test_hidden_outputs_and_running_states_are_those_of_the_one_forward_pass(rng):
    def net():
        modules = (
            Conv2D(1, 2, 3, name="conv"),
            BatchNorm(2, name="bn"),
            MaxPool2D(2, name="pool"),
            Dropout(name="drop"),
        )
        return Sequential(*modules, Sum(name="S"))

    plain = net().calcMode("float64")
    twin = copy.deepcopy(plain)
    joint = add_backward_pass(twin, "S", ["conv.W", "bn.scale" if "bn.scale" in plain.params else "conv.b", "x"])
    for _ in range(3):
        x = rng.standard_normal((2, 1, 8, 8))
        plain(x)
        plain.backward()
        s, gW, gother, gx = joint(x)
        assert s == plain.data and np.array_equal(gx, plain.grad)
        assert np.array_equal(gW, plain.params["conv.W"].grad)
        for name, state in plain.states.items():
            assert np.array_equal(state.data, twin.states[name].data)


@pytest.mark.costly
def test_a_deep_graph_needs_no_recursion():
    modules = [Pointwise(formula="x + 1", name=f"n{i}") for i in range(5000)]
    graph = Sequential(*modules, Sum(name="S"))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        for strategy in ("store_all", "recompute_all"):
            joint = add_backward_pass(graph, "S", "x", data_forwarding_strategy=strategy)
            assert [v.tolist() for v in joint(np.zeros(2))] == [10000, [1, 1]]
    finally:
        sys.setrecursionlimit(limit)


# Forward and backward apart --------------------------------------------------------------------------------------------


def network():
    """y = exp(relu(x w)) + x w"""
    x, w = Input(name="x").node(), Input(name="w").node()
    h = MatMul(name="h")(x, w)
    e = Pointwise(formula="exp(x)", name="e")(Relu(name="r")(h))
    return Graph([x, w], Add(name="y")(e, h))


@pytest.mark.parametrize("strategy", ["store_all", "recompute_all", "user_defined"])
def test_forward_and_backward_apart(strategy):
    again = ["e"] if strategy == "user_defined" else []
    parts = make_backward_function(network(), data_forwarding_strategy=strategy, data_to_recompute=again)
    assert type(parts) is tuple and len(parts) == 4
    forward, backward, result, forwarded = parts
    assert result == BackwardResult({"x": "gradient_x", "w": "gradient_w"}, {"y": "gradient_y"})
    assert set(forwarded) <= {"x", "w", "h", "r", "e"}
    assert strategy != "recompute_all" or set(forwarded) == {"x", "w"}
    assert strategy != "user_defined" or set(forwarded) == {"x", "w", "h", "r"}
    x, w = np.array([[1, -2, 0.5], [0, 1, 2]]), np.arange(12).reshape(3, 4) / 10 - 0.5
    y, *values = forward(x, w)
    np.testing.assert_allclose(y, [[0.85, 0.8, 0.75, 0.7], [2.148721, 3.025541, 4.104166, 5.4552]], rtol=2e-6)
    assert backward.arguments == (*forwarded, "gradient_y")
    dx, dw = backward(*values, np.ones((2, 4)))
    np.testing.assert_allclose(dx, [[-1.4, 0.2, 1.8], [-4.826867, 1.146584, 7.120036]], atol=2e-6)
    wanted = [[1, 1, 1, 1], [0.648721, 1.225541, 2.004166, 3.0552], [5.797443, 6.951082, 8.508332, 10.6104]]
    np.testing.assert_allclose(dw, wanted, atol=2e-6)
    named = forward.run(x=x, w=w)
    found = backward.run(
        gradient_y=np.ones((2, 4)), **{name: named.get(name, {"x": x, "w": w}.get(name)) for name in forwarded}
    )
    assert np.array_equal(found["gradient_x"], dx) and np.array_equal(found["gradient_w"], dw)


@pytest.mark.peers
def test_forward_and_backward_apart_are_those_of_torch(rng):
    torch = pytest.importorskip("torch")
    data = [rng.standard_normal(s) for s in ((5, 3), (3, 4))]
    forward, backward, _, _ = make_backward_function(network())
    y, *values = forward(*data)
    x, w = (torch.tensor(d, requires_grad=True) for d in data)
    h = x @ w
    found = torch.exp(torch.relu(h)) + h
    found.backward(torch.ones_like(found))
    np.testing.assert_allclose(y, found.detach(), rtol=1e-12)
    for g, t in zip(backward(*values, np.ones_like(y)), (x, w)):
        np.testing.assert_allclose(g, t.grad, rtol=1e-10, atol=1e-12)


def test_what_is_forwarded_is_described_and_only_shapes_travel_as_outlines():
    graph = scalar(Linear(3, 4, name="fc"), Tanh(name="t"))
    forward, backward, result, forwarded = make_backward_function(graph, shapes=[(5, 3)])
    floats = np.dtype("float32")
    assert forwarded == {n: Descriptor(s, floats) for n, s in (("fc", (5, 4)), ("t", (5, 4)), ("X", (5, 3)))}
    assert list(result.required_grad_names) == ["X", "fc.W", "fc.b"], "trained parameters too, read where they are"
    assert make_backward_function(graph)[3]["t"] == Descriptor(None, None)
    pooled = scalar(MaxPool2D(2, name="pool"), Dropout(name="drop"))
    described = make_backward_function(pooled, shapes=[(1, 1, 4, 4)])[3]
    assert described["pool.indices"] == Descriptor((1, 1, 2, 2), np.dtype("int32"))
    assert described["drop.mask"] == Descriptor((1, 1, 2, 2), np.dtype(bool))
    values = dict(zip(forwarded, forward(np.ones((5, 3), "float32"))[1:]))
    assert values["fc"].strides == (0, 0), "its shape alone is asked, so an outline goes"
    only = Graph(node := Input(name="X").node(), Sum(name="S")(Tanh(name="t")(Sum(axis=1, name="rows")(node))))
    forward, backward, _, forwarded = make_backward_function(only)
    s, *values = forward(np.ones((5, 3)))
    assert [v.strides for v, name in zip(values, forwarded) if name == "X"] == [(0, 0)]
    np.testing.assert_allclose(backward(*values, np.array(1.0)), np.full((5, 3), 1 - np.tanh(3.0) ** 2), rtol=1e-12)


def test_required_grads_are_asked_for_like_inputs():
    graph = Graph([x := Input(name="x").node(), n := Input(name="n").node()], Sum(name="S")(Mul()(x, n)))
    _, backward, result, _ = make_backward_function(graph, required_grads=["x"])
    assert result.required_grad_names == {"x": "gradient_x"}
    odd = Graph([x2 := Input(name="x").node(), n2 := Input(name="n").node()], Mul(name="y")(x2, NoGradient()(n2)))
    assert list(make_backward_function(odd, required_grads="x")[2].required_grad_names) == ["x"]
    with pytest.raises(AutoDiffException, match="at 'nogradient' .NoGradient."):
        make_backward_function(odd)
    with pytest.raises(AutoDiffException, match="required_grads: .* no value named 'z'; the nearest names are"):
        make_backward_function(graph, required_grads=["z"])
    with pytest.raises(AutoDiffException, match="no output has a gradient"):
        make_backward_function(Graph(i := Input(name="i").node(), Embedder(3, 2).node(i)).evalMode())


def test_an_output_that_depends_on_nothing_asked_for_has_no_seed():
    x, y = Input(name="x").node(), Input(name="y").node()
    graph = Graph([x, y], [Tanh(name="a")(x), Tanh(name="b")(y)])
    forward, backward, result, forwarded = make_backward_function(graph, required_grads="y")
    assert result.given_grad_names == {"b": "gradient_b"}
    assert set(forwarded) == {"b", "y"} and backward.arguments == (*forwarded, "gradient_b")
    a, b, *values = forward(np.zeros(2), np.ones(2))
    np.testing.assert_allclose(backward(*values, np.ones(2)), 1 - np.tanh(np.ones(2)) ** 2, rtol=1e-12)


# Bit for bit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(10))
def test_random_graphs_agree_with_backward_to_the_last_bit(block):
    compared = 0
    for number in range(block * 25, block * 25 + 25):
        graph, shapes, _ = randomGraph(random.Random(number))
        if len(set(graph.steps().outputs)) < len(graph.outputs):
            continue
        rng = np.random.default_rng(number)
        data = [rng.standard_normal(s) for s in shapes]
        ys = graph(data)
        ys = ys if isinstance(ys, list) else [ys]
        seeds = dict(zip(graph.outputNames, [rng.standard_normal(np.shape(y)) for y in ys]))
        graph.backward(list(seeds.values()) if len(seeds) > 1 else next(iter(seeds.values())))
        grads = graph.grad if isinstance(graph.grad, list) else [graph.grad]
        wanted = dict(zip([graph.steps().names[n] for n in graph.steps().inputs], grads))
        wanted |= {name: p.grad for name, p in graph.params.items()}
        wanted = {name: g for name, g in wanted.items() if g is not None}
        if not wanted:
            continue
        for strategy in ("store_all", "recompute_all"):
            forward, backward, result, _ = make_backward_function(graph, data_forwarding_strategy=strategy)
            assert set(result.required_grad_names) == set(wanted)
            given = [seeds[name] for name in result.given_grad_names]
            joint = add_backward_pass(
                graph, list(result.given_grad_names), list(wanted), data_forwarding_strategy=strategy
            )
            found = joint.run(
                **dict(zip(joint.arguments, data)),
                **{name: seeds[output] for output, name in joint.result.given_grad_names.items()},
            )
            left = forward(data)
            apart = backward([*(left[len(ys) :] if isinstance(left, list) else []), *given])
            apart = apart if isinstance(apart, list) else [apart]
            apart = dict(zip(result.required_grad_names, apart))
            for name, g in wanted.items():
                assert np.array_equal(found[joint.result.required_grad_names[name]], g), (number, strategy, name)
                assert np.array_equal(apart[name], g), (number, strategy, name)
                compared += 1
    assert compared > 50


# On other arrays ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["store_all", "recompute_all"])
def test_arrays_of_another_library_give_the_same(strategy, rng, monkeypatch):
    x, y = Input(name="X").node(), Input(name="Y").node()
    product = MatMul(name="P")(x, y)
    best = Max(axis=1)(Einsum("ij,ij->ij")(product, Tanh()(product)))
    graph = Graph([x, y], Sum(name="S")(Add()(best, Sum(axis=1)(x))))
    data = rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    joint = add_backward_pass(graph, "S", ["X", "Y"], accumulate=True, data_forwarding_strategy=strategy)
    with useFast(False):
        wanted = joint(*data)
        useStrict(monkeypatch)
        found = joint(*map(Strict, data))
        buffer = Strict(np.full((5, 4), 100.0))
        joint.run(X=Strict(data[0]), Y=Strict(data[1]), gradient_X=buffer)
    for a, b in zip(found, wanted):
        assert isinstance(a, Strict) and np.array_equal(a.values, b)
    assert np.array_equal(buffer.values, wanted[1] + 100)


@pytest.mark.parametrize("kind", [GRU, LSTM, RNN], ids=lambda kind: kind.__name__)
def test_a_peak_and_a_budget_are_known_where_optional_inputs_are_left_out(kind, rng):
    x = Input(name="x").node()
    node = Linear(3, 2, name="out").node(Mean(axis=1, name="mean").node(kind(4, 3, name="cell").node(x)))
    net, shapes = Graph(x, node), [(2, 5, 4)]
    joint = add_backward_pass(net, "out", ["cell.Wx" if "cell.Wx" in net.params else list(net.params)[0]])
    peak = joint.peak(*shapes, (2, 2))
    assert peak > sum(p.nbytes for p in net.params.values())
    within = add_backward_pass(net, "out", [joint.required[0]], budget=peak, shapes=shapes)
    assert within.peak(*shapes, (2, 2)) <= peak
    data = rng.standard_normal(shapes[0]).astype(np.float32), np.ones((2, 2), np.float32)
    for y, wanted in zip(within(*data), joint(*data), strict=True):
        np.testing.assert_array_equal(y, wanted)
    with pytest.raises(AutoDiffException, match="a budget of 10 bytes cannot be met"):
        add_backward_pass(net, "out", [joint.required[0]], budget=10, shapes=shapes)
    _, _, _, forwarded = make_backward_function(net, shapes=shapes)
    assert forwarded["cell"].shape == (2, 5, 3)


def test_backward_functions_that_were_dropped_leave_nothing_behind():
    net = gemm()

    def objects():
        make_backward_function(net)
        gc.collect()
        return len(gc.get_objects())

    counts = [objects() for _ in range(6)]
    assert counts[2] == counts[-1]
