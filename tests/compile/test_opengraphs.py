"""Random graphs whose batches vary: programs from open steps compute the bits of programs for each size."""

import random
import warnings

import numpy as np
import pytest
from graphcompare import Comparison, listed
from graphgrammar import RULES, randomSpec
from natively import needsNative
from test_opensteps import counts  # noqa: F401  a fixture

from puregraph.compile import Program, Programs
from puregraph.core.errors import PuregraphError

pytestmark = needsNative
SIZES = [1, 2, 3, 5, 7, 8, 11, 13, 24, 33, 64, 65]
KINDS = ({}, {"isDiscrete": True}, {"isWide": True})
GRAPHS = 12  # of a kind


def resized(rng, x, batch, n):
    """n rows like those of an array with a batch; others as they are."""
    if x.ndim == 0 or x.shape[0] != batch:
        return x
    rows = x[rng.integers(0, batch, n)]
    noise = 0.1 * rng.standard_normal(rows.shape) if x.dtype.kind == "f" else 0
    return np.ascontiguousarray((rows + noise).astype(x.dtype))


class Varying:
    """A random graph that runs with batches of several sizes."""

    def __init__(self, seed, **kind):
        self.spec = randomSpec(seed, **kind)
        self.comparison, self.dtype = Comparison(self.spec, RULES), np.dtype(self.spec.dtype)
        shapes = [self.spec.lines[i].shape for i in self.spec.sources]
        self.batch = next((shape[0] for shape in shapes if shape), 0)
        self.sizes = random.Random(seed).sample(SIZES, len(SIZES))

    def results(self, isFresh):
        """All outputs, gradients, parameters and states after each size."""
        graph, optimizer = self.comparison.graph(self.dtype)
        rng, programs, made = np.random.default_rng(self.spec.seed + 1), Programs(graph), []
        data = self.comparison.given(0, self.dtype)[0]
        for n in self.sizes:
            arrays = [resized(rng, x, self.batch, n) for x in data]
            shapes = graph.dataShapeFrom(*[x.shape for x in arrays])
            shapes = shapes if isinstance(shapes, list) else [shapes]
            pairs = zip(shapes, self.spec.given, strict=False)
            seeds = [rng.standard_normal(shape).astype(self.dtype) for shape, isGiven in pairs if isGiven]
            options = {"grads": self.spec.given} if seeds else {}
            options |= {"optimizer": optimizer} if optimizer else {}
            for param in graph.params.values():
                param.grad = None
            if isFresh:
                program = Program(graph, [x.shape for x in arrays], [x.dtype for x in arrays], **options)
            else:
                program = programs.get(arrays, isAlways=True, **options)
            made += map(np.array, listed(program.run(*arrays, *seeds)))
            made += [np.array(g) for g in listed(program.grad) if g is not None] if seeds else []
            made += [np.array(stored.data) for stored in (*graph.params.values(), *graph.states.values())]
        return made


def compareGraphs(first, number, kind):
    """Compare some graphs; returns how many of them ran."""
    compared = 0
    for seed in range(first, first + number):
        varying = Varying(seed, **kind)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                wanted = varying.results(True) if varying.batch else None
            except (PuregraphError, ValueError, IndexError):  # a rule that refuses other sizes, or data
                continue
            if wanted is None:
                continue
            for result, other in zip(varying.results(False), wanted, strict=True):
                isSame = result.dtype == other.dtype and result.shape == other.shape
                assert isSame and result.tobytes() == other.tobytes(), (seed, kind, varying.sizes)
        compared += 1
    return compared


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "discrete", "wide"])
def test_random_graphs_compute_the_same_bits_for_sizes_in_turn(kind, counts):  # noqa: F811
    assert compareGraphs(0, GRAPHS, kind) >= GRAPHS // 3
    assert counts["open"] >= 12, counts


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("kind", KINDS, ids=["plain", "discrete", "wide"])
def test_many_random_graphs_compute_the_same_bits_for_sizes_in_turn(kind, part):
    compareGraphs(1000 + 60 * part, 60, kind)
