"""Damaged models are refused with an error of puregraph's, or mean something else that is right; no other file is opened."""

import sys
import tracemalloc
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import hostileonnx  # noqa: E402
import limited  # noqa: E402
from onnx import helper  # noqa: E402
from onnxdamage import changed, compared, damaged  # noqa: E402
from test_onnx_branches import model as branching  # noqa: E402
from test_onnx_loops import loopModel, scanModel  # noqa: E402
from test_onnx_reader import mlp, model  # noqa: E402
from test_onnx_sequences import CASES, DOUBLED  # noqa: E402
from test_onnx_sequences import modelOf as sequenceModel  # noqa: E402

from puregraph import CheckpointError, Graph, GraphError, PuregraphError  # noqa: E402
from puregraph.onnx import fromOnnx  # noqa: E402
from puregraph.onnx.onnxsummary import OnnxSummary  # noqa: E402


def forms():
    """Small models of all that a file may have: layers, branches, loops, sequences, functions, quantised weights."""
    rng = np.random.default_rng(1)
    body = helper.make_node("LeakyRelu", ["a"], ["b"])
    body.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    leaky = helper.make_function("own", "Leaky", ["a"], ["b"], [body], [helper.make_opsetid("", 21)], ["slope"])
    calls = [helper.make_node("Leaky", [x], [y], domain="own", slope=0.5) for x, y in ("xh", "hy")]
    quantised = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["h"]),
        helper.make_node("DequantizeLinear", ["W", "s"], ["w"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    numbers = {"s": np.float32(0.5), "W": rng.integers(0, 9, (3, 2)).astype(np.uint8)}
    return {
        "layers": mlp()[0],
        "If": branching([], "flag"),
        "Loop": loopModel(np.random.default_rng(0))[0],
        "Scan": scanModel(rng)[0],
        "sequences": sequenceModel(*CASES["split by lengths, changed, joined"]),
        "sequence of graphs": sequenceModel([("SequenceConstruct", ["x", "x"], ["s"]), MAPPED], ["y"]),
        "functions": model(calls, [("x", [2])], ["y"], functions=[leaky]),
        "quantised": model(quantised, [("x", ["N", 3])], ["y"], numbers),
    }


MAPPED = ("SequenceMap", ["s"], ["y"], ("body", DOUBLED))
ROOM = 1 << 22  # bytes that reading any file takes, and what is imported by then


def check(count, seed, tmp_path):
    """Read damaged models: each gives a graph or an error of puregraph's, opens itself alone and starts nothing.

    It takes no more than twice the memory of what is in the file.
    """
    rng, sound = np.random.default_rng(seed), list(forms().values())
    for each in sound:
        fromOnnx(each)  # all readers are imported
    path, events, isWatched = tmp_path / "net.onnx", [], False
    (tmp_path / "secret").write_bytes(b"secret")

    def watched(event, args):
        if isWatched and event in ("open", "os.system", "os.exec", "subprocess.Popen", "socket.connect", "import"):
            events.append((event, str(args[0])))

    sys.addaudithook(watched)
    tracemalloc.start()
    try:
        for i in range(count):
            chosen = sound[i % len(sound)]
            path.write_bytes(changed(chosen, rng) if rng.random() < 0.6 else damaged(chosen.SerializeToString(), rng))
            tracemalloc.reset_peak()
            before, isWatched = tracemalloc.get_traced_memory()[0], True
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert isinstance(fromOnnx(path), Graph)
                except PuregraphError:
                    pass
            isWatched = False
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 2 * path.stat().st_size + ROOM, (i, peak)
    finally:
        isWatched = False
        tracemalloc.stop()
    assert set(events) <= {("open", str(path))}


def read(data):
    """The graph of a file's bytes."""
    fromOnnx(onnx.ModelProto.FromString(data))


@pytest.mark.parametrize("isLong", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_small_model_that_would_cost_much_is_read_or_refused_within_two_seconds_and_200_megabytes(isLong):
    makers = hostileonnx.LONG if isLong else [f for f in hostileonnx.FILES if f not in hostileonnx.LONG]
    found = limited.outcomes(read, [make().SerializeToString() for make in makers])
    limited.check([make.__name__ for make in makers], found)


@pytest.mark.parametrize("field", ["graph", "node", "input", "output", "kind", "array"])
def test_a_name_that_is_no_text_is_refused(tmp_path, field):
    model = mlp()[0]
    graph = model.graph
    if field == "graph":
        graph.name = "@@@@"
    elif field == "kind":
        graph.node[0].op_type = "@@@@"
    else:
        {"node": graph.node, "input": graph.input, "output": graph.output, "array": graph.initializer}[field][
            0
        ].name = "@@@@"
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString().replace(b"@@@@", b"a\xff\xfeb"))
    with pytest.raises(CheckpointError, match=r"wanted a text in UTF-8, got b'a\\xff\\xfeb'"):
        fromOnnx(path)


def test_texts_of_a_file_reach_no_terminal_as_commands(tmp_path):
    made = hostileonnx.model([("Relu", ["x"], ["y"])])
    made.producer_name, made.doc_string = "\x1b]0;title\x07", "\x1b[2J"
    made.opset_import.add(domain="\x1b[31m", version=1)
    path = tmp_path / "net.onnx"
    path.write_bytes(made.SerializeToString())
    text = OnnxSummary(path).text(80, False)
    assert "written by \\x1b]0;title\\x07" in text and "1 of \\x1b[31m" in text
    assert text.replace("\n", "").isprintable() and fromOnnx(path).__doc__ == "\\x1b[2J"
    made.graph.node[0].op_type = "\x1b[31mRed"
    with pytest.raises(GraphError) as caught:
        fromOnnx(made)
    assert "\\x1b[31mRed" in str(caught.value) and str(caught.value).replace("\n", "").isprintable()


def test_160_damaged_models_of_all_forms_are_refused_or_read(tmp_path):
    check(160, 1, tmp_path)


@pytest.mark.slow
def test_10000_damaged_models_of_all_forms_are_refused_or_read(tmp_path):
    check(10_000, 2, tmp_path)


def spoiled(count, seed):
    """Damaged models of all forms."""
    rng, sound = np.random.default_rng(seed), list(forms().values())
    for i in range(count):
        chosen = sound[i % len(sound)]
        yield changed(chosen, rng) if rng.random() < 0.8 else damaged(chosen.SerializeToString(), rng)


def checkOutputs(count, seed):
    """What is read of damaged models gives what onnxruntime gives of them, where it runs them."""
    files = list(spoiled(count, seed))
    found = compared(files)
    wrong = {i: text for i, text in enumerate(found) if text.startswith("wrong")}
    assert not wrong, wrong
    assert found.count("equal") > count / 20


def test_what_is_read_of_400_damaged_models_gives_what_onnxruntime_gives():
    checkOutputs(400, 3)


@pytest.mark.slow
def test_what_is_read_of_10000_damaged_models_gives_what_onnxruntime_gives():
    checkOutputs(10_000, 4)


def test_a_body_reads_what_is_left_out_around_it_as_left_out():
    """An input of a function that the call leaves out, read by the body of a Scan inside of it."""
    body = hostileonnx.graph(
        [("Clip", ["s", "low", "high"], ["r"])], [hostileonnx.value("s", None)], [hostileonnx.value("r", None)]
    )
    scan = helper.make_node("Scan", ["a"], ["b"], body=body, num_scan_inputs=1)
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "f", ["a", "low", "high"], ["b"], [scan], opsets)
    made = hostileonnx.model([], ["x"], functions=[function], initializers=hostileonnx.arrays(h=np.float32(0.5)))
    made.graph.node.append(helper.make_node("f", ["x", "", "h"], ["y"], domain="own"))
    x = np.array([-1.0, 2.0], np.float32)
    np.testing.assert_array_equal(fromOnnx(made)(x), np.minimum(x, 0.5))


def test_an_output_that_is_left_out_is_refused():
    body = hostileonnx.graph(
        [("Relu", ["s"], ["r"])],
        [hostileonnx.value("s", None)],
        [hostileonnx.value("r", None), hostileonnx.value("low", None)],
    )
    scan = helper.make_node("Scan", ["a"], ["b", "c"], body=body, num_scan_inputs=1)
    function = helper.make_function("own", "f", ["a", "low"], ["b"], [scan], [helper.make_opsetid("", 21)])
    made = hostileonnx.model([], ["x"], functions=[function])
    made.graph.node.append(helper.make_node("f", ["x"], ["y"], domain="own"))
    with pytest.raises(GraphError, match="its graph returns 'low', an optional value that is absent"):
        fromOnnx(made)
