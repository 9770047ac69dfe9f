"""Which of a producer's values goes where in its consumer's call."""

import numpy as np
import pytest

from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.structure.acyclic import AcyclicDirectedGraph
from puregraph.compat.analog.structure.edges import Edge, check_edge_parameters

ALL = {"in_arg": True, "in_kwarg": True, "out_arg": True, "out_kwarg": True}


def filled(**given):
    return {**dict.fromkeys(ALL), **given}


@pytest.mark.parametrize(
    ("given", "wanted", "label"),
    [
        ({}, ALL, "* -> *"),
        ({"in_arg": True}, filled(in_arg=True, out_arg=True), "[] -> []"),
        ({"out_arg": True}, filled(in_arg=True, out_arg=True), "[] -> []"),
        ({"in_kwarg": True}, filled(in_kwarg=True, out_kwarg=True), "{} -> {}"),
        ({"out_kwarg": True}, filled(in_kwarg=True, out_kwarg=True), "{} -> {}"),
        ({"in_kwarg": True, "out_arg": True}, filled(in_kwarg=True, out_arg=True), "{} -> []"),
        ({"in_arg": 2}, filled(in_arg=2, out_arg=True), "[2] -> []"),
        ({"out_arg": 3}, filled(in_arg=0, out_arg=3), "[0] -> [3]"),
        ({"out_kwarg": "z"}, filled(in_arg=0, out_kwarg="z"), "[0] -> {z}"),
        ({"in_kwarg": "k"}, filled(in_kwarg="k", out_kwarg="k"), "{k} -> {k}"),
        ({"in_arg": 1, "out_arg": 2}, filled(in_arg=1, out_arg=2), "[1] -> [2]"),
        ({"in_arg": 1, "out_kwarg": "k"}, filled(in_arg=1, out_kwarg="k"), "[1] -> {k}"),
        ({"in_kwarg": "k", "out_arg": True}, filled(in_kwarg="k", out_arg=True), "{k} -> []"),
        ({"in_kwarg": "k", "out_arg": 2}, filled(in_kwarg="k", out_arg=2), "{k} -> [2]"),
        ({"in_kwarg": "k", "out_kwarg": "l"}, filled(in_kwarg="k", out_kwarg="l"), "{k} -> {l}"),
    ],
)
def test_parameters_are_completed(given, wanted, label):
    assert check_edge_parameters(**given) == wanted
    assert AcyclicDirectedGraph.check_edge_parameters(**given) == wanted
    assert Edge("a", "b", **wanted).label == label
    assert check_edge_parameters(**wanted) == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"in_arg": 0, "in_kwarg": "k"}, "either in_arg or in_kwarg"),
        ({"out_arg": 0, "out_kwarg": "k"}, "either out_arg or out_kwarg"),
        ({"in_arg": True, "out_kwarg": True}, "positions as names"),
        ({"in_arg": True, "out_arg": 1}, "all on one side"),
        ({"in_arg": True, "out_kwarg": "k"}, "all on one side"),
        ({"in_kwarg": True, "out_arg": 1}, "all on one side"),
        ({"in_kwarg": True, "out_kwarg": "k"}, "all on one side"),
        ({"in_arg": 0, "out_kwarg": True}, "all on one side"),
        ({"in_kwarg": "k", "out_kwarg": True}, "all on one side"),
        ({"in_arg": -1}, "in_arg wanted a position"),
        ({"out_arg": -2}, "out_arg wanted a position"),
        ({"in_arg": 1.0}, "got 1.0"),
        ({"in_arg": "k"}, "got 'k'"),
        ({"in_arg": False}, "got False"),
        ({"out_arg": False}, "got False"),
        ({"in_kwarg": 0}, "in_kwarg wanted a keyword"),
        ({"out_kwarg": 3}, "out_kwarg wanted a keyword"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        check_edge_parameters(**given)


class Call:
    """A node that notes what it was called with."""

    def __init__(self, result=None):
        self.result = result

    def __call__(self, *args, **kwargs):
        self.called = args, kwargs
        return args if self.result is None else self.result

    def backward(self, *grads, **named):
        return grads


def called(build, *inputs, **named):
    """What a node `d` is called with in a graph that `build` adds edges to."""
    graph, d = ForwardGraph(), Call()
    build(graph, d)
    graph.add_edge(d, graph.OUTPUT)
    graph(*inputs, **named)
    return d.called


def test_numbered_slots_come_first_and_the_others_in_the_order_of_their_edges():
    p = Call((10,))

    def build(graph, d):
        graph.add_connection(graph.INPUT, p)
        graph.add_edge(graph.INPUT, d)
        graph.add_edge(p, d, in_arg=0, out_arg=1)

    assert called(build, 1) == ((10, 1), {})


def test_gaps_between_numbered_slots_are_closed():
    def build(graph, d):
        graph.add_edge(graph.INPUT, d, in_arg=0, out_arg=7)
        graph.add_edge(graph.INPUT, d, in_arg=1, out_arg=2)

    assert called(build, 1, 2) == ((2, 1), {})


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, ((1, 2), {"a": 3, "b": 4})),
        ({"in_arg": True}, ((1, 2), {})),
        ({"in_kwarg": True}, ((), {"a": 3, "b": 4})),
        ({"in_kwarg": True, "out_arg": True}, ((3, 4), {})),
        ({"in_arg": 1}, ((2,), {})),
        ({"out_arg": 1}, ((1,), {})),
        ({"out_kwarg": "z"}, ((), {"z": 1})),
        ({"in_kwarg": "b"}, ((), {"b": 4})),
        ({"in_arg": 1, "out_kwarg": "k"}, ((), {"k": 2})),
        ({"in_kwarg": "a", "out_arg": True}, ((3,), {})),
        ({"in_kwarg": "a", "out_arg": 4}, ((3,), {})),
        ({"in_kwarg": "a", "out_kwarg": "c"}, ((), {"c": 3})),
    ],
)
def test_what_each_kind_of_edge_carries(parameters, wanted):
    def build(graph, d):
        graph.add_edge(graph.INPUT, d, **parameters)

    assert called(build, 1, 2, a=3, b=4) == wanted


def test_two_values_of_one_producer_both_arrive():
    def build(graph, d):
        graph.add_edge(graph.INPUT, d, in_arg=0)
        graph.add_edge(graph.INPUT, d, in_arg=1)

    assert called(build, 1, 2) == ((1, 2), {})


def test_position_one_and_all_positions_are_different_slots():
    def build(graph, d):
        graph.add_edge(graph.INPUT, d, in_arg=0, out_arg=1)
        graph.add_edge(graph.INPUT, d, out_arg=True)

    assert called(build, 5) == ((5, 5), {})


def test_an_edge_is_not_doubled_and_a_new_source_for_a_slot_replaces_the_old():
    def build(graph, d):
        for _ in range(2):
            graph.add_edge(graph.INPUT, d, in_arg=0, out_arg=0)
        graph.add_edge(graph.INPUT, d, in_arg=1, out_arg=1)
        graph.add_edge(graph.INPUT, d, in_arg=2, out_arg=1)
        graph.add_connection(graph.INPUT, d)
        graph.add_connection(graph.INPUT, d)

    assert called(build, 1, 2, 3) == ((1, 3, 1, 2, 3), {})


@pytest.mark.parametrize(("slot", "shown"), [({"out_arg": 0}, r"\[0\]"), ({"out_kwarg": "a"}, r"\{a\}")])
def test_two_producers_of_one_slot_are_refused(slot, shown):
    graph, p, q, d = ForwardGraph(), Call((1,)), Call((2,)), Call()
    graph.add_node(p, "p")
    graph.add_node(q, "q")
    graph.add_node(d, "d")
    graph.add_edge(p, d, **slot)
    with pytest.raises(ValueError, match=f"'d' gets {shown} from 'p' already, and not from 'q' too"):
        graph.add_edge(q, d, **slot)
    assert len(graph.edges_between(p, d)) == 1


def test_two_producers_of_one_keyword_are_refused_when_it_shows():
    graph, p, q, d = ForwardGraph(), Call({"a": 1}), Call({"a": 2}), Call()
    for node, name in ((p, "p"), (q, "q"), (d, "d")):
        graph.add_node(node, name)
        if node is not d:
            graph.add_connection(graph.INPUT, node, d)
    graph.add_connection(d, graph.OUTPUT)
    with pytest.raises(ValueError, match=r"at 'd' \(Call\): 'a' comes from both 'p' and 'q'"):
        graph(0)


def test_a_value_that_is_not_there_is_named():
    graph, d = ForwardGraph(), Call()
    graph.add_node(d, "d")
    graph.add_edge(graph.INPUT, d, in_arg=3)
    graph.add_connection(d, graph.OUTPUT)
    with pytest.raises(ValueError, match=r"from 'INPUT' to 'd' takes 3, but 'INPUT' gave 1 value"):
        graph(0)


def test_nothing_goes_into_input_or_comes_out_of_output():
    graph, d = ForwardGraph(), Call()
    with pytest.raises(ValueError, match="nothing goes into INPUT"):
        graph.add_edge(d, graph.INPUT)
    with pytest.raises(ValueError, match="nothing comes out of OUTPUT"):
        graph.add_edge(graph.OUTPUT, d)


@pytest.mark.parametrize("node", [3, None, [], "fc"])
def test_what_cannot_be_a_node_is_refused(node):
    graph = ForwardGraph()
    with pytest.raises(ValueError, match=r"wanted something to call|known by its hash|has no node .fc."):
        graph.add_edge(graph.INPUT, node)


@pytest.mark.parametrize(
    ("result", "args", "kwargs"),
    [
        (3, [3], {}),
        ((1, 2), [1, 2], {}),
        ([1, 2], [1, 2], {}),
        ({"a": 1}, [], {"a": 1}),
        (([1, 2], {"a": 3}), [1, 2], {"a": 3}),
        ((1, {"a": 3}), [1], {"a": 3}),
        (None, [], {}),
        (ArgsKwargs([1], {"a": 2}), [1], {"a": 2}),
    ],
)
def test_results_become_args_and_kwargs(result, args, kwargs):
    found = ArgsKwargs.to_args_kwargs_object(result)
    assert (found.args, found.kwargs) == (args, kwargs)


def test_args_and_kwargs_become_results():
    assert ArgsKwargs.from_args_kwargs_object(ArgsKwargs([4])) == 4
    assert ArgsKwargs.from_args_kwargs_object(ArgsKwargs([4, 5])) == [4, 5]
    assert ArgsKwargs.from_args_kwargs_object(ArgsKwargs()) is None
    named = ArgsKwargs([4], {"a": 1})
    assert ArgsKwargs.from_args_kwargs_object(named) is named
    assert repr(InputOutput(named, ArgsKwargs(3))) == "InputOutput(ArgsKwargs(4, a=1) -> ArgsKwargs(3))"
    x = np.ones(3)
    assert ArgsKwargs(x).args[0] is x
