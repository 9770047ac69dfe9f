"""Every native kernel inside guard bands, at sizes that no kernel was tuned for and for vectors of every width."""

import os

import numpy as np
import pytest
from guardcases import KINDS, drawn
from natively import needsNative

from puregraph.compile.lower import nestcache
from puregraph.compile.program import Program
from puregraph.compile.runtime.guardbands import GuardBands
from puregraph.native.llvm import jit

COUNT = int(os.environ.get("PUREGRAPH_TEST_GUARDED", "30"))  # of each kind and width in the slow test
START = int(os.environ.get("PUREGRAPH_TEST_FIRST", "1"))
TOLERANCE = 2e-4  # of the largest element, between sums of float32 in different orders

pytestmark = [needsNative, pytest.mark.usefixtures("quickly")]


@pytest.fixture
def guarded(monkeypatch):
    """Programs for vectors of some lanes, whose kernels run inside guard bands: LLVM splits vectors that are too wide."""
    target = jit.target()

    def use(lanes):
        nestcache.template.cache_clear()
        monkeypatch.setattr(jit, "target", lambda: target._replace(bits=32 * lanes))

    monkeypatch.setattr(Program, "observer", GuardBands())
    yield use
    nestcache.template.cache_clear()


def listed(values):
    """One value or several as a list."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def gradientsOf(owner, net):
    """Copies of the gradients of the inputs, which a graph or a program has, and of the parameters."""
    return [g.copy() for g in (*listed(owner.grad), *(p.grad for p in net.params.values())) if g is not None]


def check(kind, seed):
    """Run a graph forward and backward, compiled and by itself, and compare; then the program that packs its weights."""
    net, inputs = drawn(kind, seed)
    net.trainMode()
    outputs = listed(net(inputs if len(inputs) > 1 else inputs[0]))
    rng = np.random.default_rng(seed)
    grads = [rng.standard_normal(y.shape).astype(np.float32) for y in outputs]
    net.backward(grads if len(grads) > 1 else grads[0])
    eager = [*outputs, *gradientsOf(net, net)]
    shapes, dtypes = [x.shape for x in inputs], [x.dtype for x in inputs]
    program = Program(net, shapes, dtypes, grads=(True,) * len(outputs))
    compiled = [*listed(program.run(*inputs, *grads)), *gradientsOf(program, net)]
    assert program.why == "" and len(compiled) == len(eager)
    for a, b in zip(compiled, eager):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * max(1, np.abs(b).max(initial=0)))
    net.evalMode()
    Program(net, shapes, dtypes).run(*inputs)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_stay_inside_their_buffers_at_any_size(kind, lanes, guarded):
    guarded(lanes)
    check(kind, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_stay_inside_their_buffers_at_many_sizes(kind, lanes, guarded):
    """PUREGRAPH_TEST_GUARDED sets how many of each kind and width, PUREGRAPH_TEST_FIRST the first seed."""
    guarded(lanes)
    for seed in range(START, START + COUNT):
        try:
            check(kind, seed)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}, {lanes} lanes: {error}") from error
