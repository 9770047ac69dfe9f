"""Eager passes in native code: large rules run compiled, and nothing that holds for numpy's rules changes."""

import copy
import pickle
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from processes import environment

from puregraph import (
    SGD,
    Adam,
    AdamW,
    BackwardGraph,
    BatchNorm,
    Conv2D,
    Embedder,
    Flatten,
    Linear,
    MaxPool2D,
    MomentumSGD,
    Relu,
    Sequential,
    SoftMax,
)
from puregraph.autodiff import Variable, detect_anomaly
from puregraph.compile import verify
from puregraph.compile.rules import rulecache
from puregraph.compile.rules.rulecache import CACHE, RuleCache
from puregraph.graph.rulecalls import NativeRules
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit

pytestmark = pytest.mark.skipif(not jit.available(), reason="native code needs llvmlite")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 3, 19, 21)).astype("f4")


@pytest.fixture
def cache(monkeypatch):
    """An empty cache that takes rules of any size."""
    fresh = RuleCache()
    monkeypatch.setattr(NativeRules, "cache", fresh)
    monkeypatch.setattr(NativeRules, "leastBytes", 0)
    return fresh


def network():
    layers = Conv2D(3, 8, 3, pad=1, name="conv"), BatchNorm(8, name="norm"), Relu(), MaxPool2D(2)
    return Sequential(*layers, Flatten(), Linear(8 * 9 * 10, 7, name="fc"))


def programsIn(cache):
    return [p for programs in cache.rules.values() for p in programs.values()]


@pytest.mark.parametrize("isTransposed", [False, True])
@pytest.mark.parametrize("shape", [(300,), (1, 300), (1, 1, 300), (2, 300)])
def test_a_vector_times_a_large_matrix_is_left_to_numpy(shape, isTransposed):
    """Both read the matrix once, and native code takes longer to start; two rows are worth it."""
    layer, cache = Linear(300, 400, transpose=isTransposed), RuleCache()
    W, b = layer.W.data, layer.b.data
    x = RNG.standard_normal(shape).astype("f4")
    y = cache.run(layer, [x, W, b])
    assert (y is None) == (shape != (2, 300))
    assert programsIn(cache) == [None] or y is not None
    np.testing.assert_allclose(layer(x), x @ layer.oriented(W) + b, rtol=1e-5, atol=1e-5)


def stepOf(net, x=X):
    y = net(x)
    net.backward(np.cos(np.arange(y.size, dtype=y.dtype)).reshape(y.shape))
    states = [s.data.copy() for s in net.states.values()]
    return [y, net.grad, *[p.grad for p in net.params.values()], *states]


def assertClose(actual, wanted):
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(b).max()))


def assertSame(actual, wanted):
    for a, b in zip(actual, wanted, strict=True):
        assert np.array_equal(a, b)


def test_a_pass_is_near_that_of_numpy_and_repeats_its_bits(cache):
    net = network()
    twin = copy.deepcopy(net)
    first, second = stepOf(copy.deepcopy(net)), stepOf(net)
    with useFast(False):
        wanted = stepOf(twin)
    assertSame(first, second)
    assertClose(first, wanted)
    assert sum(p is not None for p in programsIn(cache)) >= 8


def test_small_rules_keep_the_bits_of_numpy(cache, monkeypatch):
    monkeypatch.setattr(NativeRules, "leastBytes", X.nbytes * 100)
    net = network()
    twin = copy.deepcopy(net)
    with useFast(False):
        wanted = stepOf(twin)
    assertSame(stepOf(net), wanted)
    assert not cache.rules


def test_graphs_nodes_modules_and_tapes_give_the_same_bits(cache):
    layer, g = Linear(40, 30), RNG.standard_normal((50, 30)).astype("f4")
    x = RNG.standard_normal((50, 40)).astype("f4")
    net = Sequential(layer)
    y = net(x)
    net.backward(g)
    wanted = [y, net.grad, layer.W.grad.copy(), layer.b.grad.copy()]
    assertSame([BackwardGraph(net)(g)], [net.grad])
    alone = layer(x)
    layer.backward(g)
    assertSame([alone, layer.grad, layer.W.grad, layer.b.grad], wanted)
    node = layer.node()
    node.updateData(x)
    node.backward(g)
    assertSame([node.data, node.grad, layer.W.grad, layer.b.grad], wanted)
    layer.W.grad = layer.b.grad = None
    v = Variable(x, requires_grad=True)
    taped = layer(v)
    taped.backward(g)
    assertSame([taped.data, v.grad, layer.W.grad, layer.b.grad], wanted)


def test_results_are_ordinary_arrays_that_no_later_pass_changes(cache):
    net = Sequential(Conv2D(3, 40, 3), Relu())
    y = net(X)
    before = y.copy()
    assert y.base is None and y.flags.writeable
    net(2 * X)
    assert np.array_equal(y, before)
    assert not net.nodes[0].data.flags.writeable


def test_threads_get_the_results_of_one(cache):
    nets = [network() for _ in range(4)]
    wanted = [stepOf(copy.deepcopy(net)) for net in nets]
    found = [None] * 4

    def work(i):
        for _ in range(3):
            found[i] = stepOf(copy.deepcopy(nets[i]))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for a, b in zip(found, wanted):
        assertSame(a, b)


HASH = """
import sys; sys.path[:0] = sys.argv[1:]
import hashlib
import puregraph as pg
from puregraph.graph.rulecalls import NativeRules
NativeRules.leastBytes = 0
from test_eagerpasses import network, stepOf
pg.seed(3)
print(hashlib.blake2b(b"".join(a.tobytes() for a in stepOf(network()))).hexdigest())
"""


def test_any_number_of_threads_gives_the_same_bits():
    folders = __file__.rpartition("/")[0], __file__.rpartition("/graph/")[0] + "/lib"
    command = [sys.executable, "-c", HASH, *folders]
    found = [
        subprocess.run(command, env=environment(PUREGRAPH_THREADS=str(n)), capture_output=True, text=True, check=True)
        for n in (1, 2, 4)
    ]
    assert len({done.stdout for done in found}) == 1


def test_attributes_of_a_module_and_its_class_are_read_again(cache, monkeypatch):
    norm, x = BatchNorm(3), X
    norm(x)
    norm.epsilon = 100.0
    changed = norm(x)
    norm.evalMode()
    evaluated = norm(x)
    with useFast(False):
        assertClose([evaluated], [norm(x)])
        assertClose([changed], [norm.trainMode()(x)])
    assert not np.allclose(changed, evaluated)
    relu = Relu()
    relu(x)
    monkeypatch.setattr(Linear, "updateData", lambda self, x, W, b: x[:, :2])
    assert np.array_equal(Linear(5, 2)(np.ones((4, 5), "f4")), np.ones((4, 2)))


def test_rules_of_users_run_as_they_are(cache):
    class Noisy(Relu):
        calls = 0

        def updateData(self, x):
            Noisy.calls += 1
            return np.full_like(x, Noisy.calls)

    net = Sequential(Noisy())
    assert np.array_equal(net(X) + 1, net(X)) and Noisy.calls == 2 and not cache.rules


def test_modules_copy_and_pickle_as_before(cache):
    net = network()
    y = net(X)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert np.array_equal(twin.trainMode()(X), y)
    assert set(vars(net["conv"])) == set(vars(Conv2D(3, 8, 3, pad=1, name="conv")))


def test_errors_name_the_node_as_before(cache):
    net = Sequential(Embedder(10, 6, name="words"))
    assert net(np.arange(10)).shape == (10, 6)
    with pytest.raises(Exception, match="words"):
        net(np.array([3, 10]))


def test_numpy_settings_that_raise_are_followed(cache):
    layer, x = SoftMax(), np.full((4, 5), np.inf, "f4")
    with np.errstate(all="ignore"):
        layer(x)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        layer(x)


def test_anomalies_name_the_node(cache):
    net = network()
    net["fc"].W.data[0, 0] = np.nan
    with detect_anomaly(), pytest.raises(Exception, match="fc"):
        net(X)


def test_the_cache_is_bounded_and_keeps_its_decisions(cache, monkeypatch):
    monkeypatch.setattr(rulecache, "MAX_RULES", 3)
    relu = Relu()
    sizes = range(1, rulecache.MAX_LAYOUTS + 8)
    with useFast(False):
        wanted = [relu(X[..., :n]) for n in sizes]
    for _ in range(2):
        assertSame([relu(X[..., :n]) for n in sizes], wanted)
    assert len(programsIn(cache)) == rulecache.MAX_LAYOUTS
    for n in range(1, 8):
        Linear(21, n)(X)
    assert len(cache.rules) == 3


def test_a_pass_leaves_no_memory_behind(cache):
    net = Sequential(Conv2D(3, 40, 3), BatchNorm(40), Relu(), Conv2D(40, 40, 3))

    images = np.tile(X, (1, 1, 3, 3))

    def work():
        y = net(images)
        net.backward(np.ones_like(y))
        net.reset()
        for p in net.params.values():
            p.grad = None

    for _ in range(3):
        work()
    tracemalloc.start()
    try:
        for _ in range(5):
            work()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 50 * images.nbytes and held < images.nbytes // 4


def test_a_pass_inside_a_pass_is_left_to_numpy(cache):
    relu = Relu()
    y = relu(X)
    cache.workspace.isHeld = True
    try:
        assert np.array_equal(relu(X), y)
    finally:
        cache.workspace.isHeld = False


def test_the_package_has_one_cache():
    assert NativeRules.cache is CACHE


@pytest.mark.parametrize("make", [SGD, MomentumSGD, AdamW, lambda: Adam(decay=0.1, clipNorm=0.5)])
def test_an_update_by_native_code_is_near_that_of_numpy(make, monkeypatch):
    monkeypatch.setattr(NativeRules, "cache", RuleCache())

    def updated():
        layer, rng = Linear(150, 130), np.random.default_rng(1)
        layer.W.data[...] = rng.standard_normal((150, 130))
        optimizer = make().setupOn(layer)
        for _ in range(3):
            for p in (layer.W, layer.b):
                p.grad = rng.standard_normal(p.shape).astype("f4")
            optimizer.update()
        return [layer.W.data, layer.b.data, *optimizer.state.values()]

    with useFast(False):
        wanted = updated()
    first, second = updated(), updated()
    assertSame(first, second)
    assert len(NativeRules.cache.rules) == (not verify.isOn())
    for a, b in zip(first, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_precision_of_compiled_steps_leaves_eager_passes_as_they_are(monkeypatch):
    monkeypatch.setattr(NativeRules, "cache", RuleCache())
    layer, x = Linear(256, 128), np.random.default_rng(0).standard_normal((256, 256)).astype("f4")
    exact = layer(x)
    assertSame([layer.calcMode("bfloat16")(x)], [exact])
