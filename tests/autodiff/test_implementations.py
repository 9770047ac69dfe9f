"""Gradient rules that are registered: which one counts, and reverse nodes as rules everywhere."""

import numpy as np
import pytest

from puregraph.autodiff import BackwardContext, BackwardImplementation, BackwardResult
from puregraph.core import rules
from puregraph.core.errors import AutoDiffException
from puregraph.core.rules import gradientRule, registerRule
from puregraph.graph import Graph
from puregraph.graph.backward import BackwardGraph, readsOf
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, Concat, Linear, MatMul, MaxPool2D, Relu, Sigmoid, Split, Tanh, Transpose


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    monkeypatch.setattr(rules, "REGISTRY", {})


def constant(value, applies=True):
    """An implementation for one input x and one output y whose gradient is always that number."""

    class Constant(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            return applies

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            reverse = Pointwise(formula="0 * dy + c", c=value)
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    return Constant


def gradientOf(module, x=2.0, rule=None):
    x0 = Input(name="x").node()
    graph = Graph(x0, module.node(x0, rule=rule))
    graph(np.full((2, 3), x))
    graph.backward(np.ones((2, 3)))
    return graph.grad[0, 0]


def given(value, **kind):
    BackwardImplementation.register(**kind)(constant(value))


class Twice(Module):
    """y = 2 x, with a wrong gradient rule of its own, so that it shows when it is used."""

    def dataShapeFrom(self, x):
        return x

    def updateData(self, x):
        return x * 2

    def updateGrad(self, grad, x, y):
        return grad * 77


class Thrice(Twice):
    pass


# Which rule counts -----------------------------------------------------------------------------------------------------


def test_a_registered_implementation_goes_before_the_modules_own_rule_and_before_a_formula():
    assert gradientOf(Twice()) == 77
    given(5, node_type=Twice, name="default")
    given(6, op="Tanh", name="default")
    assert gradientOf(Twice()) == 5
    assert gradientOf(Tanh()) == 6
    assert gradientOf(Sigmoid()) == pytest.approx(0.104993585)


def test_the_nearest_type_counts_whatever_the_order_of_registration():
    for kinds in ((Module, Twice, Thrice), (Thrice, Twice, Module)):
        rules.REGISTRY.clear()
        for kind in kinds:
            given({Module: 1, Twice: 2, Thrice: 3}[kind], node_type=kind, name="a")
        assert (gradientOf(Thrice()), gradientOf(Twice()), gradientOf(Tanh())) == (3, 2, 1)


def test_the_name_of_a_type_counts_after_the_type_and_before_its_bases():
    given(1, node_type=Twice, name="a")
    given(2, op="Thrice", name="a")
    assert (gradientOf(Thrice()), gradientOf(Twice())) == (2, 1)
    given(3, node_type=Thrice, name="a")
    assert gradientOf(Thrice()) == 3


@pytest.mark.parametrize("names", [("b", "default", "a"), ("a", "default", "b"), ("default", "b", "a")])
def test_of_one_type_default_counts_then_the_first_by_name(names):
    numbers = {"default": 1, "a": 2, "b": 3}
    for name in names:
        given(numbers[name], node_type=Twice, name=name)
    assert gradientOf(Twice()) == 1
    del rules.REGISTRY[Twice, "default"]
    assert gradientOf(Twice()) == 2


def test_what_cannot_be_applied_is_passed_over():
    BackwardImplementation.register(node_type=Twice, name="default")(constant(1, applies=False))
    given(2, node_type=Twice, name="slow")
    assert gradientOf(Twice()) == 2
    del rules.REGISTRY[Twice, "slow"]
    assert gradientOf(Twice()) == 77


def test_a_rule_named_on_the_node_counts_first():
    given(1, node_type=Twice, name="default")
    given(2, node_type=Twice, name="mine")
    registerRule(Twice, "other")(lambda module, grad, x, y: (grad * 3,))
    assert [gradientOf(Twice(), rule=rule) for rule in (None, "mine", "other", "default")] == [1, 2, 3, 1]


def test_a_named_rule_that_cannot_be_applied_is_an_error_and_not_passed_over():
    BackwardImplementation.register(node_type=Twice, name="mine")(constant(1, applies=False))
    with pytest.raises(AutoDiffException, match=r"'mine' for Twice: it says that it cannot be applied here"):
        gradientOf(Twice(), rule="mine")
    with pytest.raises(AutoDiffException, match=r"'yours' for Twice: known for Twice: mine"):
        gradientOf(Twice(), rule="yours")


def test_both_ways_of_registering_share_one_registry_and_its_names():
    registerRule(Twice)(lambda module, grad, x, y: (grad * 3,))
    assert gradientOf(Twice()) == 3
    with pytest.raises(ValueError, match=r"'default' for Twice is registered already"):
        given(1, node_type=Twice, name="default")
    given(1, node_type=Twice, name="another")
    with pytest.raises(ValueError, match=r"'another' for Twice is registered already: give this one another name"):
        registerRule(Twice, "another")(lambda module, grad, x, y: (grad,))


def test_a_rule_with_a_name_given_to_registerRule_is_only_for_nodes_that_ask_for_it():
    registerRule(Relu, "guided")(lambda module, grad, x, y: (grad * 9,))
    assert gradientOf(Relu()) == 1
    assert gradientOf(Relu(), rule="guided") == 9


def test_a_rule_registered_for_a_type_holds_for_types_made_from_it():
    registerRule(Twice)(lambda module, grad, x, y: (grad * 3,))
    assert gradientOf(Thrice()) == 3


def test_without_any_rule_the_error_says_what_was_tried_and_what_to_write():
    class Bare(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x

    BackwardImplementation.register(op="Bare", name="fast")(constant(1, applies=False))
    with pytest.raises(AutoDiffException) as caught:
        gradientOf(Bare())
    for words in (
        "at 'bare' (Bare)",
        "a registered rule ('fast' says that it cannot be applied here)",
        "its own updateGrad (not defined)",
        "write Bare.updateGrad(grad, *arguments, *outputs)",
        "@registerRule(Bare)",
        "@BackwardImplementation.register(op='Bare', name=...)",
    ):
        assert words in str(caught.value)


# Registering -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ({"op": "Tanh"}, "wanted name="),
        ({"op": "Tanh", "name": ""}, "wanted name="),
        ({"name": "a"}, "wanted node_type="),
        ({"name": "a", "op": "Tanh", "node_type": Tanh}, "wanted node_type="),
        ({"name": "a", "node_type": "Tanh"}, "wanted node_type="),
        ({"name": "a", "op": Tanh}, "wanted node_type="),
    ],
)
def test_a_registration_that_says_too_little_is_refused_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        BackwardImplementation.register(**options)
    assert not rules.REGISTRY


def test_one_name_twice_for_one_type_is_refused_and_the_first_stays():
    given(1, node_type=Twice, name="a")
    with pytest.raises(ValueError, match="'a' for Twice is registered already"):
        given(2, node_type=Twice, name="a")
    given(3, node_type=Thrice, name="a")
    assert (gradientOf(Twice()), gradientOf(Thrice())) == (1, 3)


def test_only_implementations_are_registered_and_a_subclass_registers_itself():
    with pytest.raises(ValueError, match="wanted a subclass of BackwardImplementation"):
        BackwardImplementation.register(op="Tanh", name="a")(Tanh)
    found = constant(4)
    assert found.register(op="Twice", name="a") is found
    assert gradientOf(Twice()) == 4


# Reverse nodes -----------------------------------------------------------------------------------------------------------


def everywhere(graph, *data):
    """The gradients from Graph.backward, from its BackwardGraph, and node by node."""
    graph(*data)
    seed = np.ones_like(graph.data)
    graph.backward(seed)
    first = graph.grad if isinstance(graph.grad, list) else [graph.grad]
    again = BackwardGraph(graph)(seed)
    again = again if isinstance(again, list) else [again]
    for node, x in zip(graph.inputs, data):
        node.updateData(x)
    for node in graph.nodes:
        if node.bwds:
            node.updateData(None)
    graph.outputs[0][0].backward(seed)
    for a, b, node in zip(first, again, graph.inputs):
        assert np.array_equal(a, b) and np.array_equal(a, node.grad)
    return first


def test_a_reverse_node_is_used_by_everything_that_goes_backward():
    @BackwardImplementation.register(op="Tanh", name="default")
    class TanhBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            assert (given_gradients, required_gradients) == (["y"], ["x"])
            reverse = Pointwise(formula="10 * dy * (1 - y * y)")
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    x = Input(name="x").node()
    data = np.linspace(-1, 1, 5)
    (grad,) = everywhere(Graph(x, Tanh()(x)), data)
    np.testing.assert_allclose(grad, 10 * (1 - np.tanh(data) ** 2), rtol=1e-12)


def test_a_reverse_node_may_be_a_whole_graph_and_take_arguments_and_parameters(rng):
    @BackwardImplementation.register(node_type=Linear, name="default")
    class LinearBackward(BackwardImplementation):
        """dx = dy W^T, dW = x^T dy, db = sum of dy."""

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            x, W, dy = (Input(name=name).node() for name in ("x", "W", "dy"))
            made = {
                "x": MatMul(transpB=True, name="dx").node(dy, W),
                "W": MatMul(transpA=True, name="dW").node(x, dy),
                "b": Pointwise(formula="1 * s", name="db").node(dy[0]),
            }
            inputs = {"x": [W, dy], "W": [x, dy], "b": [dy]}
            wanted = [made[name] for name in required_gradients]
            taken = [n for n in (x, W, dy) if any(n in inputs[name] for name in required_gradients)]
            names = {name: made[name].name for name in required_gradients}
            return Graph(taken, wanted).node(), BackwardResult(names, {"y": "dy"})

    net = Sequential(Linear(3, 4, name="a"), Linear(4, 2, name="b")).calcMode("float64")
    data = rng.standard_normal((1, 3))
    net(data)
    net.backward(np.ones((1, 2)))
    found = [net.grad, *(p.grad for p in net.params.values())]
    rules.REGISTRY.clear()
    net.backwards.clear()
    net(data)
    net.backward(np.ones((1, 2)))
    for a, b in zip(found, [net.grad, *(p.grad for p in net.params.values())]):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_reverse_node_takes_hidden_outputs_and_only_what_it_names_is_read():
    @BackwardImplementation.register(op="MaxPool2D", name="default")
    class PoolBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            reverse = Pointwise(formula="0 * x + 1")
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "indices"})

    @BackwardImplementation.register(op="MaxPool2D", name="second")
    class Second(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            reverse = Pointwise(formula="x + 0 * dy")
            return reverse.node(), BackwardResult({"x": "y"}, {"y": "dy"})

    x = Input(name="x").node()
    with pytest.raises(AutoDiffException, match="gradient of output 'y' must be an input of the reverse node"):
        Graph(x, MaxPool2D(1)(x)).backwardGraph()
    graph = Graph(x, MaxPool2D(1).node(x, rule="second"))
    back = graph.backwardGraph()
    (step,) = back.steps().items
    assert [back.steps().names[n] for n in readsOf(step)] == ["d:maxpool2d", "x"]


def test_inputs_of_any_number_are_numbered():
    @BackwardImplementation.register(node_type=Add, name="default")
    class AddBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            assert required_gradients == ["xs0", "xs1", "xs2"]
            return Split(axis=0, sections=(1, 1, 1)).node(), BackwardResult(
                {name: name[-1] for name in required_gradients}, {"y": "x"}
            )

    a, b, c = (Input(name=name).node() for name in "abc")
    graph = Graph([a, b, c], Add()(a, b, c))
    graph(*[np.ones((3, 1))] * 3)
    with pytest.raises(ValueError, match=r"gradient rule to give shape \(3, 1\)"):
        graph.backward(np.ones((3, 1)))


def test_an_output_without_a_gradient_is_told_and_its_gradient_taken_as_zeros():
    seen = []

    @BackwardImplementation.register(op="Split", name="default")
    class SplitBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            seen.append(given_gradients)
            return Concat(axis=0).node(), BackwardResult({"x": "y"}, {"0": "xs", "1": "xs"})

    x = Input(name="x").node()
    parts = Split(axis=0, sections=(1, 2)).node(x)
    with pytest.raises(AutoDiffException, match="takes any number of inputs, which have no names: put it into a Graph"):
        Graph(x, Tanh()((parts, 0))).backwardGraph()
    del rules.REGISTRY["Split", "default"]

    @BackwardImplementation.register(op="Split", name="default")
    class Better(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            seen.append(given_gradients)
            first, second = Input(name="first").node(), Input(name="second").node()
            graph = Graph([first, second], Concat(axis=0, name="joined")(first, second))
            return graph.node(), BackwardResult({"x": "joined"}, {"0": "first", "1": "second"})

    graph = Graph(x, Tanh()((parts, 0)))
    graph(np.zeros(3))
    graph.backward(np.array([2.0]))
    assert graph.grad.tolist() == [2, 0, 0]
    assert seen == [["0"], ["0"]]


def test_the_context_holds_the_graphs():
    contexts, places = [], []

    @BackwardImplementation.register(op="Tanh", name="default")
    class TanhBackward(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            places.append((node, state, sdfg))
            return True

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            contexts.append(context)
            return Pointwise(formula="1 * dy").node(), BackwardResult({"x": "y"}, {"y": "dy"})

    x = Input(name="x").node()
    node = Tanh()(x)
    graph = Graph(x, node)
    back = graph.backwardGraph()
    assert places == [(node, graph, graph)]
    assert contexts == [BackwardContext(graph, graph, back, back, back)]
    assert gradientRule(Tanh(), (True,))(np.array(3.0), None, None) == (3.0,)
    assert contexts[1] == BackwardContext()


@pytest.mark.parametrize(
    "result, words",
    [
        (lambda node: node, "wanted .Node, BackwardResult., got Node"),
        (lambda node: (node, {"x": "y"}), "wanted .Node, BackwardResult."),
        (lambda node: (node, BackwardResult({"x": "z"}, {"y": "dy"})), "gradient of 'x' must be an output .* one of y"),
        (lambda node: (node, BackwardResult({}, {"y": "dy"})), "gradient of 'x' must be an output"),
        (lambda node: (node, BackwardResult({"x": "y"}, {"y": "no"})), "'y' must be an input .* one of dy; .* 'no'"),
        (
            lambda node: (Pointwise(formula="a * b").node(), BackwardResult({"x": "y"}, {"y": "a"})),
            "takes 'b', which is neither a gradient nor a value of the forward node; that has x, y",
        ),
    ],
)
def test_a_result_that_does_not_fit_its_reverse_node_is_named(result, words):
    @BackwardImplementation.register(op="Tanh", name="default")
    class Wrong(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return result(Pointwise(formula="1 * dy").node())

    x = Input(name="x").node()
    with pytest.raises(AutoDiffException, match=f"(?s)at 'tanh' .Tanh.: Wrong.*{words}"):
        Graph(x, Tanh()(x)).backwardGraph()


def test_an_implementation_without_backward_says_what_to_write():
    class Empty(BackwardImplementation):
        pass

    BackwardImplementation.register(op="Transpose", name="default")(Empty)
    x = Input(name="x").node()
    with pytest.raises(NotImplementedError, match="write a static method backward"):
        Graph(x, Transpose()(x)).backwardGraph()
