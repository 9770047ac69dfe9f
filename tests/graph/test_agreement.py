"""One backward pass, however it is built: on more than 2,000 random graphs all ways agree to the last bit."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import randomGraph

from puregraph.autodiff import BackwardGraph, Variable, add_backward_pass, backward

SEEDS = st.integers(0, 2**63)
PARTS = [(0, 80), *[pytest.param(part, 320, marks=pytest.mark.slow) for part in range(8)]]


def drawn(part, seed):
    """A random graph, data for its inputs, and a gradient, or None, for each of its outputs."""
    graph, shapes, wanted = randomGraph(random.Random(f"{part} {seed}"))
    numbers = np.random.default_rng(seed % 2**32)
    data = [numbers.standard_normal(s) for s in shapes]
    grads = [numbers.standard_normal(s) if numbers.random() < 0.8 else None for s in wanted]
    if all(g is None for g in grads):
        grads[-1] = numbers.standard_normal(wanted[-1])
    return graph, data, grads


def listed(value):
    return value if isinstance(value, list) else [value]


def byGraph(graph, data, grads):
    """Gradients of the inputs and of the parameters, by Graph.backward."""
    graph(data)
    graph.backward(grads if len(grads) > 1 else grads[0])
    return [*listed(graph.grad), *taken(graph)]


def taken(graph):
    """The gradients of the parameters, which are forgotten."""
    found = [p.grad for p in graph.params.values()]
    for p in graph.params.values():
        p.grad = None
    return found


def byObject(graph, data, grads):
    """The same pass as the object that the graph runs."""
    graph(data)
    inputs, params = graph.backwardGraph().gradients(grads, graph.last.values)
    known = {id(p): g for p, g in params}
    return [*inputs, *(known.get(id(p)) for p in graph.params.values())]


def byBackwardGraph(static):
    """A backward graph made from the forward one, edge by edge."""

    def run(graph, data, grads):
        graph(data)
        found = BackwardGraph().from_forward(graph).compile(is_static=static).calculate(*grads)
        return [*listed(found), *taken(graph)]

    return run


def byTape(graph, data, grads):
    """What running the graph on Variables leaves."""
    leaves = [Variable(x, requires_grad=True) for x in data]
    outputs = listed(graph(leaves))
    pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if g is not None and y.requires_grad]
    if pairs:
        backward([y for y, _ in pairs], [g for _, g in pairs])
    return [*(v.grad for v in leaves), *taken(graph)]


def byJointGraph(strategy):
    """Gradients as outputs of one graph made ahead of time."""

    def run(graph, data, grads, wanted):
        outputs = [edge for edge, g in zip(graph.outputs, grads, strict=True) if g is not None]
        inputs = [name for name, g in zip([*graph.arguments, *graph.params], wanted, strict=True) if g is not None]
        joint = add_backward_pass(graph, outputs, inputs, data_forwarding_strategy=strategy)
        found = listed(joint(*data, *(g for g in grads if g is not None)))[-len(inputs) :]
        gradient = dict(zip(inputs, found, strict=True))
        return [gradient.get(name) for name in [*graph.arguments, *graph.params]]

    return run


def same(a, b):
    """Whether two gradients are equal to the last bit; None is none."""
    return a is b if a is None or b is None else (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.costly
@pytest.mark.parametrize(("part", "count"), PARTS)
def test_all_ways_to_build_a_backward_pass_agree_bit_for_bit(part, count):
    ways = {
        "the object": byObject,
        "a static backward graph": byBackwardGraph(True),
        "a dynamic backward graph": byBackwardGraph(False),
        "the tape": byTape,
    }

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(SEEDS)
    def check(seed):
        graph, data, grads = drawn(part, seed)
        wanted = byGraph(graph, data, grads)
        taken(graph)
        for name, way in ways.items():
            found = way(graph, data, grads)
            assert len(found) == len(wanted)
            assert all(map(same, found, wanted)), f"{name} gives other gradients than Graph.backward"
        numbers = [n for n, g in zip(graph.steps().outputs, grads, strict=True) if g is not None]
        if any(g is not None for g in wanted) and len(set(numbers)) == len(numbers):
            strategy = ("store_all", "recompute_all")[seed % 2]
            found = byJointGraph(strategy)(graph, data, grads, wanted)
            assert all(map(same, found, wanted)), f"add_backward_pass ({strategy}) gives other gradients"

    check()
