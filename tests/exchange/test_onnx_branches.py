"""An If whose condition is known ahead of data is the branch that it takes; another one is refused."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from puregraph import GraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.reader import known  # noqa: E402


def branchOf(name, kind, weight):
    """A graph that reads x from outside, and has a weight of its own."""
    node = helper.make_node(kind, ["x", "w"], [f"{name}_y"], name=f"{name}_node")
    end = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
    return helper.make_graph([node], name, [], [end], [onnx.numpy_helper.from_array(weight, "w")])


def model(nodes, condition):
    """x, multiplied by a matrix if it has three axes, or else added to."""
    weights = np.full((3, 3), 2, np.float32), np.full(3, 5, np.float32)
    branches = {
        "then_branch": branchOf("then", "MatMul", weights[0]),
        "else_branch": branchOf("else", "Add", weights[1]),
    }
    choice = helper.make_node("If", [condition], ["y"], name="choice", **branches)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])]
    inputs += [] if nodes else [helper.make_tensor_value_info(condition, TensorProto.BOOL, [])]
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [onnx.numpy_helper.from_array(np.array([n]), f"c{n}") for n in (1, 2, 3)]
    graph = helper.make_graph([*nodes, choice], "it", inputs, [end], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("size", "isThen"), [(3, True), (2, False)])
def test_a_condition_of_shapes_chooses_the_branch_while_reading(size, isThen):
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"], name="sizes"),
        helper.make_node("Gather", ["sizes", "c1"], ["width"], name="width"),
        helper.make_node("Equal", ["width", f"c{size}"], ["same"], name="same"),
    ]
    net = fromOnnx(model(nodes, "same"))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net(x), x @ np.full((3, 3), 2, np.float32) if isThen else x + 5)
    assert len(list(net.params)) == 1
    y = net(x)
    net.backward(np.ones_like(y))
    np.testing.assert_array_equal(net.inputs[0].grad, np.full_like(x, 6) if isThen else np.ones_like(x))


def test_a_condition_that_comes_with_the_data_is_refused():
    with pytest.raises(GraphError, match=r"at 'choice' \(If\): its condition is known only with the data"):
        fromOnnx(model([], "flag"))


@pytest.mark.parametrize("isThen", [True, False])
def test_an_input_whose_value_is_given_chooses_the_branch_and_is_no_input(isThen):
    net = fromOnnx(model([], "flag"), values={"flag": isThen})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net(x), x @ np.full((3, 3), 2) if isThen else x + 5)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"flags": True}, "values: there is no input 'flags'; the inputs are x, flag"),
        ({"flag": 1.5}, r"values: input 'flag': wanted bool\(.*\), got float64\(\)"),
        ({"x": np.zeros((2, 4))}, r"values: input 'x': wanted float32\(N, 3\), got float64\(2, 4\)"),
    ],
)
def test_a_value_that_does_not_fit_its_input_is_refused(values, message):
    with pytest.raises(GraphError, match=message):
        fromOnnx(model([], "flag"), values=values)


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int8", 300, "wanted int8 from -128 to 127, got 300"),
        ("uint8", -1, "wanted uint8 from 0 to 255, got -1"),
        ("int32", 2**31, "wanted int32 from -2147483648 to 2147483647, got 2147483648"),
        ("float32", 1e39, "wanted float32 from"),
    ],
)
def test_a_value_that_the_dtype_of_its_input_cannot_hold_is_refused(dtype, value, message):
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [])
    with pytest.raises(GraphError, match=f"values: input 'x': {message}"):
        known(info, value)
    assert known(info, 100).array.dtype == dtype


def test_limits_of_a_range_may_have_one_axis():
    limits = [onnx.numpy_helper.from_array(np.array(n), name) for name, n in (("a", [1]), ("b", 7), ("c", [2]))]
    nodes = [
        helper.make_node("Range", ["a", "b", "c"], ["r"], name="range"),
        helper.make_node("Add", ["r", "x"], ["y"], name="y"),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.INT64, [3])] for name in "xy"]
    graph = helper.make_graph(nodes, "it", *ends, limits)
    net = fromOnnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    np.testing.assert_array_equal(net(np.zeros(3, np.int64)), [1, 3, 5])
