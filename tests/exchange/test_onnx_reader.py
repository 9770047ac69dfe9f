"""What fromOnnx makes of a model: names, parameters, symbols, and one error that says all that is wrong."""

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import puregraph  # noqa: E402
from puregraph import CheckpointError, DtypeError, GraphError, LayerNorm, Sequential, ShapeError  # noqa: E402
from puregraph.onnx import fromOnnx, onnxOp, toOnnx  # noqa: E402
from puregraph.onnx.opregistry import READERS  # noqa: E402


def model(nodes, inputs, outputs, weights=None, opset=21, functions=()):
    """A model of these nodes; inputs are (name, shape) of floats, or (name, kind, shape)."""
    given = [helper.make_tensor_value_info(n, *(k or [TensorProto.FLOAT]), s) for n, *k, s in inputs]
    found = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", given, found, stored)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def mlp():
    """Two layers, with the batch left open."""
    rng = np.random.default_rng(1)
    arrays = {"W1": rng.standard_normal((3, 4)), "b1": rng.standard_normal(4), "W2": rng.standard_normal((2, 4))}
    nodes = [
        helper.make_node("Gemm", ["x", "W1", "b1"], ["h"], name="/fc1/Gemm"),
        helper.make_node("Relu", ["h"], ["a"], name="/relu"),
        helper.make_node("Gemm", ["a", "W2"], ["y"], name="/fc2/Gemm", transB=1),
    ]
    weights = {name: array.astype(np.float32) for name, array in arrays.items()}
    return model(nodes, [("x", ["batch", 3])], ["y"], weights), weights


def test_a_model_is_a_graph_of_ordinary_modules_with_the_names_of_the_file():
    net = fromOnnx(mlp()[0])
    assert [type(node.module).__name__ for node in net.nodes] == ["Input", "Linear", "Relu", "Linear"]
    assert [net.paths[node] for node in net.nodes] == ["x", "fc1_Gemm", "relu", "fc2_Gemm"]
    assert net.dataShapeFrom(("batch", 3)) == ("batch", 2)


@pytest.mark.parametrize("name", ["?", "", "-", "*", "-1", "None", None])
def test_sizes_that_have_no_name_are_each_of_its_own(name):
    made = model([helper.make_node("Relu", ["x"], ["y"])], [("x", [1, name, name])], ["y"])
    net, x = fromOnnx(made), np.ones((1, 48, 192), np.float32)
    assert net(x).shape == x.shape
    assert len(set(net.inputs[0].module.shape[1:])) == 2
    named = fromOnnx(model([helper.make_node("Relu", ["x"], ["y"])], [("x", ["N", "N"])], ["y"]))
    with pytest.raises(ShapeError):
        named(np.ones((2, 3), np.float32))


def test_a_model_computes_in_another_dtype_as_its_inputs_do(tmp_path):
    net, x = fromOnnx(mlp()[0]), np.random.default_rng(1).standard_normal((5, 3))
    wanted = net(x.astype(np.float32))
    found = net.calcMode(np.float64)(x)
    assert found.dtype == np.float64 and net.dataTypeFrom(np.float64) == np.float64
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
    np.testing.assert_allclose(net.compile((5, 3), train=False).run(x), found, rtol=1e-13)
    net.save(tmp_path / "net.h5")
    np.testing.assert_array_equal(puregraph.load(tmp_path / "net.h5")(x), found)
    assert toOnnx(net, None, [("N", 3)]).graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE


def test_weights_are_parameters_that_train_or_are_frozen():
    proto, weights = mlp()
    net = fromOnnx(proto).trainMode()
    assert np.array_equal(net["fc1_Gemm"].W.data, weights["W1"]) and net["fc1_Gemm"].W.trainable
    x = np.ones((5, 3), np.float32)
    hidden = np.maximum(x @ weights["W1"] + weights["b1"], 0)
    np.testing.assert_allclose(net(x), hidden @ weights["W2"].T, rtol=1e-6)
    net.backward(np.ones((5, 2), np.float32))
    np.testing.assert_allclose(net["fc2_Gemm"].W.grad, np.ones((2, 5)) @ hidden, rtol=1e-5)
    assert not any(p.trainable for p in fromOnnx(proto, trainable=False).params.values())


@pytest.mark.parametrize("isSaid", [True, False])
def test_a_model_that_is_called_evaluates_and_drops_only_in_train_mode(isSaid):
    constants = {"ratio": np.array(0.5, np.float32), "training": np.array(False)}
    nodes = [helper.make_node("Dropout", ["x", *constants][: 3 if isSaid else 2], ["y"])]
    net, x = fromOnnx(model(nodes, [("x", [40])], ["y"], constants)), np.ones(40, np.float32)
    np.testing.assert_array_equal(net(x), x)
    assert set(net.trainMode()(x)) == {0, 2}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"trainable": "no"}, "wanted trainable as True or False, got 'no'"),
        ({"patterns": 1}, "wanted patterns as True or False, got 1"),
        ({"shapes": [(2, 3)]}, "wanted shapes as a dict by the names of the model's inputs, or None, got"),
        ({"values": (1, 2)}, "wanted values as a dict by the names of the model's inputs, or None, got"),
        ({"shapes": {"x": 5}}, "shapes: input 'x': wanted a shape, .* got 5; write"),
        ({"shapes": {"x": "N"}}, "shapes: input 'x': wanted a shape, .* got 'N'; write"),
        ({"shapes": {"x": (-1, 3)}}, "shapes: input 'x': wanted a size of at least 0, .* got -1"),
        ({"shapes": {"x": (2.5, 3)}}, "shapes: input 'x': wanted a size of at least 0, .* got 2.5"),
        ({"values": {"x": [[1, 2], [3]]}}, "values: input 'x': wanted an array, got"),
        ({"training": True}, "there is no argument training"),
    ],
)
def test_arguments_of_fromOnnx_are_checked(arguments, text):
    with pytest.raises(puregraph.PuregraphError, match=text):
        fromOnnx(mlp()[0], **arguments)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PK\x03\x04data.pkl", "a zip archive, as torch.*net.load.*torch.onnx.export.*fromOnnx"),
        (b"\x80\x02\x8a\nl\xfc", "a pickle, which puregraph never reads; save.*torch.onnx.export"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS.*git lfs pull"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (puregraph.Sequential(puregraph.Linear(2, 2)).save(None), "a checkpoint of puregraph; puregraph.load"),
        (b"", "it is empty"),
        (b"\xff\xff\xff", "it cannot be decoded"),
    ],
)
def test_a_file_of_another_kind_is_named_and_it_is_said_how_to_go_on(data, text, tmp_path):
    (tmp_path / "net.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"net.pt: wanted an ONNX model, .*{text}"):
        fromOnnx(tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match="a path or a ModelProto, got bytes; onnx.load_from_string"):
        fromOnnx(data)


def test_a_model_survives_a_file_of_puregraph(tmp_path):
    net = fromOnnx(mlp()[0])
    net.save(tmp_path / "net.h5")
    x = np.ones((5, 3), np.float32)
    assert np.array_equal(puregraph.load(tmp_path / "net.h5")(x), net(x))


def test_one_error_lists_every_unknown_operator_and_every_node_that_does_not_fit():
    nodes = [
        helper.make_node("Nothing", ["x"], ["a"], name="first", domain="own"),
        helper.make_node("Nothing", ["x"], ["b"], name="second", domain="own"),
        helper.make_node("Other", ["x"], ["c"], name="third", domain="own"),
        helper.make_node("MatMul", ["x", "x"], ["d"], name="product"),
        helper.make_node("Add", ["x", "w"], ["e"], name="sum"),
        helper.make_node("Sum", ["a", "b", "c", "d", "e"], ["y"], name="all"),
    ]
    with pytest.raises(GraphError) as error:
        fromOnnx(model(nodes, [("x", [2, 3])], ["y"], {"w": np.ones(5, np.float32)}))
    text = str(error.value)
    for part in ("own.Nothing: 'first', 'second'", "own.Other: 'third'", "@onnxOp", "'product'", "'sum'"):
        assert part in text
    assert "'all'" not in text


def test_unknown_operators_behind_others_are_named_in_functions_and_branches_too():
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    inside = helper.make_node("Inside", ["a"], ["b"], name="inside", domain="own")
    function = helper.make_function("own", "Known", ["a"], ["b"], [inside], opsets)
    branch = helper.make_graph(
        [helper.make_node("Branch", ["d"], ["e"], name="there", domain="own")],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("e")],
    )
    nodes = [
        helper.make_node("First", ["x"], ["a"], name="first", domain="own"),
        helper.make_node("Second", ["a"], ["b"], name="second", domain="own"),
        helper.make_node("Gelu", ["b"], ["c"], name="gelu"),
        helper.make_node("Known", ["c"], ["d"], name="known", domain="own"),
        helper.make_node("Known", ["d"], ["f"], name="again", domain="own"),
        helper.make_node("If", ["f"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    with pytest.raises(GraphError) as error:
        fromOnnx(model(nodes, [("x", [2, 3])], ["y"], functions=[function]))
    lines = [line.strip() for line in str(error.value).splitlines()]
    assert lines[1:5] == [
        "own.Branch: 'choice:there', 'choice:there'",
        "own.First: 'first'",
        "own.Inside: 'known:inside'",
        "own.Second: 'second'",
    ]
    assert len(lines) == 6 and "5 nodes with unknown operators" in lines[0]


def test_an_operator_of_ones_own_is_read_once_it_is_registered():
    try:

        @onnxOp("Thrice", domain="own")
        def thrice(op, x):
            return op(puregraph.Pointwise(formula="3 * x"), x)

        node = helper.make_node("Thrice", ["x"], ["y"], domain="own")
        assert list(fromOnnx(model([node], [("x", [2])], ["y"]))(np.ones(2, np.float32))) == [3, 3]
        with pytest.raises(puregraph.PuregraphError, match="has a reader since opset 1 already"):
            onnxOp("Thrice", domain="own")(thrice)
    finally:
        READERS.pop(("own", "Thrice"), None)


def test_functions_of_a_model_are_written_out_with_the_attributes_of_their_call():
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    opsets = [helper.make_opsetid("", 21)]
    leaky = helper.make_function("own", "Leaky", ["a"], ["b"], [body], opsets, ["slope"])
    node = helper.make_node("Leaky", ["x"], ["y"], domain="own", slope=0.5)
    net = fromOnnx(model([node], [("x", [2])], ["y"], functions=[leaky]))
    assert list(net(np.array([-2, 4], np.float32))) == [-1, 4]


def test_heads_of_a_size_that_is_divided_are_known_beside_an_open_batch():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "two"], ["width"]),
        helper.make_node("Div", ["width", "heads"], ["part"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Mul", ["batch", "heads"], ["rows"]),
        helper.make_node("Div", ["rows", "heads"], ["again"]),
        *(helper.make_node("Unsqueeze", [name, "axis"], [f"{name}1"]) for name in ("again", "part")),
        helper.make_node("Concat", ["again1", "minus", "part1"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    numbers = {"two": np.array(2), "zero": np.array(0), "heads": np.array(4), "axis": np.array([0])}
    net = fromOnnx(model(nodes, [("x", ["N", 3, 8])], ["y"], numbers | {"minus": np.array([-1])}))
    assert net.dataShapeFrom(("N", 3, 8)) == ("N", 12, 2)


def test_shape_arithmetic_keeps_symbols():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "first"], ["m"]),
        helper.make_node("Concat", ["m", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1])}
    net = fromOnnx(model(nodes, [("x", ["N", 2, 3])], ["y"], weights))
    assert net.dataShapeFrom(("N", 2, 3)) == ("N", 6)


def test_what_follows_from_constants_alone_and_what_nobody_reads_is_no_node():
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["x", "wt"], ["y"], name="product"),
        helper.make_node("Exp", ["x"], ["unread"]),
    ]
    net = fromOnnx(model(nodes, [("x", ["N", 3])], ["y"], {"w": np.ones((4, 3), np.float32)}))
    assert [type(node.module).__name__ for node in net.nodes] == ["Input", "Linear"]


def test_opsets_that_are_not_known_are_refused():
    node = helper.make_node("Relu", ["x"], ["y"])
    with pytest.raises(GraphError, match="opset 99: wanted 1 to"):
        fromOnnx(model([node], [("x", [2])], ["y"], opset=99))
    with pytest.raises(GraphError, match="opset 0: wanted 1 to"):
        fromOnnx(model([node], [("x", [2])], ["y"], opset=0))


def external(tmp_path, location, length=12, offset=0):
    """A model with a weight in a file beside it."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [("x", [3])], ["y"], {"w": np.ones(3, np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", length), ("offset", offset)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    (tmp_path / "model").mkdir(exist_ok=True)
    path = tmp_path / "model" / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "model" / "weights.bin").write_bytes(np.arange(4, dtype="<f4").tobytes())
    (tmp_path / "outside.bin").write_bytes(b"\0" * 16)
    return path


def test_external_data_is_read_from_the_folder_of_the_model(tmp_path):
    net = fromOnnx(external(tmp_path, "weights.bin", offset=4))
    assert list(net(np.zeros(3, np.float32))) == [1, 2, 3]


def test_external_data_anywhere_else_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "outside.bin")
    for location in ("../outside.bin", str(tmp_path / "outside.bin"), "link.bin", "", "none.bin", "a/../weights.bin"):
        with pytest.raises(CheckpointError, match="tensor 'w'"):
            fromOnnx(external(tmp_path, location))


def test_external_data_of_another_length_is_refused(tmp_path):
    for length, offset in ((8, 0), (16, 0), (12, 8), (12, -4), ("1e9", 0)):
        with pytest.raises(CheckpointError, match="tensor 'w'"):
            fromOnnx(external(tmp_path, "weights.bin", length, offset))


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    for path in (tmp_path / "text.onnx", tmp_path / "none.onnx", 7):
        with pytest.raises((CheckpointError, GraphError)):
            fromOnnx(path)


@pytest.mark.parametrize("given", ["known", "open", "data"])
def test_a_slice_that_goes_backward_from_before_the_first_element_has_that_one(given):
    ends = {"starts": [-5], "ends": [-9], "axes": [0], "steps": [-1]}
    weights = {name: np.array(value) for name, value in ends.items() if name != "steps" or given != "data"}
    inputs = [("x", ["N" if given == "open" else 3])]
    inputs += [("steps", TensorProto.INT64, [1])] if given == "data" else []
    proto = model([helper.make_node("Slice", ["x", *ends], ["y"])], inputs, ["y"], weights)
    x = np.arange(3, dtype=np.float32)
    net = fromOnnx(proto)
    np.testing.assert_array_equal(net(x, np.array([-1])) if given == "data" else net(x), [0])


def test_a_full_array_of_booleans_is_read():
    value = numpy_helper.from_array(np.array([True]))
    proto = model(
        [helper.make_node("ConstantOfShape", ["n"], ["y"], value=value)], [("n", TensorProto.INT64, [1])], ["y"]
    )
    np.testing.assert_array_equal(fromOnnx(proto)(np.array([2])), [True, True])


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_recurrent_layer_with_the_usual_options_is_a_layer_that_trains(kind):
    gates, rng = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], np.random.default_rng(1)
    shapes = {"W": (2, gates * 3, 4), "R": (2, gates * 3, 3), "B": (2, gates * 6)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", *weights], ["y"], hidden_size=3, direction="bidirectional", **options)
    net = fromOnnx(model([node], [("x", ["T", "N", 4])], ["y"], weights)).trainMode()
    assert kind in [type(node.module).__name__ for node in net.nodes]
    assert net.dataShapeFrom(("T", "N", 4)) == ("T", 2, "N", 3)
    x = rng.standard_normal((5, 2, 4)).astype(np.float32)
    net.backward(np.ones_like(net(x)))
    assert all(p.trainable and np.abs(p.grad).max() > 0 for p in net.params.values())


@pytest.mark.parametrize("shared", [("mean", "var"), ("scale", "bias"), ("scale", "bias", "mean", "var")])
@pytest.mark.parametrize("isUniform", [True, False])
def test_a_norm_of_batches_is_one_whoever_shares_its_arrays(shared, isUniform):
    rng, names, weights = np.random.default_rng(1), ("scale", "bias", "mean", "var"), {}
    nodes = []
    for i in (1, 2):
        each = [name if name in shared else f"{name}{i}" for name in names]
        weights |= {name: np.ones(3) if isUniform else 1 + rng.random(3) for name in each}
        kind = {"epsilon": i * 1e-5}  # two layers, not one at two positions
        nodes.append(helper.make_node("BatchNormalization", [f"x{i}", *each], [f"x{i + 1}"], name=f"norm{i}", **kind))
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    net = fromOnnx(model(nodes, [("x1", ["N", 3])], ["x3"], weights))
    assert [type(net[f"norm{i}"]).__name__ for i in (1, 2)] == ["BatchNorm"] * 2
    assert sorted(path.split(".")[1] for path in net.params) == ["bias", "bias", "scale", "scale"]
    assert not {id(s) for s in net["norm1"].states.values()} & {id(s) for s in net["norm2"].states.values()}
    x = rng.standard_normal((8, 3)).astype(np.float32)
    h = (x - weights.get("mean", weights.get("mean1"))) / np.sqrt(weights.get("var", weights.get("var1")))
    h = h * weights.get("scale", weights.get("scale1")) + weights.get("bias", weights.get("bias1"))
    h = (h - weights.get("mean", weights.get("mean2"))) / np.sqrt(weights.get("var", weights.get("var2")))
    h = h * weights.get("scale", weights.get("scale2")) + weights.get("bias", weights.get("bias2"))
    np.testing.assert_allclose(net(x), h, 1e-3, 1e-4)
    y = net.trainMode()(x)
    bias, scale = (weights.get(name, weights.get(f"{name}2")) for name in ("bias", "scale"))
    np.testing.assert_allclose(y.mean(0), bias, atol=1e-5)
    np.testing.assert_allclose(y.std(0), np.abs(scale), 1e-4)


@pytest.mark.parametrize(("producer", "isUniform", "count"), [("", True, 4), ("", False, 3), ("puregraph", True, 3)])
def test_equal_weights_that_an_exporter_merged_are_apart_and_tied_ones_stay_tied(producer, isUniform, count):
    rng = np.random.default_rng(1)
    bias = np.zeros(3) if isUniform else rng.standard_normal(3)
    weights = {"W": rng.standard_normal((3, 3)), "V": rng.standard_normal((3, 3)), "b": bias}
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["h"], name="first"),
        helper.make_node("Gemm", ["h", "W", "b"], ["i"], name="again"),
        helper.make_node("Gemm", ["i", "V", "b"], ["y"], name="other"),
    ]
    made = model(nodes, [("x", ["N", 3])], ["y"], {name: array.astype(np.float32) for name, array in weights.items()})
    made.producer_name = producer
    net = fromOnnx(made)
    assert len(net.params) == count
    x = rng.standard_normal((2, 3)).astype(np.float32)
    h = (x @ weights["W"] + bias) @ weights["W"] + bias
    np.testing.assert_allclose(net(x), h @ weights["V"] + bias, 1e-4, 1e-5)
    if count == 4:
        assert net["first"] is net["again"] and net["other"].b is not net["first"].b


@pytest.mark.parametrize("isOutput", [False, True])
def test_what_follows_from_a_weight_and_is_read_twice_stays_one_parameter(isOutput):
    nodes = [helper.make_node("Neg", ["W"], ["n"]), helper.make_node("Cos", ["n"], ["c"])]
    nodes += [helper.make_node("Mul", ["x", "c"], ["y"]), helper.make_node("Add", ["y", "n"], ["z"])]
    W, x = np.float32([0.5, 2]), np.float32([3, 4])
    names = ["y", "n"] if isOutput else ["z"]
    net = fromOnnx(model(nodes, [("x", [2])], names, {"W": W})).trainMode()
    assert len(net.params) == 1
    net(x)
    net.backward([np.ones(2, np.float32)] * 2 if isOutput else np.ones(2, np.float32))
    (p,) = net.params.values()
    np.testing.assert_allclose(p.grad, 1 - x * np.sin(-W), 1e-6)


GATHERED = {  # rows of a weight of four rows: those that are read twice, and those that are not
    "Gather": ([[0, 0, 3]], [[0, 1, 3]]),
    "GatherElements": ([[0, 1], [0, 2]], [[0, 1], [2, 3]]),
    "GatherND": ([[0], [0], [1]], [[0], [3], [1]]),
}


@pytest.mark.parametrize("kind", GATHERED)
@pytest.mark.parametrize("isRepeated", [True, False])
def test_a_weight_of_which_a_row_is_read_twice_stays_one_parameter(kind, isRepeated):
    index = np.array(GATHERED[kind][0 if isRepeated else 1])
    weights = {"W": np.arange(8.0, dtype=np.float32).reshape(4, 2), "index": index}
    nodes = [helper.make_node(kind, ["W", "index"], ["rows"]), helper.make_node("Mul", ["rows", "x"], ["y"])]
    net, x = fromOnnx(model(nodes, [("x", [1])], ["y"], weights)).trainMode(), np.full(1, 2, np.float32)
    y = net(x)
    net.backward(np.ones_like(y))
    (param,) = net.params.values()
    assert param.shape == (4, 2) if isRepeated else param.data.size == y.size
    assert param.grad.max() == (4 if isRepeated else 2)


def test_quantised_weights_stay_integers_in_memory():
    W = np.random.default_rng(1).integers(-128, 127, (300, 300)).astype(np.int8)
    nodes = [helper.make_node("DequantizeLinear", ["W", "s"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    net = fromOnnx(model(nodes, [("x", ["N", 300])], ["y"], {"W": W, "s": np.float32(0.5)}))
    held = sum(state.data.nbytes for state in net.states.values())
    assert W.nbytes <= held < W.nbytes + 100 and not net.params
    x = np.ones((2, 300), np.float32)
    np.testing.assert_allclose(net(x), x @ (W * np.float32(0.5)), rtol=1e-5)


def test_weights_of_16_bits_that_the_file_widens_take_the_floats_that_it_declares():
    W, x = np.ones((3, 4), np.float16), np.ones((2, 3), np.float32)
    nodes = [helper.make_node("Cast", ["W"], ["w"], to=1), helper.make_node("MatMul", ["x", "w"], ["y"])]
    net = fromOnnx(model(nodes, [("x", ["N", 3])], ["y"], {"W": W}))
    np.testing.assert_array_equal(net(x), np.full((2, 4), 3, np.float32))
    with pytest.raises(DtypeError, match="in 'x'|at 'x'"):
        net(x.astype(np.float64))


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ("xy xy", "value 'y' is the output of 2 nodes; every output needs a unique name"),
        ("hy xh", "node 'y' (Relu) reads 'h', which a later node computes: sort the nodes"),
        ("hy", "node 'y' (Relu) reads 'h', which no node computes"),
    ],
)
def test_nodes_that_are_not_in_order_or_not_there_are_refused_by_name(pairs, text):
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairs.split()]
    with pytest.raises(GraphError, match=re.escape(text)):
        fromOnnx(model(nodes, [("x", [2])], ["y"]))


ROLE, SOURCES = "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.computed_from"


@pytest.mark.parametrize(
    ("key", "note", "isTrained"),
    [
        (ROLE, "PARAMETER", True),
        (ROLE, "BUFFER", False),
        (SOURCES, "['val_0', 'val_3']", False),
        (SOURCES, "['fc.weight', 'val_3']", True),
        (SOURCES, "['weight']", True),
        ("other", "", True),
    ],
)
def test_what_pytorch_notes_as_no_parameter_is_not_trained(key, note, isTrained):
    made = model([helper.make_node("Mul", ["x", "w"], ["y"])], [("x", [2])], ["y"], {"w": np.float32([2, 3])})
    made.producer_name = "pytorch"
    info = made.graph.value_info.add(name="w")
    info.metadata_props.add(key=key, value=note)
    assert any(p.trainable for p in fromOnnx(made).params.values()) == isTrained


def floatsInside():
    """A model whose nodes name their floats: Cast, ConstantOfShape, EyeLike, OneHot, and a Cast in a branch."""
    helped = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.1])
    then = helper.make_graph(
        [helper.make_node("Cast", ["ids"], ["inner"], to=TensorProto.FLOAT), helper.make_node("Sin", ["inner"], ["a"])],
        "then",
        [],
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Cast", ["ids"], ["b"], to=TensorProto.FLOAT)],
        "other",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Cast", ["ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["floats"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Shape", ["ids"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["full"], value=helped),
        helper.make_node("EyeLike", ["ids"], ["eye"], dtype=TensorProto.FLOAT),
        helper.make_node("If", ["flag"], ["branch"], then_branch=then, else_branch=other),
        helper.make_node("Sum", ["floats", "full", "eye", "branch", "x"], ["sum"]),
        helper.make_node("Sin", ["sum"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [3, 3]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3]),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in (("y", 1), ("whole", 7))]
    return helper.make_model(
        helper.make_graph(nodes, "floats", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)]
    )


def test_nodes_that_name_their_floats_follow_the_dtype_that_a_graph_computes_in(tmp_path):
    net, rng = fromOnnx(floatsInside()), np.random.default_rng(1)
    ids, x = rng.integers(0, 1 << 30, (3, 3)), rng.standard_normal((3, 3))
    full = np.full((3, 3), np.float32(0.1).item())
    wanted = np.sin(ids + full + np.eye(3) + np.sin(ids.astype(np.float64)) + x)
    y, whole = net.calcMode(np.float64)([ids, np.array(True), x])
    np.testing.assert_allclose(y, wanted, 1e-12, 1e-12)
    np.testing.assert_array_equal(whole, ids)
    assert {node.data.dtype.name for node in net.nodes if node.module.label != "Input"} == {"float64", "int64"}
    program = net.compile([(3, 3), (), (3, 3)], train=False, dtypes=[np.int64, bool, np.float64])
    np.testing.assert_allclose(program.run(ids, np.array(True), x)[0], y, 1e-14, 1e-14)
    net.save(tmp_path / "net.h5")
    np.testing.assert_array_equal(puregraph.load(tmp_path / "net.h5")([ids, np.array(True), x])[0], y)
    np.testing.assert_array_equal(fromOnnx(toOnnx(net))([ids, np.array(True), x])[0], y)
    again = net.calcMode(np.float32)([ids, np.array(True), x.astype(np.float32)])
    np.testing.assert_array_equal(again[0], fromOnnx(floatsInside())([ids, np.array(True), x.astype(np.float32)])[0])
    assert again[0].dtype == np.float32


def test_the_shapes_of_equal_layers_are_inferred_once(monkeypatch):
    calls = []
    infer = LayerNorm.dataShapeFrom
    net = Sequential(*(LayerNorm(4, epsilon, name=f"n{i}") for i, epsilon in enumerate([1e-5, 1e-5, 1e-3, 1e-5])))
    model = toOnnx(net, None, [("N", 4)])
    monkeypatch.setattr(LayerNorm, "dataShapeFrom", lambda self, x: calls.append(self.epsilon) or infer(self, x))
    fromOnnx(model)
    assert calls == [1e-5, 1e-3]
