"""TimeDistributed: a module or a graph at each time step, next to a loop over the steps."""

import numpy as np
import pytest
from leftovers import leftToNumpy

import puregraph
from puregraph import LSTM, ArgumentError, BatchNorm, Conv2D, Flatten, Linear, Relu, Sequential, ShapeError
from puregraph.block import TimeDistributed
from puregraph.compile import Program
from puregraph.ops.native.llvm import jit

KINDS = {
    "convolution": (lambda: Conv2D(2, 3, 2, name="inner"), (2, 5, 4)),
    "graph": (lambda: Sequential(Conv2D(2, 3, 2), Relu(), Flatten(), Linear(36, 4), name="inner"), (2, 5, 4)),
    "sequences": (lambda: LSTM(3, 2, name="inner"), (6, 3)),
    "numbers": (lambda: Linear(3, 2, name="inner"), (3,)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_values_and_gradients_are_those_of_a_loop(kind, length):
    make, shape = KINDS[kind]
    net = TimeDistributed(make()).calcMode(np.float64)
    rng = np.random.default_rng(length)
    x = rng.standard_normal((3, length, *shape))
    y = net(x)
    grad = rng.standard_normal(y.shape)
    net.backward(grad)
    assert net.dataShapeFrom(("N", "T", *shape)) == ("N", "T", *y.shape[2:])
    got, inner, summed = net.grad, net["inner"], {}
    for t in range(length):
        assert np.allclose(inner(x[:, t]), y[:, t], rtol=1e-12, atol=1e-12)
        inner.backward(grad[:, t])
        back = inner.grad[0] if isinstance(inner.grad, list) else inner.grad
        assert np.allclose(back, got[:, t], rtol=1e-12, atol=1e-12)
        for name, p in inner.params.items():
            summed[name] = summed.get(name, 0) + p.grad
    net(x)
    net.backward(grad)
    for name, p in inner.params.items():
        assert np.allclose(p.grad, summed[name], rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not jit.available(), reason=str(jit.missing()))
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_step_gives_the_same_and_leaves_nothing_to_numpy(kind):
    make, shape = KINDS[kind]
    net, x = TimeDistributed(make()), np.random.default_rng(1).standard_normal((3, 4, *shape)).astype("f")
    y = net(x)
    net.backward(np.ones_like(y))
    program = Program(net, [x.shape], grads=[True])
    assert np.allclose(program.run(x, np.ones_like(y)), y, rtol=1e-4, atol=1e-5)
    assert np.allclose(program.grad, net.grad, rtol=1e-4, atol=1e-5)
    assert not leftToNumpy(program)


def test_empty_batches_and_sequences_stay_empty():
    net = TimeDistributed(Conv2D(2, 3, 2))
    assert net(np.ones((0, 4, 2, 5, 4), "f")).shape == (0, 4, 3, 4, 3)
    assert net(np.ones((3, 0, 2, 5, 4), "f")).shape == (3, 0, 3, 4, 3)


def test_statistics_are_those_of_all_steps():
    net, x = TimeDistributed(BatchNorm(2)).calcMode(np.float64), np.random.default_rng(2).standard_normal((3, 4, 2, 5))
    assert np.allclose(net(x).mean((0, 1, 3)), 0, atol=1e-6)


def test_it_is_stored_and_written_to_onnx(tmp_path):
    net = TimeDistributed(Conv2D(2, 3, 2)).evalMode()
    x = np.random.default_rng(3).standard_normal((2, 3, 2, 5, 4)).astype("f")
    net.save(tmp_path / "steps.h5")
    assert np.array_equal(puregraph.load(tmp_path / "steps.h5").evalMode()(x), net(x))
    pytest.importorskip("onnx")
    from puregraph.onnx import fromOnnx, toOnnx

    toOnnx(net, tmp_path / "steps.onnx", [("N", "T", 2, 5, 4)])
    assert np.allclose(fromOnnx(tmp_path / "steps.onnx")(x), net(x), atol=1e-6)


def test_several_outputs_and_no_steps_are_refused():
    with pytest.raises(ArgumentError, match="TimeDistributed: wanted a module of one output, got LSTM.* with y, h"):
        TimeDistributed(LSTM(4, 3, outputs=("y", "h")))
    with pytest.raises(ShapeError, match="at 'steps'"):
        TimeDistributed(Relu()).dataShapeFrom((3,))
