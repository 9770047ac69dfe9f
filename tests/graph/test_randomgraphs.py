"""10,000 random graphs: shapes ahead of time are those of execution, gradients those of finite differences."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from randomgraphs import faultyGraph, randomGraph

from puregraph.errors import ShapeError

SEEDS = st.integers(0, 2**63)
PARTS = 4
many = settings(max_examples=2_500, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.costly
@pytest.mark.parametrize("part", range(PARTS))
def test_shapes_and_gradients_known_ahead_are_those_of_execution(part):
    @many
    @given(SEEDS)
    def check(seed):
        rng = random.Random(f"{part} {seed}")
        graph, shapes, wanted = randomGraph(rng)
        said = graph.dataShapeFrom(list(shapes))
        said = said if isinstance(said, list) else [said]
        assert said == wanted
        numbers = np.random.default_rng(seed % 2**32)
        data = [numbers.standard_normal(s) for s in shapes]
        first = graph(data)
        outputs = first if isinstance(first, list) else [first]
        assert [y.shape for y in outputs] == wanted
        seeds = [numbers.standard_normal(y.shape) for y in outputs]
        graph.backward(seeds if len(seeds) > 1 else seeds[0])
        grads = graph.grad if isinstance(graph.grad, list) else [graph.grad]
        kept = graph.gradShapeFrom(said if len(said) > 1 else said[0])
        kept = kept if isinstance(kept, list) else [kept]
        assert [None if g is None else g.shape for g in grads] == [
            None if g is None else s for g, s in zip(grads, kept, strict=True)
        ]
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
            result = graph(moved)
            result = result if isinstance(result, list) else [result]
            return sum(float(np.sum(g * y)) for g, y in zip(seeds, result, strict=True))

        step = 1e-5
        numeric = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
        assert abs(analytic - numeric) <= 1e-6 * max(1.0, abs(numeric), abs(loss(0)))

    check()


@pytest.mark.costly
@pytest.mark.parametrize("part", range(PARTS))
def test_a_faulty_graph_is_refused_ahead_with_the_right_node_named(part):
    @many
    @given(SEEDS)
    def check(seed):
        graph, shapes, path = faultyGraph(random.Random(f"{part} {seed}"))
        with pytest.raises(ShapeError) as error:
            graph.dataShapeFrom(list(shapes))
        assert [f.path for f in error.value.faults] == [path]
        fault = error.value.faults[0]
        assert fault.wanted and fault.given and fault.source

    check()
