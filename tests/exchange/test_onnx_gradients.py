"""Backward passes are made of ONNX models as of graphs."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

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
    net = fromOnnx(path).trainMode()
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
    net = fromOnnx(path).trainMode()
    y = net(x)
    net.backward(dy)
    found = add_backward_pass(path, "second", ["first_x", "first.W"])(x, dy)
    for a, b in zip(found, [y, net.grad, net["first"].W.grad]):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_gradients_of_a_model_drop_nothing_and_leave_statistics():
    ones = np.ones(3, np.float32)
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["h"]),
        helper.make_node("Dropout", ["h", "half"], ["y"]),
    ]
    arrays = {"scale": 2 * ones, "bias": ones, "mean": 3 * ones, "var": 4 * ones}
    forward, backward, result, forwarded = make_backward_function(
        modelOf(nodes, {"x": [2, 3]}, [*arrays.items(), ("half", 0.5)])
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = forward(x)
    np.testing.assert_allclose(found[0], (x - 3) + 1, 1e-5, 1e-5)
    grad = backward(*found[len(found) - len(forwarded) :], np.ones((2, 3), np.float32))
    assert list(result.required_grad_names) == ["x"]
    np.testing.assert_allclose(grad, np.ones((2, 3)), rtol=1e-5)


def modelOf(nodes, inputs, arrays=()):
    """A model of nodes whose last output is its own."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    constants = [onnx.numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in arrays]
    graph = helper.make_graph(nodes, "it", ends, outs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("strategy", ["store_all", "recompute_all"])
def test_the_gradients_of_a_product_with_a_path_around_it(strategy):
    w = np.arange(12).reshape(3, 4) / 10 - 0.5
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="h"),
        helper.make_node("Relu", ["h"], ["r"], name="r"),
        helper.make_node("Exp", ["r"], ["e"], name="e"),
        helper.make_node("Add", ["e", "h"], ["y"], name="y"),
    ]
    model = modelOf(nodes, {"x": [2, 3]}, [("w", w)])
    forward, backward, _, forwarded = make_backward_function(model, data_forwarding_strategy=strategy)
    found = forward(np.array([[1, -2, 0.5], [0, 1, 2]], np.float32))
    y, kept = found[0], found[len(found) - len(forwarded) :]
    np.testing.assert_allclose(y, [[0.85, 0.8, 0.75, 0.7], [2.148721, 3.025541, 4.104166, 5.4552]], 1e-5)
    dx, dw = backward(*kept, np.ones((2, 4), np.float32))
    np.testing.assert_allclose(dx, [[-1.4, 0.2, 1.8], [-4.826867, 1.146584, 7.120036]], 1e-5, 1e-6)
    rows = [[1, 1, 1, 1], [0.648721, 1.225541, 2.004166, 3.0552], [5.797443, 6.951082, 8.508332, 10.6104]]
    np.testing.assert_allclose(dw, rows, 1e-5)


def test_a_square_has_its_gradient_at_zero_and_below():
    x = np.array([-2, -1, 0, 1, 4], np.float32)
    model = modelOf([helper.make_node("Pow", ["x", "two"], ["y"])], {"x": [5]}, [("two", 2)])
    net = fromOnnx(model, trainable=False)
    y = net(x)
    net.backward(np.ones_like(y))
    np.testing.assert_array_equal(net.grad, 2 * x)
