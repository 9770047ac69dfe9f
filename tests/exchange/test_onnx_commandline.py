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
from puregraph import Linear, Relu, Sequential  # noqa: E402
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
    assert "differ from onnxruntime's by" in capsys.readouterr().out


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
    assert "differ from onnxruntime's by" in capsys.readouterr().out
