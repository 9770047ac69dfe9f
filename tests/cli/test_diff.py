"""`puregraph diff` lists what differs between checkpoints, ONNX files, models in Python and files of weights."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import puregraph
from puregraph import BatchNorm, Graph, Input, LayerNorm, Linear, Relu, Sequential, Sigmoid, Sub, WeightNorm
from puregraph.cli import main
from puregraph.cli.diffcommand import CheckpointSide, sideOf
from puregraph.draw.differencepicture import differenceDrawing
from puregraph.graph.analysis.difference import distance, graphDifference

SCRIPT = """
from puregraph import BatchNorm, Linear, Relu, Sequential, seed

def net():
    seed(3)
    return Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Relu(name="relu"), Linear(4, 2, name="out"), name="net")
"""


def net(*more):
    """A small network with weights of one seed."""
    puregraph.seed(3)
    layers = [Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Relu(name="relu"), Linear(4, 2, name="out"), *more]
    return Sequential(*layers, name="net")


def saved(path, graph):
    """The path of a graph that was saved."""
    graph.save(path)
    return str(path)


def test_equal_models_are_equal_whether_they_are_files_or_code(tmp_path, capsys):
    first = saved(tmp_path / "a.h5", net())
    (tmp_path / "model.py").write_text(SCRIPT)
    assert main(["diff", first, f"{tmp_path / 'model.py'}:net"]) == 0
    assert "6 nodes equal, 0 changed, 0 only in" in capsys.readouterr().out


def test_weights_that_differ_are_listed_with_the_largest_difference(tmp_path, capsys):
    first, other = saved(tmp_path / "a.h5", net()), net()
    other["out"].b.data[1] += 0.25
    other["norm"].mean.data[:] = -0.5
    second = saved(tmp_path / "b.h5", other)
    assert main(["diff", first, second]) == 1
    text = capsys.readouterr().out
    assert "~ norm\n    mean: (4,) float32, values differ by up to 0.5" in text
    assert "~ out\n    b: (2,) float32, values differ by up to 0.25" in text and "2 changed" in text
    assert main(["diff", first, second, "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert [row["first"] for row in facts["changed"]] == ["norm", "out"] and facts["equal"] == 4
    assert facts["changed"][1]["arrays"][0] == {
        "name": "b", "first": "(2,) float32", "second": "(2,) float32", "largest": 0.25
    }  # fmt: skip


def test_nodes_of_other_settings_shapes_and_sources_are_listed():
    puregraph.seed(0)
    x, y = Input(("N", 3), name="x").node(), Input(("N", 3), name="y").node()
    first = Graph([x, y], Relu(name="act")(Linear(3, 5, name="fc")(Sub(name="minus")(x, y))), name="net")
    x, y = Input(("N", 3), name="x").node(), Input(("N", 3), name="y").node()
    second = Graph(
        [x, y], Relu(name="act")(Linear(3, 7, useBias=False, name="fc")(Sub(name="minus")(y, x))), name="net"
    )
    text = graphDifference(first, second).text("a", "b")
    assert "module: Linear(insize=3, outsize=5" in text and "W: (3, 5) float32 -> (3, 7) float32" in text
    assert "b: (5,) float32 -> none" in text and "reads: x, y -> y, x" in text
    assert "    shape: (N, 5) -> (N, 7)" in text


def test_nodes_are_matched_by_path_then_by_kind_and_shape_in_order():
    first = Sequential(Linear(3, 3, name="a"), Linear(3, 3, name="b"), Linear(3, 3, name="c"), name="net")
    second = Sequential(
        Linear(3, 3, name="u"), Linear(3, 3, name="b"), Linear(3, 3, name="w"), Sigmoid(name="s"), name="net"
    )
    for name, other in ("au", "bb", "cw"):
        second[other].W.data, second[other].b.data = first[name].W.data, first[name].b.data
    compared = graphDifference(first, second)
    assert [(change.first, change.second) for change in compared.changed if change.first != change.second] == [
        ("a", "u"),
        ("c", "w"),
    ]
    assert [node.path for node in compared.onlySecond] == ["s"] and not compared.onlyFirst
    assert not any(change.arrays for change in compared.changed)


def test_differences_of_numbers_are_of_bits_and_of_values():
    a = np.array([1, np.nan, np.inf, 0], np.float32)
    assert distance(a, a.copy()) is None and distance(a, np.array([1, np.nan, np.inf, -0.0], np.float32)) == 0
    assert distance(a, np.array([1, 2, np.inf, 0], np.float32)) == np.inf
    assert distance(a, np.array([1, np.nan, -np.inf, 0], np.float32)) == np.inf
    assert distance(np.array([3], np.int64), np.array([5], np.int64)) == 2
    many = np.random.default_rng(0).standard_normal(3_000_001).astype(np.float32)
    other = many.copy()
    other[-1] += 2
    assert abs(distance(many, other) - 2) < 1e-6


def test_an_onnx_file_equals_the_graph_that_it_was_written_from(tmp_path, capsys):
    pytest.importorskip("onnx")
    from puregraph.onnx import toOnnx

    norm = LayerNorm(4, epsilon=1e-3, name="norm")
    first = Sequential(Linear(3, 4, name="fc"), norm, Relu(name="act"), Linear(4, 2, name="out"), name="net")
    toOnnx(first, tmp_path / "net.onnx", [("N", 3)])
    path = saved(tmp_path / "net.h5", first)
    assert main(["diff", path, str(tmp_path / "net.onnx")]) == 0
    first["fc"].W.data[0, 0] += 1
    assert main(["diff", saved(tmp_path / "net.h5", first), str(tmp_path / "net.onnx")]) == 1
    assert "~ fc\n    W: (3, 4) float32, values differ by up to 1" in capsys.readouterr().out


def test_weights_of_other_programs_are_compared_with_a_model_by_name(tmp_path, capsys):
    first = net()
    arrays = {name: np.array(value.data) for name, value in {**first.params, **first.states}.items()}
    np.savez(tmp_path / "same.npz", **arrays)
    arrays["fc.W"][0, 0] += 3
    del arrays["out.b"]
    np.savez(tmp_path / "other.npz", **arrays)
    path = saved(tmp_path / "a.h5", first)
    assert main(["diff", path, str(tmp_path / "same.npz")]) == 0
    assert main(["diff", path, str(tmp_path / "other.npz")]) == 1
    text = capsys.readouterr().out
    assert "~ fc.W\n    values: (3, 4) float32, values differ by up to 3" in text and "- out.b (array): only in" in text
    assert main(["diff", path, str(tmp_path / "other.npz"), "-o", str(tmp_path / "x.svg")]) == 2
    assert "which has no nodes to draw" in capsys.readouterr().err


def test_a_picture_marks_what_differs(tmp_path, capsys):
    first, other = net(), net(Sigmoid(name="end"))
    other["fc"].W.data[0] = 0
    drawing = differenceDrawing(first, other, graphDifference(first, other))
    assert {box.name for box in drawing.whole.boxes if box.kind == "fault"} == {"fc", "end"}
    assert "not in the first model" in next(box.lines for box in drawing.whole.boxes if box.name == "end")
    pytest.importorskip("networkx")
    paths = [saved(tmp_path / "a.h5", first), saved(tmp_path / "b.h5", other)]
    for name in ("diff.svg", "diff.html"):
        assert main(["diff", *paths, "-o", str(tmp_path / name)]) == 1
        assert "fault" in (tmp_path / name).read_text()
    assert main(["diff", *paths, "-o", str(tmp_path / "diff.txt")]) == 2
    assert "wanted a file name that ends in" in capsys.readouterr().err


def test_what_cannot_be_read_is_no_difference(tmp_path, capsys):
    path = saved(tmp_path / "a.h5", net())
    (tmp_path / "text.h5").write_text("nothing")
    assert main(["diff", path, str(tmp_path / "text.h5")]) == 2
    assert main(["diff", path, str(tmp_path / "none.h5")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def fiveThousandNodes():
    """Two networks of 5,000 nodes; one weight differs."""
    graphs = []
    for _ in range(2):
        puregraph.seed(1)
        layers = [
            m for i in range(1667) for m in (Linear(8, 8, name=f"l{i}"), Relu(name=f"r{i}"), LayerNorm(8, name=f"n{i}"))
        ]
        graphs.append(Sequential(*layers, name="net"))
    graphs[1]["l1000"].W.data[3, 3] = 0
    return graphs


def test_five_thousand_nodes_take_about_a_second():
    graphs = fiveThousandNodes()
    start = time.process_time()
    compared = graphDifference(*graphs)
    assert time.process_time() - start < 5  # 0.4 s on a machine with nothing else to do
    assert [change.first for change in compared.changed] == ["l1000"] and compared.equal == 5002


@pytest.mark.parametrize("ending", ["h5", "onnx", "safetensors"])
def test_files_of_five_thousand_nodes_take_about_a_second(ending, tmp_path, capsys):
    graphs = fiveThousandNodes()
    first, second = saved(tmp_path / "a.h5", graphs[0]), str(tmp_path / f"b.{ending}")
    if ending == "onnx":
        pytest.importorskip("onnx")
        from puregraph.onnx import toOnnx

        toOnnx(graphs[1], second, [("N", 8)])
    else:
        saved(second, graphs[1])
    start = time.process_time()
    assert main(["diff", first, second]) == 1
    assert time.process_time() - start < 5  # under 1 s on a machine with nothing else to do
    count = 6667 if ending == "safetensors" else 5002
    assert f"{count} nodes equal, 1 changed, 0 only" in capsys.readouterr().out


def test_checkpoints_of_one_network_are_compared_as_their_graphs_are(tmp_path, capsys):
    first, second = net(), net()
    for i, (path, param) in enumerate(second.params.items()):
        param.data = first.params[path].data + (i == 2)
    paths = [saved(tmp_path / "a.h5", first), saved(tmp_path / "b.h5", second)]
    assert main(["diff", *paths]) == 1
    text = capsys.readouterr().out
    assert text == graphDifference(first, second).text(*paths) + "\n"
    data = bytearray(Path(paths[1]).read_bytes())
    data[-1 - data[::-1].index(second.params[path].data.tobytes()[::-1][:4])] ^= 1  # in the last array
    Path(paths[1]).write_bytes(data)
    assert main(["diff", *paths]) == 2
    assert f"cannot load '{paths[1]}'" in capsys.readouterr().err


def test_checkpoints_share_a_graph_only_if_their_blueprints_are_equal(tmp_path):
    paths = [saved(tmp_path / name, graph) for name, graph in (("a.h5", net()), ("b.h5", net()))]
    other = saved(tmp_path / "c.h5", net(Sigmoid(name="end")))
    with ExitStack() as stack:
        first, second, third = [sideOf(path, stack) for path in (*paths, other)]
        assert all(isinstance(side, CheckpointSide) for side in (first, second, third))
        first.build(None)
        second.build(first)
        third.build(first)
        assert second.graph is first.graph and third.graph is not first.graph
        assert all(not value.made for value in first.graph.params.values()), "arrays are read when they are compared"


def test_a_damaged_array_names_its_file_whichever_side_it_is_on(tmp_path, capsys):
    paths = [saved(tmp_path / "a.h5", net()), saved(tmp_path / "b.h5", net())]
    for path in paths:
        intact = Path(path).read_bytes()
        damaged = bytearray(intact)
        damaged[damaged.index(net()["fc"].W.data.tobytes())] ^= 1
        Path(path).write_bytes(damaged)
        assert main(["diff", *paths]) == 2
        text = capsys.readouterr().err
        assert f"cannot load '{path}': 'params/fc.W' is damaged" in text and text.count("cannot load") == 1
        Path(path).write_bytes(intact)


def test_tied_and_computed_parameters_of_checkpoints_are_read_once(tmp_path, capsys):
    first = Linear(3, 3, name="fc")
    tied = Sequential(first, Relu(), first, Linear(3, 2, name="out"), name="net")
    WeightNorm.on(tied, "out.W")
    paths = [saved(tmp_path / "a.h5", tied), saved(tmp_path / "b.h5", tied)]
    assert main(["diff", *paths]) == 0
    first.W.data[0, 0] += 2
    assert main(["diff", paths[0], saved(tmp_path / "b.h5", tied)]) == 1
    assert "values differ by up to 2" in capsys.readouterr().out


def test_the_command_imports_no_compiler_and_no_trainer(tmp_path):
    path = saved(tmp_path / "a.h5", net())
    code = f"import sys; from puregraph.cli import main; main(['diff', {path!r}, {path!r}]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    names = set(done.stdout.split())
    assert "6 nodes equal" in done.stdout and "puregraph.cli.diffcommand" in names
    assert not names & {f"puregraph.{name}" for name in ("compile", "train", "distributed", "draw", "onnx")}
