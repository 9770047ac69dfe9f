"""Every native kernel inside guard bands, at sizes that no kernel was tuned for and for vectors of every width."""

import os

import numpy as np
import pytest
from guardcases import KINDS, drawn
from natively import needsNative
from publishedlayers import layersOf

from puregraph import Conv2D, GroupNorm, Relu, Sequential
from puregraph.compile.lower import nestcache
from puregraph.compile.program import Program
from puregraph.compile.runtime.guardbands import GuardBands
from puregraph.core import initial
from puregraph.ops.native.llvm import jit

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


def check(net, inputs, seed=0):
    """Run a graph forward and backward, compiled and by itself, and compare; then the program that packs its weights."""
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
    check(*drawn(kind, 0))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_stay_inside_their_buffers_at_many_sizes(kind, lanes, guarded):
    """PUREGRAPH_TEST_GUARDED sets how many of each kind and width, PUREGRAPH_TEST_FIRST the first seed."""
    guarded(lanes)
    for seed in range(START, START + COUNT):
        try:
            check(*drawn(kind, seed), seed)
        except Exception as error:
            raise AssertionError(f"{kind}, seed {seed}, {lanes} lanes: {error}") from error


def checkLayer(layer, batch):
    """Check a published layer, with a norm behind it as it has in its network."""
    initial.seed(0)
    x = np.random.default_rng(0).standard_normal((batch, layer.inputs, layer.side, layer.side)).astype(np.float32)
    options = {"pad": layer.size // 2, "stride": layer.stride, "groups": layer.groups, "useBias": False}
    conv = Conv2D(layer.inputs, layer.outputs, layer.size, **options)
    check(Sequential(conv, GroupNorm(1, layer.outputs), Relu()), [x])


@pytest.mark.parametrize("lanes", [8, 16])
def test_small_published_layers_compiled_are_those_of_the_graph(lanes, guarded):
    guarded(lanes)
    small = [layer for layer in layersOf(224) if layer.side <= 14 and layer.outputs % 16 and layer.outputs < 250]
    for layer in small[::6]:
        checkLayer(layer, batch=2)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("side", [224, 160])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_published_layer_compiled_is_that_of_the_graph(lanes, side, guarded):
    guarded(lanes)
    for layer in layersOf(side):
        try:
            checkLayer(layer, batch=1 if layer.side > 28 else 2)
        except Exception as error:
            raise AssertionError(f"{layer}, {lanes} lanes: {error}") from error
