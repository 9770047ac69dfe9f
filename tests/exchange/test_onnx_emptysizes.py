"""A reduction over a symbolic size that is 0 when data comes gives onnxruntime's neutral value, and goes to a file."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402

KINDS = "Max Min Mean Sum Prod L1 L2 LogSum LogSumExp SumSquare".split()


def model(kind, element, keepdims):
    """A reduction over the axis of length N."""
    node = helper.make_node(f"Reduce{kind}", ["x", "axes"], ["y"], keepdims=keepdims)
    ends = [
        [helper.make_tensor_value_info("x", element, ["N", 3])],
        [helper.make_tensor_value_info("y", element, [1, 3] if keepdims else [3])],
    ]
    graph = helper.make_graph([node], "one", *ends, [onnx.numpy_helper.from_array(np.array([0]), "axes")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("element", "dtype"), [(TensorProto.FLOAT, "f4"), (TensorProto.INT32, "i4")])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("count", [0, 4])
def test_a_reduction_over_an_open_size_is_onnxruntimes(kind, element, dtype, keepdims, count):
    made = model(kind, element, keepdims)
    x = np.arange(1, 3 * count + 1).astype(dtype).reshape(count, 3)
    (wanted,) = runtime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    net = fromOnnx(made)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = net(x)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, 1e-6)


@pytest.mark.parametrize("kind", ["Max", "Min"])
@pytest.mark.parametrize("count", [0, 4])
def test_an_extreme_over_an_open_size_has_a_gradient_compiles_and_is_written(kind, count):
    made = model(kind, TensorProto.FLOAT, 1)
    net = fromOnnx(made)
    x = np.arange(3.0 * count, dtype=np.float32).reshape(count, 3)
    y = net(x)
    net.backward(np.ones_like(y))
    where = np.zeros_like(x)
    where[-1 if kind == "Max" else 0 : None if kind == "Max" else 1] = 1
    np.testing.assert_array_equal(net.inputs[0].grad, where)
    np.testing.assert_array_equal(net.compile(x.shape).run(x), y)
    again = fromOnnx(toOnnx(net, None, [("N", 3)]))
    np.testing.assert_array_equal(again(x), y)
