"""Graphs of callables: gradients are routed by edges, whatever the values are."""

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from puregraph.autodiff import BackwardGraph
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.modelgraph import ModelGraph
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.core.errors import AutoDiffException
from puregraph.modules import Add, Embedder, Linear, Relu, Sub


def chain(*nodes):
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, *nodes, graph.OUTPUT)
    return graph


def listed(value):
    """Arrays inside lists as lists."""
    return (
        [listed(v) for v in value]
        if isinstance(value, list)
        else value
        if value is None
        else np.asarray(value).tolist()
    )


# A model with every kind of edge ---------------------------------------------------------------------------------------


def branching():
    """Edges with positions, keywords, repeats and one that replaces another."""
    l1 = Linear(1, 1, useBias=False, name="l1").calcMode("float64")
    l1.W.data = np.array([[2.0]])

    def l2(*x):
        return x[0] + x[1], x[0] - x[1]

    def l3(x, y):
        return {"a": x - y, "b": x + y}

    def l4(x, y, z, a, b):
        return ((x + y) + (a + b)) + z

    def l5(x):
        return {"c": 0.5 * x}

    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, l1, in_arg=0)
    graph.add_edge(graph.INPUT, l2)
    graph.add_edge(l1, l2, out_arg=1)
    graph.add_edge(l1, l3, out_arg=0)
    graph.add_edge(l1, l3, out_arg=0)
    graph.add_edge(l2, l3, in_arg=1, out_arg=1)
    graph.add_edge(l2, l3, in_arg=0, out_arg=1)
    graph.add_edge(l3, l4, in_kwarg=True, out_arg=True)
    graph.add_edge(l1, l4, out_kwarg="z")
    graph.add_edge(l2, l4, out_kwarg="a")
    graph.add_edge(l2, l4, in_arg=1, out_kwarg="b")
    graph.add_edge(l4, l5)
    graph.add_edge(l5, graph.OUTPUT, in_kwarg="c", out_arg=0)
    return graph, l1


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_kind_of_edge_at_any_batch_size(size, static):
    graph, l1 = branching()
    graph.compile(is_static=static)
    back = BackwardGraph().from_forward(graph).compile(is_static=static)
    assert listed(graph(np.ones((size, 1)))) == [[5.0]] * size
    assert listed(back.calculate(np.ones((size, 1)))) == [[5.0]] * size
    assert listed(l1.W.grad) == [[2.5 * size]]


def test_a_diamond_of_plain_connections():
    def a(x):
        return x**2

    def b(a):
        return 2 * a

    def c(a):
        return 3 * a

    def d(b, c):
        return b * c

    graph = chain(a, b, d)
    graph.add_connection(a, c, d)
    x = np.array([2.0, 3.0])
    assert listed(graph(x)) == [96.0, 486.0]
    assert listed(graph.backward(np.ones(2))) == [192.0, 648.0]
    assert listed(x) == [2.0, 3.0]


# Equal values are not equal edges -------------------------------------------------------------------------------------


def test_nodes_may_be_methods_which_are_made_anew_each_time():
    class Doubler:
        def double(self, x):
            return 2 * x

    doubler = Doubler()
    graph = chain(doubler.double).insert(np.tanh, "INPUT", doubler.double)
    assert len(graph.edges_between(np.tanh, doubler.double)) == 1
    assert graph(0.5) == 2 * np.tanh(0.5)
    assert np.isclose(graph.backward(1.0), 2 * (1 - np.tanh(0.5) ** 2))


@pytest.mark.parametrize("size", [4, 1000])
@pytest.mark.parametrize("relu", [False, True])
def test_values_that_are_equal_keep_their_routes(size, relu):
    first, second = (Relu(), Relu()) if relu else (lambda x: 2 * x, lambda x: 3 * x)

    def d(u, v):
        return u + 10 * v

    graph = ForwardGraph()
    for node in (first, second):
        graph.add_edge(graph.INPUT, node, in_arg=0)
        graph.add_edge(node, d, in_arg=0)
    graph.add_edge(d, graph.OUTPUT)
    x = np.full(size, 1.0 if relu else 0.0)
    assert listed(graph(x)) == [11.0 if relu else 0.0] * size
    assert listed(graph.backward(np.ones(size))) == [11.0 if relu else 32.0] * size
    graph(np.zeros(size))
    assert listed(graph.backward(np.ones(size))) == [0.0 if relu else 32.0] * size


def test_values_that_are_equal_by_accident():
    def d(u, v):
        return u + 10 * v

    graph = ForwardGraph()
    for node in (lambda x: 2 * x, lambda x: x + 1):
        graph.add_edge(graph.INPUT, node, in_arg=True)
        graph.add_edge(node, d, in_arg=True)
    graph.add_edge(d, graph.OUTPUT)
    assert listed(graph(np.array([1.0]))) == [22.0]
    assert listed(graph.backward(np.ones(1))) == [12.0]


# Names, order, several outputs -----------------------------------------------------------------------------------------


def test_values_by_name():
    def f(x):
        return {"a": 2 * x, "b": x}

    x = np.array([1.0, 2.0, 3.0])
    for rename in (False, True):
        if rename:

            def d(p, q):
                return p * q + 3 * q

        else:

            def d(a, b):
                return a * b + 3 * b

        graph = ForwardGraph()
        graph.add_connection(graph.INPUT, f)
        if rename:
            graph.add_edge(f, d, in_kwarg="a", out_kwarg="p").add_edge(f, d, in_kwarg="b", out_kwarg="q")
        else:
            graph.add_edge(f, d, in_kwarg=True)
        graph.add_connection(d, graph.OUTPUT)
        assert listed(graph(x)) == [5.0, 14.0, 27.0]
        assert listed(graph.backward(np.ones(3))) == [7.0, 11.0, 15.0]


def test_the_order_of_a_call_is_that_of_its_gradients():
    def p(x):
        return 3 * x

    def d(first, second):
        return first * second * second

    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, p)
    graph.add_edge(graph.INPUT, d)
    graph.add_edge(p, d, in_arg=0, out_arg=1)
    graph.add_connection(d, graph.OUTPUT)
    assert graph(2.0) == 6.0 * 2.0 * 2.0
    assert graph.backward(1.0) == 9 * 2.0**2


def test_several_outputs_in_the_order_of_their_slots():
    p, q = (lambda x: 5 * x), (lambda x: 2 * x)
    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, q).add_edge(graph.INPUT, p)
    graph.add_edge(q, graph.OUTPUT, out_arg=1).add_edge(p, graph.OUTPUT, out_arg=0)
    back = BackwardGraph().from_forward(graph)
    assert graph(1.0) == [5.0, 2.0]
    assert back.calculate(1.0, 10.0, retain_graph=True) == 25.0
    assert back.calculate(None, 10.0, retain_graph=True) == 20.0
    assert back([1.0, None], retain_graph=True) == 5.0
    assert back.calculate(None, None) is None and back.calculate(1.0, 0.0, retain_graph=True) == 5.0
    for wrong in ((1.0,), (1.0, 2.0, 3.0)):
        with pytest.raises(ValueError, match=r"wanted a gradient \(or None\) for each of 2 values, got"):
            back.calculate(*wrong)
    with pytest.raises(ValueError, match="left out only where that is one number"):
        back()


def test_outputs_by_name():
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, lambda x: {"a": 2 * x, "b": 3 * x}, graph.OUTPUT)
    back = BackwardGraph().from_forward(graph)
    x = np.array([1.0, 2.0])
    y = graph(x)
    assert isinstance(y, ArgsKwargs) and {k: listed(v) for k, v in y.kwargs.items()} == {"a": [2, 4], "b": [3, 6]}
    g = np.ones(2)
    assert listed(back.calculate(a=g, b=g, retain_graph=True)) == [5.0, 5.0]
    assert listed(back({"a": g}, retain_graph=True)) == [2.0, 2.0]
    with pytest.raises(ValueError, match="a, b by name, got 0 and c by name"):
        back.calculate(c=g)


def test_inputs_by_name():
    def f(x, scale):
        return x * scale

    graph = chain(f)
    assert listed(graph(np.array([1.0, 2.0]), scale=np.array([3.0, 4.0]))) == [3.0, 8.0]
    found = graph.backward(np.ones(2))
    assert listed(found.args) == [[3.0, 4.0]] and listed(found.kwargs["scale"]) == [1.0, 2.0]


def test_outputs_and_inputs_that_are_not_used():
    def f(x, unused):
        return x * 2, x * 3, {"extra": x * 5}

    def fore(x, unused):
        first, second, rest = f(x, unused)
        return ArgsKwargs([first, second], rest)

    def second(y):
        return y * 7

    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, fore)
    graph.add_edge(fore, second, in_arg=1)
    graph.add_connection(second, graph.OUTPUT)
    assert graph(1.0, 9.0) == 21.0
    assert graph.backward(1.0) == [21.0, None]


def test_a_branch_that_leads_nowhere_has_no_gradient_and_no_harm():
    graph = chain(double := lambda x: 2 * x)
    graph.add_connection(double, lambda x: 100 * x)
    assert graph(1.0) == 2.0
    assert graph.backward(1.0) == 2.0


def test_a_node_that_nothing_feeds_is_called_with_nothing():
    fc = Linear(1, 1)

    def constant():
        return 3.0

    graph = ForwardGraph()
    graph.add_edge(graph.INPUT, np.multiply, in_arg=0, out_arg=0)
    graph.add_edge(constant, np.multiply, out_arg=1)
    graph.add_connection(np.multiply, graph.OUTPUT)
    assert graph(2.0) == 6.0
    assert graph.backward(1.0) == 3.0
    assert fc not in graph


# Several edges between a pair ------------------------------------------------------------------------------------------


def test_one_value_to_two_slots():
    def same(x):
        return 1.0 * x

    for source in (same, ForwardGraph.INPUT):
        graph = ForwardGraph()
        if source is same:
            graph.add_connection(graph.INPUT, same)
        graph.add_edge(source, np.multiply, in_arg=0, out_arg=0)
        graph.add_edge(source, np.multiply, in_arg=0, out_arg=1)
        graph.add_connection(np.multiply, graph.OUTPUT)
        assert listed(graph(np.array([3.0, 4.0]))) == [9.0, 16.0]
        assert listed(graph.backward(np.ones(2))) == [6.0, 8.0]


def test_two_values_of_a_pair_both_survive():
    def pair(x):
        return x, 10 * x

    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, pair)
    graph.add_edge(pair, np.multiply, in_arg=0)
    graph.add_edge(pair, np.multiply, in_arg=1)
    graph.add_connection(np.multiply, graph.OUTPUT)
    assert graph(3.0) == 90.0
    assert graph.backward(1.0) == 60.0


class Reader:
    """Joins texts; hands each of them back its own name."""

    def __init__(self, name):
        self.name = name

    def __call__(self, *texts):
        return " ".join(texts)

    def backward(self, grad):
        return f"{self.name}0 {grad}", f"{self.name}1 {grad}"


@pytest.mark.parametrize("by_hand", [False, True])
def test_contributions_are_added_in_forward_order_then_by_argument(by_hand):
    late, early = Reader("late"), Reader("early")
    source = Reader("source")
    graph = ForwardGraph()
    graph.add_connection(graph.INPUT, source)
    graph.add_edge(source, late, in_arg=0, out_arg=1)
    graph.add_edge(source, early, in_arg=0, out_arg=1)
    graph.add_edge(source, early, in_arg=0, out_arg=0)
    graph.add_edge(early, late, in_arg=0, out_arg=0)
    graph.add_edge(source, graph.OUTPUT, out_arg=1)
    graph.add_edge(late, graph.OUTPUT, out_arg=0)
    back = BackwardGraph(graph.graph_state)
    if by_hand:
        back.add_connection(graph.OUTPUT, source).add_connection(late, source).add_connection(early, source)
        back.add_connection(graph.OUTPUT, late, early)
    else:
        back.from_forward(graph)
    assert graph("a") == ["a a a", "a"]
    found = back._pass(back.OUTPUT, "good", "fine")[source].inputs
    assert found.args[0].split("\n") == ["early0 late0 good", "early1 late0 good", "late1 good", "fine"]


# Kinds of input ----------------------------------------------------------------------------------------------------


def test_a_whole_number_beside_an_array_has_no_gradient():
    def mul(x, n):
        return x * n

    graph = chain(mul)
    x = np.array([1.0, 2.0])
    assert listed(graph([x, 3])) == [3.0, 6.0]
    assert listed(graph.backward(np.ones(2))) == [[3.0, 3.0], None]
    graph([x, np.array([1, 2])])
    assert listed(graph.backward(np.ones(2))) == [[1.0, 2.0], None]


def test_whole_numbers_alone_have_no_gradient_and_say_so():
    graph = chain(lambda n: n * 2)
    graph(np.array([1, 2]))
    with pytest.raises(AutoDiffException, match="no gradient with respect to int64"):
        graph.backward(np.array([1, 1]))


def test_whole_numbers_may_be_indices():
    table = Embedder(4, 2, name="table").calcMode("float64")
    graph = chain(table)
    graph(np.array([1, 3, 1]))
    assert graph.backward(np.ones((3, 2))) is None
    assert listed(table.W.grad) == [[0, 0], [2, 2], [0, 0], [1, 1]]

    def take(x, i):
        return x[i]

    graph = chain(take)
    graph(np.array([1.0, 2.0, 3.0]), np.array([2, 2]))
    assert listed(graph.backward(np.ones(2))) == [[0.0, 0.0, 2.0], None]


def test_a_result_in_whole_numbers_has_no_gradient():
    graph = chain(lambda x: (np.argmax(x), 2 * x))
    assert listed(graph(np.array([1.0, 3.0]))) == [1, [2.0, 6.0]]
    assert listed(graph.backward([np.int64(1), np.ones(2)])) == [2.0, 2.0]


def test_arrays_and_flags_of_the_caller_stay():
    x, g = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    x.flags.writeable = g.flags.writeable = False
    graph = chain(lambda x: x * 2, lambda x: x)
    graph(x)
    found = graph.backward(g)
    assert listed(found) == [6.0, 8.0] and not np.shares_memory(found, g)
    assert listed(x) == [1.0, 2.0] and listed(g) == [3.0, 4.0] and not x.flags.writeable


def test_numbers_without_a_dtype_and_single_precision():
    graph = chain(lambda x: x * 3)
    assert graph(2.0) == 6.0 and graph.backward() == 3.0
    y = graph(np.ones(2, np.float32))
    assert y.dtype == np.float32 and graph.backward(np.ones(2, np.float32)).dtype == np.float32


def test_the_gradient_of_one_number_may_be_left_out():
    graph = chain(lambda x: np.sum(x * x))
    back = BackwardGraph().from_forward(graph)
    graph(np.array([1.0, 2.0]))
    assert listed(back()) == [2.0, 4.0]


# Errors --------------------------------------------------------------------------------------------------------------


def test_what_a_callable_raises_gains_its_place():
    def broken(x):
        return x @ np.ones((7, 7))

    graph = chain(broken)
    with pytest.raises(ValueError) as error:
        graph(np.ones((2, 3)))
    if sys.version_info >= (3, 11):
        assert "at 'broken' (function): given [(2, 3)]" in error.value.__notes__


def test_a_module_that_does_not_fit_is_named():
    graph = chain(Linear(3, 2, name="fc"))
    with pytest.raises(ValueError, match=r"at 'fc' \(Linear\): wanted \(..., 3\), got"):
        graph(np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match="wanted x, got 2 by position"):
        graph(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))


def test_a_callable_that_leaves_the_tape_says_so():
    graph = chain(lambda x: np.asarray(x.data) * 2)
    graph(np.ones(2))
    with pytest.raises(AutoDiffException, match="'lambda'.*"):
        graph.backward(np.ones(2))


def arrays_only(x):
    if not isinstance(x, np.ndarray):
        raise TypeError("arrays only")
    return np.round(x)


def test_a_callable_that_cannot_be_recorded_runs_and_may_be_passed_by():
    double = np.array(2.0)
    graph = chain(times := lambda x: x * double, arrays_only)
    assert listed(graph(np.array([0.2, 0.4]))) == [0.0, 1.0]
    with pytest.raises(AutoDiffException, match=r"at 'arrays_only' .*could not be recorded \(arrays only\): compute"):
        graph.backward(np.ones(2))
    back = BackwardGraph(graph.graph_state).add_connection(graph.OUTPUT, times, graph.INPUT)
    assert listed(back(np.ones(2))) == [2.0, 2.0]
    with pytest.raises(TypeError, match="arrays only"):
        chain(arrays_only)([[1.0]])


# Depth ---------------------------------------------------------------------------------------------------------------


def test_five_thousand_nodes_deep():
    script = """
        import copy, pickle, sys
        from puregraph.compat.analog.forwardgraph import ForwardGraph
        sys.setrecursionlimit(200)
        graph = ForwardGraph()
        graph.add_connection(graph.INPUT, *[lambda x: x + 1 for _ in range(5_000)], graph.OUTPUT)
        assert graph(0.0) == 5_000.0
        assert graph.backward(1.0) == 1.0
        assert len(str(graph.backward_graph).splitlines()) > 5_000
        assert len(graph.backward_graph.dot().splitlines()) > 10_000
        twin = copy.deepcopy(graph)
        repr(twin), repr(twin.plan)
        assert twin(1.0) == 5_001.0 and twin.backward(1.0) == 1.0
        del graph, twin
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr[-2000:]


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_nodes_of_a_puregraph_graph_deep(count):
    script = f"""
        import sys
        import numpy as np
        from puregraph import Graph
        from puregraph.autodiff import BackwardGraph
        from puregraph.graph.input import Input
        from puregraph.modules import Add, Identity
        sys.setrecursionlimit(200)
        first = last = Input(name="x").node()
        for i in range({count}):
            last = Identity().node(last) if i % 10 else Add().node(last, first)
        graph = Graph(first, last)
        back = BackwardGraph().from_forward(graph).compile()
        graph(np.zeros(2))
        assert back(np.ones(2)).tolist() == [{count // 10 + 1}.0] * 2
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_a_graph_is_pickled():
    graph = chain(np.tanh, Occurrence(np.tanh, "again"))
    twin = pickle.loads(pickle.dumps(graph))
    assert twin(0.5) == graph(0.5)
    assert twin.backward(1.0) == graph.backward(1.0)


# Modules among callables ---------------------------------------------------------------------------------------------


def test_a_module_takes_inputs_by_name():
    graph = ForwardGraph()
    sub = Sub(name="sub")
    first, second = sub.arguments
    graph.add_edge(graph.INPUT, sub, in_arg=0, out_kwarg=second)
    graph.add_edge(graph.INPUT, sub, in_arg=1, out_kwarg=first)
    graph.add_connection(sub, graph.OUTPUT)
    assert listed(graph(np.array([1.0]), np.array([5.0]))) == [4.0]
    assert listed(graph.backward(np.array([1.0]))) == [[-1.0], [1.0]]


def test_a_model_is_called_like_its_graph():
    model = ModelGraph()
    add = Add(name="add")
    model.forward_graph.add_connection(model.INPUT, add, model.OUTPUT)
    model.compile(auto_backward_graph=True)
    assert listed(model(np.ones(2), np.ones(2))) == [2.0, 2.0]
    assert listed(model.inputs.args) == [[1.0, 1.0], [1.0, 1.0]] and listed(model.outputs.args) == [[2.0, 2.0]]
    assert listed(model.backward(np.ones(2))) == [[1.0, 1.0], [1.0, 1.0]]
    assert model.inputs is None and not model.ready_for_backward()
