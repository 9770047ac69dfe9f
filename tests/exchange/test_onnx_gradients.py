"""Backward passes are made of ONNX models as of graphs."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from puregraph import Linear, Sequential, Tanh  # noqa: E402
from puregraph.autodiff import add_backward_pass, make_backward_function  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402


@pytest.fixture
def path(tmp_path):
    """A model of two layers."""
    net = Sequential(Linear(3, 4, name="first"), Tanh(name="bend"), Linear(4, 2, name="second"), name="net")
    toOnnx(net, tmp_path / "net.onnx", [("N", 3)])
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("strategy", ["store_all", "recompute_all"])
def test_a_backward_function_is_made_of_a_model_or_its_path(path, strategy):
    x, dy = np.ones((5, 3), np.float32), np.full((5, 2), 0.5, np.float32)
    net = fromOnnx(path)
    net(x)
    net.backward(dy)
    wanted = [net.grad, *[p.grad for p in net.params.values()]]
    for model in (path, str(path), onnx.load(path)):
        forward, backward, result, forwarded = make_backward_function(model, data_forwarding_strategy=strategy)
        found = forward(x)
        grads = backward(*found[len(found) - len(forwarded) :], dy)
        assert len(grads) == len(wanted) == len(result.required_grad_names)
        for a, b in zip(grads, wanted):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_gradients_are_added_to_a_model(path):
    x, dy = np.ones((5, 3), np.float32), np.full((5, 2), 0.5, np.float32)
    net = fromOnnx(path)
    y = net(x)
    net.backward(dy)
    found = add_backward_pass(path, "second", ["first_x", "first.W"])(x, dy)
    for a, b in zip(found, [y, net.grad, net["first"].W.grad]):
        np.testing.assert_allclose(a, b, rtol=1e-6)
