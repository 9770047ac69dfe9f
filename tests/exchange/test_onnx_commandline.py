"""`puregraph onnx` prints what is in a model, saves its graph, compares it with onnxruntime; the page lists what is read."""

import json
import re

import numpy as np
import pytest
from onnxclaims import CLAIMED, CONSTANT, EXPANDED, RANDOM, SEQUENCES
from source import ROOT

onnx = pytest.importorskip("onnx")

import hostileonnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import puregraph  # noqa: E402
from puregraph import Conv2D, Linear, Relu, Sequential  # noqa: E402
from puregraph.cli import main  # noqa: E402
from puregraph.onnx import toOnnx  # noqa: E402


@pytest.fixture
def path(tmp_path):
    """A model of two layers."""
    net = Sequential(Linear(3, 4, name="fc"), Relu(name="relu"), name="net")
    toOnnx(net, tmp_path / "net.onnx", [("N", 3)])
    return tmp_path / "net.onnx"


def test_a_model_is_listed_and_saved(path, capsys):
    assert main(["onnx", str(path), "--to", str(path.with_suffix(".h5"))]) == 0
    text = capsys.readouterr().out
    assert "fc    Linear(3, 4" in text and "2 nodes of 2 operators: Gemm 1, Relu 1" in text and "opset 28" in text
    again = puregraph.load(path.with_suffix(".h5"))
    assert again(np.ones((2, 3), np.float32)).shape == (2, 4)


def test_a_model_as_json(path, capsys):
    assert main(["onnx", str(path), "8,3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] == {"Gemm": 1, "Relu": 1}


@pytest.mark.peers
def test_a_model_is_compared_with_onnxruntime(path, capsys):
    pytest.importorskip("onnxruntime")
    assert main(["onnx", str(path), "--check"]) == 0
    text = capsys.readouterr().out
    assert "outputs at (1, 3) differ from onnxruntime's by" in text and "; compiled, by" in text
    assert main(["onnx", str(path), "--check", "--shape", "fc_x=5,3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert max(facts["distances"]) < 1e-6 and max(facts["compiledDistances"]) < 1e-6


@pytest.mark.peers
def test_a_model_that_one_sample_does_not_fit_is_compared_once_shapes_are_given(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    net = Sequential(Conv2D(3, 2, 5, name="conv"), Relu(name="relu"), name="net")
    path = tmp_path / "net.onnx"
    toOnnx(net, path, [("N", 3, "H", "W")])
    assert main(["onnx", str(path), "--check"]) == 1
    text = capsys.readouterr().err
    assert "the model does not run with 1 for each open size" in text and "--shape conv_x=N,3,H,W" in text
    assert "Traceback" not in text and len(text.splitlines()) == 2
    assert main(["onnx", str(path), "--check", "--shape", "conv_x=2,3,9,7"]) == 0
    assert "outputs at (2, 3, 9, 7)" in capsys.readouterr().out
    assert main(["onnx", str(path), "2,3,9,7", "--check"]) == 0
    assert main(["onnx", str(path), "--check", "--shape", "other=2,3,9,7"]) == 1
    assert "there is no input 'other'; the inputs are conv_x" in capsys.readouterr().out
    assert main(["onnx", str(path), "--check", "--shape", "2,3,9,7"]) == 2
    assert "--shape: wanted NAME=1,3,224,224, got '2,3,9,7'" in capsys.readouterr().err


@pytest.mark.peers
def test_a_model_that_onnxruntime_refuses_is_compared_with_a_sentence(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], name="it")
    shapes = {"none": None, "known": [2, 3]}
    for name, shape in shapes.items():
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_empty_tensor_value_info("y")]
        scale = onnx.numpy_helper.from_array(np.array(0.1, np.float32), "scale")
        graph = helper.make_graph([node], "g", ends[:1], ends[1:], [scale])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)]), tmp_path / f"{name}.onnx")
    assert main(["onnx", str(tmp_path / "known.onnx"), "--check"]) == 1
    assert "--check: onnxruntime" in (text := capsys.readouterr().err) and "older opset" in text and "'it'" in text
    assert main(["onnx", str(tmp_path / "none.onnx"), "--check"]) == 1
    assert "the shapes of its inputs are not known: give them" in capsys.readouterr().err


def test_a_model_that_cannot_be_read_says_why(tmp_path, capsys):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    node = helper.make_node("Strange", ["x"], ["y"], name="it", domain="own")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets)
    onnx.save(model, tmp_path / "own.onnx")
    assert main(["onnx", str(tmp_path / "own.onnx")]) == 1
    assert "own.Strange: 'it'" in capsys.readouterr().out


def test_the_page_lists_the_operators_that_are_read():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8").partition("## What is read")[2]
    text = text.partition("### Operators of onnxruntime")[0]
    lists = [re.findall(r"`(\w+)`", part) for part in text.split("\n\n") if part.count("` `") > 3]
    assert lists == [CLAIMED, EXPANDED, sorted({*CONSTANT, *SEQUENCES}), RANDOM]


@pytest.mark.peers
def test_sequences_are_compared_value_by_value(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    nodes = [("SequenceConstruct", ["x", "x"], ["y"])]
    made = hostileonnx.model(nodes, outputs=[helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(made, tmp_path / "net.onnx")
    assert main(["onnx", str(tmp_path / "net.onnx"), "--check"]) == 0
    assert "differ from onnxruntime's by 0.0e+00, 0.0e+00 of the largest" in capsys.readouterr().out
