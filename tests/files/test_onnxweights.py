"""Initialisers of ONNX models as weight files, against onnx."""

import numpy as np
import pytest

from puregraph.core.errors import CheckpointError
from puregraph.serialize.weights import readWeights

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def modelOf(tensors, nodes=(), **options):
    """A model with these initialisers."""
    graph = helper.make_graph(list(nodes), "net", [], [], list(tensors), **options)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def tensorsOfEachKind(rng):
    """{name: (tensor, dtype in the file, values)} of every kind of numbers."""
    cases = {}
    for kind in "float16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split():
        values = rng.integers(0, 2 if kind == "bool" else 100, (3, 5)).astype(kind)
        cases[kind] = numpy_helper.from_array(values, kind), kind, values
    values = np.array([[1.5, -2.0, 0.125]], np.float32)
    for kind in ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2"):
        number = TensorProto.DataType.Value(kind)
        dtype = {"BFLOAT16": "bfloat16", "FLOAT8E4M3FN": "float8_e4m3fn", "FLOAT8E5M2": "float8_e5m2"}[kind]
        cases[kind] = helper.make_tensor(kind, number, values.shape, values.ravel().tolist()), dtype, values
    for kind in ("INT4", "UINT4"):
        small = np.array([[1, 7, 3]], np.int8 if kind == "INT4" else np.uint8)
        number = TensorProto.DataType.Value(kind)
        cases[kind] = helper.make_tensor(kind, number, small.shape, small.ravel().tolist()), kind.lower(), small
    cases["fields"] = helper.make_tensor("fields", TensorProto.FLOAT, (2, 2), [1.0, 2.0, 3.0, 4.0]), "float32", None
    cases["scalar"] = numpy_helper.from_array(np.array(2.5), "scalar"), "float64", np.array(2.5)
    cases["none"] = (
        numpy_helper.from_array(np.zeros((0, 3), np.float32), "none"),
        "float32",
        np.zeros((0, 3), np.float32),
    )
    return cases


def test_initialisers_of_each_kind_are_read():
    cases = tensorsOfEachKind(np.random.default_rng(0))
    weights = readWeights(modelOf([row[0] for row in cases.values()]).SerializeToString())
    assert list(weights) == list(cases) and weights.format == "onnx"
    assert weights.metadata["opset"] == {"": 18} and "skipped" not in weights.metadata
    for name, (tensor, dtype, values) in cases.items():
        values = numpy_helper.to_array(tensor) if values is None else values
        assert weights[name].shape == values.shape and weights[name].dtype == dtype
        read = weights[name].read()
        assert read.dtype == values.dtype and read.shape == values.shape and np.array_equal(read, values), name


def test_a_model_is_recognised_by_its_content_under_any_name(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(modelOf([numpy_helper.from_array(np.ones(3), "w")]).SerializeToString())
    with readWeights(path) as weights:
        assert np.array_equal(weights["w"].read(), np.ones(3))


def test_a_model_that_is_cut_off_is_refused_as_a_model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(modelOf([numpy_helper.from_array(np.ones(300), "w")]).SerializeToString()[:-50])
    with pytest.raises(CheckpointError, match="wanted an ONNX model, it cannot be decoded"):
        readWeights(path)


def test_data_beside_the_model_is_read_and_data_elsewhere_is_not(tmp_path):
    values = np.arange(2000, dtype=np.float32).reshape(40, 50)
    model = modelOf([numpy_helper.from_array(values, "w")])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    with readWeights(tmp_path / "m.onnx") as weights:
        assert np.array_equal(weights["w"].read(), values)
    data = (tmp_path / "m.onnx").read_bytes().replace(b"m.data", b"../d.a")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "m.onnx").write_bytes(data)
    (tmp_path / "d.a").write_bytes(bytes(8000))
    with readWeights(tmp_path / "inner" / "m.onnx") as weights, pytest.raises(CheckpointError, match="model's folder"):
        weights["w"].read()
    with pytest.raises(CheckpointError, match="give the path of the model"):
        readWeights(data)["w"].read()


def test_initialisers_of_branches_have_the_path_of_their_graph():
    inner = helper.make_graph([], "then", [], [], [numpy_helper.from_array(np.ones(2), "w")])
    nodes = [
        helper.make_node("If", ["c"], ["y"], "choose", then_branch=inner, else_branch=inner),
        helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner),
    ]
    weights = readWeights(modelOf([], nodes).SerializeToString())
    assert sorted(weights) == ["1/else_branch/w", "1/then_branch/w", "choose/else_branch/w", "choose/then_branch/w"]


def test_texts_and_sparse_tensors_are_named_as_skipped():
    text = helper.make_tensor("words", TensorProto.STRING, (1,), [b"a"])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "sparse"), numpy_helper.from_array(np.array([2])), (5,)
    )
    model = modelOf([text, numpy_helper.from_array(np.ones(2), "w")], sparse_initializer=[sparse])
    weights = readWeights(model.SerializeToString())
    assert list(weights) == ["w"] and weights.metadata["skipped"] == ["words", "sparse"]


def test_shapes_and_names_that_lie_are_refused():
    short = numpy_helper.from_array(np.ones(4, np.float32), "w")
    short.dims[0] = 1 << 40
    negative = numpy_helper.from_array(np.ones(4, np.float32), "w")
    negative.dims[0] = -4
    good = numpy_helper.from_array(np.ones(4, np.float32), "w")
    for tensors, words in [([short], "needs 4398046511104 bytes"), ([negative], "not possible"), ([good] * 2, "twice")]:
        with pytest.raises(CheckpointError, match=words):
            readWeights(modelOf(tensors).SerializeToString())


def test_elements_in_fields_that_do_not_fill_the_shape_are_refused():
    tensor = helper.make_tensor("w", TensorProto.FLOAT, (2, 2), [1.0, 2.0, 3.0, 4.0])
    tensor.dims[0] = 3
    weights = readWeights(modelOf([tensor]).SerializeToString())
    with pytest.raises(CheckpointError, match=r"'w': its data does not fill the shape \(3, 2\)"):
        weights["w"].read()
