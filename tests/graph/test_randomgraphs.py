"""Random graphs: shapes ahead of time are those of execution, gradients those of finite differences."""

import random

import numpy as np
import pytest
from randomgraphs import faultyGraph, randomGraph

from puregraph.core.errors import ShapeError

EVERYDAY, EACH = range(300), 1_250
PARTS = [(0, EVERYDAY), *[pytest.param(part, range(EACH), marks=pytest.mark.slow) for part in range(8)]]


@pytest.mark.costly
@pytest.mark.parametrize(("part", "seeds"), PARTS)
def test_shapes_and_gradients_known_ahead_are_those_of_execution(part, seeds):
    for seed in seeds:
        compare(part, seed)


def compare(part, seed):
    """One graph: its shapes ahead of time and its gradients."""
    numbers = np.random.default_rng([part, seed])
    graph, shapes, wanted = randomGraph(random.Random(f"{part} {seed}"))
    said = listed(graph.dataShapeFrom(list(shapes)))
    assert said == wanted, (part, seed)
    data = [numbers.standard_normal(s) for s in shapes]
    outputs = listed(graph(data))
    assert [y.shape for y in outputs] == wanted, (part, seed)
    seeds = [numbers.standard_normal(y.shape) for y in outputs]
    graph.backward(seeds if len(seeds) > 1 else seeds[0])
    grads = listed(graph.grad)
    kept = listed(graph.gradShapeFrom(said if len(said) > 1 else said[0]))
    gradShapes = [None if g is None else g.shape for g in grads]
    assert gradShapes == [None if g is None else s for g, s in zip(grads, kept, strict=True)], (part, seed)
    params = list(graph.params.values())
    paramGrads = [p.grad for p in params]
    directions = [numbers.standard_normal(a.shape) for a in [*data, *[p.data for p in params]]]
    analytic = sum(
        float(np.sum(g * d)) for g, d in zip([*grads, *paramGrads], directions, strict=True) if g is not None
    )
    start = [p.data for p in params]

    def loss(step):
        for p, a, d in zip(params, start, directions[len(data) :], strict=True):
            p.data = a + step * d
        moved = [x + step * d for x, d in zip(data, directions, strict=False)]
        return sum(float(np.sum(g * y)) for g, y in zip(seeds, listed(graph(moved)), strict=True))

    step = 1e-5
    numeric = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
    assert abs(analytic - numeric) <= 1e-6 * max(1.0, abs(numeric), abs(loss(0))), (part, seed)


def listed(value):
    return value if isinstance(value, list) else [value]


@pytest.mark.costly
@pytest.mark.parametrize(("part", "seeds"), PARTS)
def test_a_faulty_graph_is_refused_ahead_with_the_right_node_named(part, seeds):
    for seed in seeds:
        graph, shapes, path = faultyGraph(random.Random(f"{part} {seed}"))
        with pytest.raises(ShapeError) as error:
            graph.dataShapeFrom(list(shapes))
        (fault,) = error.value.faults
        assert fault.path == path and fault.wanted and fault.given and fault.source, (part, seed)
