"""An If whose condition is known ahead of data is the branch that it takes; another one is a module with both."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import puregraph  # noqa: E402
from puregraph import GraphError, ShapeError  # noqa: E402
from puregraph.modules.costs import MSE  # noqa: E402
from puregraph.onnx import fromOnnx, toOnnx  # noqa: E402
from puregraph.onnx.modelinputs import known  # noqa: E402
from puregraph.optimizers import SGD  # noqa: E402


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


def test_branches_whose_outputs_have_not_as_many_axes_are_refused_by_name():
    made = model([], "flag")
    branch = next(a.g for a in made.graph.node[0].attribute if a.name == "else_branch")
    branch.output[0].name = "w"
    with pytest.raises(ShapeError, match="at .choice. .*wanted as many axes of each output either way"):
        fromOnnx(made)(np.ones((2, 3), np.float32), np.array(True))


def randomBranch(rng, name, values, count, depth=0):
    """A graph of `count` outputs that reads what is outside, and has weights and perhaps another If of its own."""
    nodes, arrays, ends, own = [], [], [], list(values)
    for i in range(int(rng.integers(1, 4)) + count):
        kind, out = str(rng.choice(["Add", "Mul", "Tanh", "MatMul", "Sum", "If"])), f"{name}{i}"
        reads = [str(rng.choice(own))]
        if kind in ("Add", "Mul"):
            reads.append(str(rng.choice(own)))
        elif kind == "MatMul":
            arrays.append(onnx.numpy_helper.from_array(rng.standard_normal((3, 3)).astype("f4"), f"{out}W"))
            reads.append(f"{out}W")
        inner = {}
        if kind == "If" and depth == 0:
            ways = {f"{way}_branch": randomBranch(rng, f"{out}{way}", own, 1, 1) for way in ("then", "else")}
            reads, inner = ["other"], ways
        nodes.append(helper.make_node("Tanh" if kind == "If" and depth else kind, reads, [out], name=out, **inner))
        own.append(out)
    if depth == 0 and rng.random() < 0.3:  # then the branches do not agree on how many rows there are
        nodes.append(helper.make_node("Concat", [own[-1], own[-1]], [f"{name}twice"], name=f"{name}twice", axis=0))
        own.append(f"{name}twice")
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, None) for each in own[-count:]]
    return helper.make_graph(nodes, name, [], ends, arrays)


def test_20_random_branches_give_what_onnxruntime_gives():
    runtime = pytest.importorskip("onnxruntime")
    rng, options = np.random.default_rng(1), runtime.SessionOptions()
    options.log_severity_level = 4
    for _ in range(20):
        count = int(rng.integers(1, 3))
        branches = {f"{way}_branch": randomBranch(rng, way, ["x", "z"], count) for way in ("then", "else")}
        node = helper.make_node("If", ["flag"], [f"y{i}" for i in range(count)], name="choice", **branches)
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xz"]
        ends += [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("flag", "other")]
        outs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        graph = helper.make_graph([node], "it", ends, outs)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        session = runtime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        net = fromOnnx(made)
        for flag, other in ((True, True), (True, False), (False, True), (False, False)):
            given = {n: rng.standard_normal((2, 3)).astype("f4") for n in "xz"}
            given |= {"flag": np.array(flag), "other": np.array(other)}
            found = net({name: given[name] for name in net.arguments})
            for y, want in zip(found if isinstance(found, list) else [found], session.run(None, given), strict=True):
                np.testing.assert_allclose(y, want, 1e-5, 1e-5)


@pytest.mark.parametrize("isThen", [True, False])
def test_a_condition_that_comes_with_the_data_chooses_in_every_pass_and_back(isThen):
    net = fromOnnx(model([], "flag")).trainMode()
    x, flag = np.arange(6, dtype=np.float32).reshape(2, 3), np.array(isThen)
    np.testing.assert_array_equal(net(x, flag), x @ np.full((3, 3), 2, np.float32) if isThen else x + 5)
    net.backward(np.ones_like(x))
    np.testing.assert_array_equal(net.grad[0], np.full_like(x, 6) if isThen else np.ones_like(x))
    grads = {name: p.grad for name, p in net.params.items()}
    assert all(name.startswith(("choice.then.", "choice.else.")) for name in grads) and len(grads) == 2
    weight, bias = sorted(grads.values(), key=np.ndim, reverse=True)
    np.testing.assert_array_equal(weight, np.repeat(x.sum(0), 3).reshape(3, 3) if isThen else np.zeros((3, 3)))
    np.testing.assert_array_equal(bias, np.zeros(3) if isThen else np.full(3, 2))


def test_both_branches_are_trained_saved_compiled_and_written_again(tmp_path):
    net, x = fromOnnx(model([], "flag")), np.arange(6, dtype=np.float32).reshape(2, 3) / 5
    assert net.dataShapeFrom([("N", 3), ()]) == ("N", 3)
    program = net.compile((2, 3), (), (2, 3), dtypes=["f4", "bool", "f4"], cost=MSE(), optimizer=SGD(learnRate=0.3))
    first = [program.run(x, np.array(flag), x)[0] for flag in (True, False)]
    for _ in range(20):
        last = [program.run(x, np.array(flag), x)[0] for flag in (True, False)]
    assert all(after < before / 2 for after, before in zip(last, first)), (first, last)
    assert "If(2 or 3 nodes)" in program.table() and "Python" in program.table()
    net.save(tmp_path / "net.h5")
    written = toOnnx(net, None, [("N", 3), ()])
    onnx.checker.check_model(written, full_check=True)
    again = fromOnnx(written)
    assert toOnnx(again, None, [("N", 3), ()]).SerializeToString() == written.SerializeToString()
    for other in (puregraph.load(tmp_path / "net.h5"), again):
        for flag in (True, False):
            np.testing.assert_array_equal(other(x, np.array(flag)), net(x, np.array(flag)))


def test_branches_of_different_lengths_have_an_open_size_and_one_that_does_not_fit_is_not_chosen():
    nodes = (
        [helper.make_node("Concat", ["x", "x"], ["t"], name="twice", axis=0)],
        [helper.make_node("MatMul", ["x", "w"], ["e"], name="fits3")],
    )
    weight = onnx.numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    end = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "te"]
    graphs = [helper.make_graph(own, "it", [], [each]) for own, each in zip(nodes, end)]
    choice = helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=graphs[0], else_branch=graphs[1])
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "K"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(
        [choice], "it", ends, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weight]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    net, x = fromOnnx(made, shapes={"x": ("N", 3)}), np.ones((2, 3), np.float32)
    assert [net(x, np.array(flag)).shape for flag in (True, False)] == [(4, 3), (2, 3)]
    y = net(x, np.array(True))
    net.backward(np.ones_like(y))
    np.testing.assert_array_equal(net.grad[0], np.full((2, 3), 2))
    net = fromOnnx(made, shapes={"x": (2, 4)})
    x = np.ones((2, 4), np.float32)
    assert net(x, np.array(True)).shape == (4, 4)
    with pytest.raises(ShapeError, match="wanted a condition for the branch that fits, got the other one; at 'fits3'"):
        net(x, np.array(False))


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


def test_a_branch_may_read_an_input_that_was_left_out_around_it():
    make, value = onnx.helper, onnx.helper.make_tensor_value_info
    kind, opset = onnx.TensorProto.FLOAT, onnx.helper.make_opsetid("", 17)
    limited = make.make_graph([make.make_node("Clip", ["x", "", "k"], ["o"])], "a", [], [value("o", kind, [2])])
    same = make.make_graph([make.make_node("Identity", ["x"], ["p"])], "b", [], [value("p", kind, [2])])
    said = make.make_node("Constant", [], ["t"], value=onnx.numpy_helper.from_array(np.bool_(True)))
    choice = make.make_node("If", ["t"], ["y"], then_branch=limited, else_branch=same)
    function = make.make_function("own", "F", ["x", "k"], ["y"], [said, choice], [opset])
    inputs, outputs = [value("x", kind, [2]), value("k", kind, [])], [value("y", kind, [2])]
    for given, wanted in ((["x"], [3.0, 3.0]), (["x", "k"], [2.0, 2.0])):
        graph = make.make_graph([make.make_node("F", given, ["y"], domain="own")], "g", inputs[: len(given)], outputs)
        model = make.make_model(graph, functions=[function], opset_imports=[opset, make.make_opsetid("own", 1)])
        data = [np.full(2, 3, np.float32), np.float32(2)][: len(given)]
        np.testing.assert_array_equal(fromOnnx(model)(*data), wanted)
