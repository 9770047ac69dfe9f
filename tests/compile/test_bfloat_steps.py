"""Compiled steps on a CPU that may calculate in bfloat16: what is rounded, what is not, and what they learn."""

import numpy as np
import pytest
from natively import needsNative

from puregraph import CrossEntropy
from puregraph.compile import verify
from puregraph.core import device, initial
from puregraph.core.errors import GraphWarning
from puregraph.graph.sequential import Sequential
from puregraph.modules import Conv2D, Linear, Mean, Tanh
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.bfloatpairs import roundedToBfloat16
from puregraph.optimizers import SGD, Adam

pytestmark = needsNative


@pytest.fixture(params=["instruction", "generic"])
def rounding(request, monkeypatch):
    """A CPU that multiplies bfloat16; generic code stands for its instruction where there is none."""
    if request.param == "generic":
        monkeypatch.setattr(jit, "multipliesBfloat16", lambda: True)
        monkeypatch.setattr("puregraph.ops.native.llvm.bfloatpairs.hasInstructions", lambda lanes: False)
        monkeypatch.setattr(jit, "LOADED", {})  # kernels of a name of their own: those of the instruction are cached
        monkeypatch.setattr(jit, "FORMAT_VERSION", "generic")
    elif not jit.multipliesBfloat16():
        pytest.skip("no instruction for bfloat16")


@pytest.fixture(autouse=True)
def onCpu():
    with device.useDevice("cpu"):
        yield


def network(precision="bfloat16"):
    initial.seed(3)
    return Sequential(Linear(200, 360, name="a"), Tanh(), Linear(360, 32, name="b"), Tanh()).calcMode(precision)


def batch(rng, rows=65):
    return rng.standard_normal((rows, 200), np.float32), rng.integers(0, 32, rows)


def rounded(x):
    return roundedToBfloat16(x).astype(float)


def test_a_forward_pass_multiplies_rounded_factors(rng, rounding):
    net = network().evalMode()
    x, _ = batch(rng)
    program = net.compile(x.shape)
    assert program.table().count("gemm bf16") == 2
    hidden = np.tanh(rounded(x) @ rounded(net["a"].W.array) + net["a"].b.array).astype(np.float32)
    want = np.tanh(rounded(hidden) @ rounded(net["b"].W.array) + net["b"].b.array)
    np.testing.assert_allclose(program.run(x), want, atol=2e-2, rtol=0)
    assert np.abs(program.run(x) - network("float32").evalMode().compile(x.shape).run(x)).max() > 1e-4


def test_weights_that_are_packed_once_are_packed_again_when_they_change(rng, rounding):
    net = network().evalMode()
    x, _ = batch(rng)
    program = net.compile(x.shape)
    before = program.run(x)
    net["b"].W.array = 2 * net["b"].W.array
    assert np.abs(program.run(x) - before).max() > 1e-2
    np.testing.assert_array_equal(program.run(x), net.compile(x.shape).run(x))


def test_gradients_are_those_of_rounded_factors(rng, rounding):
    x, t = batch(rng)
    grads = {}
    for precision in ("float32", "bfloat16"):
        net = network(precision)
        program = net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=SGD(1.0))
        before = {name: p.array.copy() for name, p in net.params.items()}
        program.run(x, t)
        grads[precision] = {name: before[name] - p.array for name, p in net.params.items()}
        assert all(p.dtype == np.float32 for p in net.params.values())
    assert program.table().count("bf16") == 5  # two forward, two of weights, one of a hidden value
    for name, want in grads["float32"].items():
        error = np.linalg.norm(grads["bfloat16"][name] - want) / np.linalg.norm(want)
        assert 0 < error < 0.02, name


def test_a_module_that_is_an_exception_stays_in_float32(rng):
    if not jit.multipliesBfloat16():
        pytest.skip("no instruction for bfloat16")
    net = network()
    net["b"].calcMode("float32")
    x, t = batch(rng)
    table = net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=SGD(0.1)).table()
    assert table.count("bf16") == 2  # forward, and the gradient of its weights


@pytest.mark.parametrize("rows", [1, 5, 0])
def test_few_rows_or_none_give_what_float32_gives(rng, rounding, rows):
    x, _ = batch(rng, rows)
    got, want = (network(p).evalMode().compile(x.shape).run(x) for p in ("bfloat16", "float32"))
    np.testing.assert_array_equal(got, want)


def test_steps_verify_against_rounded_factors(rng, rounding, monkeypatch):
    monkeypatch.setenv(verify.VARIABLE, "1")
    x, t = batch(rng)
    program = network().compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=Adam())
    program.run(x, t)
    monkeypatch.setattr(verify, "roundedToBfloat16", lambda x: x)
    with pytest.raises(verify.VerifyError):
        program.run(x, t)


@pytest.mark.parametrize("size", [16, 34, 100])
@pytest.mark.parametrize("window", [(1, 1, 0, 1), (1, 2, 0, 1), (3, 2, 1, 1), (5, 1, 2, 1), (3, 1, 2, 2)])
def test_convolutions_multiply_rounded_factors(rng, rounding, monkeypatch, size, window, request):
    if "generic" in request.node.name and (size, window) != (16, (1, 1, 0, 1)):
        pytest.skip("takes long to compile: one of them is enough")
    kernel, stride, pad, dilation = window
    options = {"stride": stride, "pad": pad, "dilation": dilation}
    initial.seed(5)
    layers = Conv2D(3, size, 3, name="first"), Tanh(), Conv2D(size, 20, kernel, **options, name="second")
    net = Sequential(*layers, Mean((2, 3)), name="net").calcMode("bfloat16")
    x, t = rng.standard_normal((3, 3, 13, 11), np.float32), rng.integers(0, 20, 3)
    monkeypatch.setenv(verify.VARIABLE, "1")
    program = net.compile(x.shape, t.shape, cost=CrossEntropy(), optimizer=SGD(0.1))
    program.run(x, t)
    count = program.table().count(" bf16")
    assert count == (3 if kernel == stride == 1 else 2)  # forward, data, and the weights of a pointwise one
    monkeypatch.setattr(verify, "roundedToBfloat16", lambda x: x)
    with pytest.raises(verify.VerifyError):
        program.run(x, t)


def test_the_permission_says_once_where_it_changes_nothing(rng, monkeypatch):
    monkeypatch.setattr(jit, "multipliesBfloat16", lambda: False)
    net, x = network().evalMode(), batch(rng)[0]
    with pytest.warns(GraphWarning, match="changes nothing here: the processor .* has no AVX512-BF16") as warnings:
        got = [net.compile(x.shape).run(x) for _ in range(2)]
    assert len(warnings) == 1
    np.testing.assert_array_equal(got[0], network("float32").evalMode().compile(x.shape).run(x))
