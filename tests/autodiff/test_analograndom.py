"""A BackwardGraph made from a random graph gives what Graph.backward gives, bit for bit, static and dynamic."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import randomGraph

from puregraph.autodiff import BackwardGraph
from puregraph.compat.analog.forwardgraph import ForwardGraph
from puregraph.compat.analog.occurrence import Occurrence

SEEDS = st.integers(0, 2**63)
many = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def same(a, b):
    """Whether two gradients, or lists of them, are equal to the last bit."""
    if isinstance(a, list) or isinstance(b, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def example(seed, part):
    """A random graph that has run forward, seeds for its outputs, and gradients as Graph.backward finds them."""
    graph, shapes, _ = randomGraph(random.Random(f"{part} {seed}"))
    numbers = np.random.default_rng(seed % 2**32)
    data = [numbers.standard_normal(s) for s in shapes]
    result = graph(data)
    outputs = result if isinstance(result, list) else [result]
    seeds = [numbers.standard_normal(y.shape) if numbers.random() < 0.8 else None for y in outputs]
    if all(g is None for g in seeds):
        seeds[0] = numbers.standard_normal(outputs[0].shape)
    graph.backward(seeds if len(seeds) > 1 else seeds[0])
    params = list(graph.params.values())
    wanted = graph.grad, [p.grad for p in params]
    for p in params:
        p.grad = None
    return graph, data, seeds, params, wanted


@pytest.mark.costly
@pytest.mark.parametrize("static", [True, False])
def test_a_backward_graph_agrees_with_the_graph_bit_for_bit(static):
    @many
    @given(SEEDS)
    def check(seed):
        graph, data, seeds, params, (grad, paramGrads) = example(seed, static)
        kept = [None if g is None else g.copy() for g in (*seeds, *data)]
        back = BackwardGraph().from_forward(graph).compile(is_static=static)
        found = back.calculate(*seeds, retain_graph=True)
        assert same(found, grad)
        assert same([p.grad for p in params], paramGrads)
        assert same([*seeds, *data], kept)
        again = back(seeds)
        assert same(again, grad)
        assert same([p.grad for p in params], [None if g is None else g + g for g in paramGrads])

    check()


def written(graph):
    """The same graph as a ForwardGraph, an edge for each argument."""
    steps, made = graph.steps(), ForwardGraph()
    maker = {n: (made.INPUT, i) for i, n in enumerate(steps.inputs)}
    made.add_node(made.INPUT)
    for step in steps.items:
        node = made.add_node(Occurrence(step.module, step.path))
        for argument, number in enumerate(step.args[: step.inputs]):
            source, slot = maker[number]
            made.add_edge(source, node, in_arg=slot, out_arg=argument)
        maker.update({n: (node, slot) for slot, n in enumerate(step.visible)})
    for place, number in enumerate(steps.outputs):
        source, slot = maker[number]
        made.add_edge(source, made.OUTPUT, in_arg=slot, out_arg=place)
    return made


def by_hand(forward):
    """Its backward graph without accumulators: one connection for each pair of nodes."""
    back = BackwardGraph(forward.graph_state)
    for target, edges in forward.incoming.items():
        for edge in edges:
            back.add_connection(target, edge.source)
    return back


@pytest.mark.costly
@pytest.mark.parametrize("how", ["turned", "nested", "networkx", "by hand", "dynamic", "tape"])
def test_a_graph_of_callables_agrees_with_the_graph_bit_for_bit(how):
    if how == "networkx":
        pytest.importorskip("networkx")

    @settings(many, max_examples=100)
    @given(SEEDS)
    def check(seed):
        graph, data, seeds, params, (grad, paramGrads) = example(seed, how)
        forward = written(graph)
        back = by_hand(forward) if how == "by hand" else None
        if how == "nested":
            outer = ForwardGraph()
            outer.add_connection(outer.INPUT, forward, outer.OUTPUT)
            forward = outer
        if how == "networkx":
            forward = ForwardGraph().from_networkx(forward.graph)
        back = back or BackwardGraph().from_forward(forward)
        for made in (forward, back):
            made.compile(is_static=how != "dynamic")
        forward.graph_state.use_autograd_graph = how == "tape"
        forward(data)
        found = back.calculate(*seeds)
        assert same(found, grad if back.INPUT in back else None)
        assert same([p.grad for p in params], paramGrads)

    check()
