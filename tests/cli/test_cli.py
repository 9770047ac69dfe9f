"""The command line: what it prints, its exit codes, its sentences about wrong arguments, and models of any size."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from damage import placesIn
from hostile import manifestOf, withManifest

from puregraph import cli
from puregraph.cli import doctorcommand
from puregraph.core.storage.jsoncodec import dumps
from puregraph.graph.analysis.summary import summary
from puregraph.graph.sequential import Sequential
from puregraph.models import lenet
from puregraph.modules import Dropout, Linear
from puregraph.modules.costs import CrossEntropy
from puregraph.optimizers import SGD, MomentumSGD
from puregraph.serialize.checkpoint import save
from puregraph.train import Checkpoint, Trainer

MODELS = """
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.modules import Add, Flatten, Linear, Relu, SoftMax
from puregraph.graph.sequential import Sequential
from neighbour import WIDTH

def net():
    image, words = Input(name="image").node(), Input(name="words").node()
    flat = Flatten(name="flat")(Relu(name="relu")(image))
    head, embed = Linear(100, 10, name="head")(flat), Linear(30, WIDTH, name="embed")(words)
    return Graph([image, words], [Add(name="sum")(head, embed), SoftMax(name="soft")(head)])

def deep(depth):
    return Sequential(*[Linear(3, 3) for _ in range(depth)])

def boom():
    raise ValueError("no weights here")

def number():
    return 5

def none():
    return Sequential()

def single():
    return Relu()

class Deep(Graph):
    def __init__(self, depth):
        pass
"""
CLASS = """
from .width import WIDTH
from puregraph.modules import Linear
from puregraph.graph import Graph
print("importing")

class Net(Graph):
    def __init__(self):
        print("building")
        node = Linear(3, WIDTH, name="fc").node()
        super().__init__(node, node)
"""
TWO = """
from puregraph.modules import Linear
from puregraph.graph.sequential import Sequential
first, second = Sequential(Linear(3, 4)), Sequential(Linear(3, 5))
def third(): return first
"""
HUGE = """
from puregraph.modules import Embedder, Linear, Relu
from puregraph.graph.sequential import Sequential

def block(width, inner):
    mix = [Linear(width, width, name=name) for name in "qkvo"]
    return Sequential(*mix, Linear(width, inner, name="up"), Relu(), Linear(inner, width, name="down"))

def net():
    blocks = [block(8192, 4 * 8192 + 4096) for _ in range(80)]
    return Sequential(Embedder(32000, 8192, name="words"), *blocks, Linear(8192, 32000, name="head"), name="huge")
"""
MEASURED = """
import re, sys
from puregraph import cli
from puregraph.cli import modelargument
graphs, find = [], modelargument.findGraph
modelargument.findGraph = lambda target: graphs.append(find(target)) or graphs[0]
code = cli.main(["shapes", "huge.py:net", "N,4096", "--json"])
made = any(p.made for p in (*graphs[0].params.values(), *graphs[0].states.values()))
memory = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]  # ru_maxrss has the parent's in it
print(code, made, memory, file=sys.stderr)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder to work in; the module path is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in {"neighbour": "WIDTH = 10", "models": MODELS, "two": TWO, "huge": HUGE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "fails.py").write_text("import puregraph\nx = 1 / 0\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "reads.py").write_text("from pathlib import Path\nPath('gone').read_text()\n")
    (tmp_path / "stops.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "parcel").mkdir()
    for name, text in {"__init__": "", "width": "WIDTH = 5", "net": CLASS}.items():
        (tmp_path / "parcel" / f"{name}.py").write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("neighbour", "parcel")]:
        del sys.modules[name]


@pytest.fixture
def run(capsys):
    """Run a command: its exit code, what it printed, and what it complained of."""

    def call(*arguments):
        try:
            code = cli.main(list(arguments))
        except SystemExit as error:  # argparse leaves so
            code = error.code
        return code, *capsys.readouterr()

    return call


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, **options
    )


# shapes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["N,1,28,28", "(N, 1, 28, 28)", "[N,1,28,28]", "N,1,28,28,"])
def test_shapes_prints_the_table(run, shape):
    assert run("shapes", "puregraph.models:lenet", shape) == (0, summary(lenet(), ("N", 1, 28, 28)) + "\n", "")


def test_a_file_with_one_graph_needs_no_name(run):
    (code, out, _) = run("shapes", "huge.py:net", "N,16")
    assert code == 0
    assert "(N, 16) -> (N, 16, 32000)" in out
    with open("one.py", "w") as file:
        file.write("from puregraph.models.lenet import lenet\ndef helper(a): return a\nmine = lenet()\n")
    assert run("shapes", "one.py", "N,1,28,28")[0] == 0


def test_a_shape_for_each_input_and_all_faults(run):
    code, out, err = run("shapes", "models.py:net", "N,3,5,5", "N,20")
    assert (code, err) == (1, "")
    assert "2 nodes do not fit their inputs:" in out
    assert "  head (Linear)\n    wanted  (..., 100)\n    got     (N, 75) from 'flat'\n" in out
    assert "  embed (Linear)\n    wanted  (..., 30)\n    got     (N, 20) from 'words'\n" in out
    code, out, _ = run("shapes", "models.py:net", "N,4,5,5", "N,30")
    assert (code, "(N, 4, 5, 5), (N, 30) -> 2 x (N, 10)" in out) == (0, True)


def test_shapes_as_json(run):
    code, out, _ = run("shapes", "--json", "puregraph.models:lenet", "N,1,28,28")
    found = json.loads(out)
    assert (code, found["params"], found["paramBytes"], found["faults"]) == (0, 61706, 246824, [])
    assert (found["inputs"], found["outputs"]) == ([["N", 1, 28, 28]], [["N", 10]])
    assert found["nodes"][0] == {
        "name": "conv1",
        "module": "Conv2D(1, 6, 5, pad=2, initscheme='he', name='conv1')",
        "from": ["image"],
        "data": [["N", 6, 28, 28]],
        "dtypes": ["float32"],
        "grad": [["N", 1, 28, 28]],
        "params": 156,
        "bytes": "18816*N",
        "flops": "239904*N",
        "fault": None,
    }
    assert found["step"] == {"at": {"N": 1}, "keptBytes": 42592, "peakBytes": 552608, "eagerBytes": 619864}


def test_faults_as_json(run):
    code, out, _ = run("shapes", "--json", "models.py:net", "N,3,5,5", "N,20")
    found = json.loads(out)
    assert (code, found["outputs"], found["step"]) == (1, None, None)
    assert [node["name"] for node in found["nodes"] if node["fault"]] == ["head", "embed"]
    assert found["faults"][0] == "at 'head' (Linear): wanted (..., 100), got (N, 75) from 'flat'"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ("none.py 3", "there is no file 'none.py'"),
        ("no.such:net 3", "there is no module 'no.such'; name a FILE.py, or a package.module that can be imported"),
        ("models.py:nett 3", "models.py has no 'nett'; it has net"),
        ("models.py:deep 3", "models.py:deep needs arguments (depth): name a function that needs none"),
        ("models.py:number 3", "models.py:number: wanted a Graph, or a function that returns one, got int"),
        ("models.py:WIDTH 3", "models.py:WIDTH: wanted a Graph, or a function that returns one, got int"),
        (
            "models.py:Linear 3",
            "models.py:Linear: wanted a Graph, or a function that returns one, got the class Linear",
        ),
        ("models.py:single 3", "returns one, got Relu; put it into a Sequential"),
        ("models.py:Deep 3", "models.py:Deep needs arguments (depth)"),
        ("reads.py 3", "reads.py raises FileNotFoundError at line 2 of"),
        (
            "two.py:first -1,3",
            "'-1,3' is not a shape: write whole numbers, or a letter for an open size, as in N,3",
        ),
        ("two.py:first \u00b2,3", "cannot read the shape"),
        ("two.py:first \x0b", "cannot read the shape"),
        ("models.py:boom 3", "models.py:boom raises ValueError at line 18 of"),
        ("models.py:boom 3", "models.py: no weights here"),
        (
            "models.py 3",
            "say which graph of models.py is meant, as in models.py:net; it has net, boom, number, none, single",
        ),
        ("two.py 3", "say which graph of two.py is meant, as in two.py:first; it has first, second"),
        ("nothing.py 3", "as in nothing.py:NAME; it has neither a Graph nor a function or class that makes one"),
        ("fails.py 3", "fails.py raises ZeroDivisionError at line 2 of"),
        ("broken.py 3", "broken.py raises SyntaxError"),
        ("leaves.py 3", "leaves.py raises SystemExit at line 1 of"),
        ("two.py:first 3,x!", "cannot read the shape '3,x!': write 32,1,28,28, or N,1,28,28 for any batch"),
        ("two.py:first 3,,4", "cannot read the shape '3,,4'"),
        ("two.py:first 3,-4", "cannot read the shape '3,-4'"),
        ("two.py:first N,3 N,3", "wanted 1 input (linear), got 2; give one shape for each input"),
        ("models.py:net N,3", "wanted 2 inputs (image, words), got 1; give one shape for each input"),
        ("two.py:first", "the following arguments are required: SHAPE"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_one_sentence(run, arguments, sentence):
    for command in ("shapes", "check"):
        code, out, err = run(command, *arguments.split(" "))
        assert (code, out) == (2, "")
        assert sentence in err
        assert "Traceback" not in err
        if "usage:" not in err:
            assert err.startswith(f"puregraph {command}: ")
            assert err.count("\n") == 1


@pytest.mark.parametrize("place", ["parcel/net.py", "parcel/net.py:Net", "parcel.net", "parcel.net:Net"])
def test_a_class_of_graphs_in_a_package_is_found_by_file_and_by_name(run, place):
    code, out, _ = run("shapes", place, "N,3")
    assert code == 0 and "(N, 3) -> (N, 5)" in out


@pytest.mark.parametrize("command", ["shapes", "check"])
def test_what_a_model_prints_does_not_get_into_json(run, command):
    code, out, err = run(command, "--json", "parcel.net:Net", "N,3")
    assert code == 0 and json.loads(out)["nodes"][0]["name"] == "fc"
    assert err == "importing\nbuilding\n"


def test_ctrl_c_is_one_line(run):
    assert run("shapes", "stops.py", "N,3") == (130, "", "puregraph shapes: interrupted\n")


def test_no_command_or_an_unknown_one_shows_the_usage(run):
    for arguments in ((), ("shape",)):
        code, _, err = run(*arguments)
        assert (code, err.startswith("usage: puregraph")) == (2, True)
    code, out, _ = run("--version")
    assert (code, out.startswith("puregraph ")) == (0, True)


def test_the_terminal_gives_width_and_colours_and_a_pipe_neither(run, monkeypatch):
    class Terminal:
        encoding, text = "utf-8", ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    def shown(**environment):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv("TERM", "xterm")
            for name, value in {"COLUMNS": "80", **environment}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdout", terminal)
            assert cli.main(["shapes", "models.py:net", "N,3,5,5", "N,20"]) == 1
        return terminal.text

    assert "\x1b[1;31mhead " in shown()
    assert "\x1b" not in shown(NO_COLOR="1")
    assert "\x1b" not in shown(TERM="dumb")
    assert max(map(len, shown(NO_COLOR="1", COLUMNS="60").splitlines())) <= 60
    assert "\x1b" not in run("shapes", "models.py:net", "N,3,5,5", "N,20")[1]


# Any size -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory that a process had is read from /proc")
def test_seventy_billion_parameters_are_checked_in_little_memory_and_none_is_made():
    done = python("-c", MEASURED)
    code, made, memory = done.stderr.split()
    found = json.loads(done.stdout)
    assert (code, made) == ("0", "False")
    assert 68e9 < found["params"] < 72e9
    assert found["paramBytes"] == 4 * found["params"]
    assert int(memory) < 300 * 1024, "kilobytes"


def test_the_module_and_the_script_are_one_program():
    done = python("-m", "puregraph", "shapes", "puregraph.models:resnet152", "N,3,224,224")
    assert (done.returncode, done.stderr) == (0, "")
    assert "60,192,808 parameters" in done.stdout


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m puregraph shapes puregraph.models:resnet152 N,3,224,224 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("node ")
    assert done.stderr == ""


def test_a_terminal_without_unicode_is_no_error():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = python("-m", "puregraph", "shapes", "two.py:first", "N,3", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "16 parameters, 64 B of float32" in done.stdout
    assert "?" not in done.stdout and set(done.stdout.splitlines()[1]) == {"-"}


@pytest.mark.skipif(os.name == "nt", reason="a shell that closes stdout")
def test_an_output_that_is_closed_is_no_error():
    command = f"{sys.executable} -m puregraph shapes puregraph.models:lenet N,1,28,28 >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# check ----------------------------------------------------------------------------------------------------------------


def test_check_says_what_is_in_order(run):
    code, out, _ = run("check", "models.py:net", "N,4,5,5", "N,30")
    assert code == 0
    assert out.splitlines()[0] == "relu (Relu): ok"
    assert out.splitlines()[-1] == "6 nodes at (2, 4, 5, 5), (2, 30): all in order"


WRONG = """
from puregraph.graph.module import Module
from puregraph.modules import Linear
from puregraph.graph.sequential import Sequential
class Double(Module):
    def dataShapeFrom(self, x): return x
    def updateData(self, x): return 2 * x
    def updateGrad(self, grad, x, y): return 3 * grad
def net():
    return Sequential(Linear(3, 4, name="fc"), Double(name="one"), Double(name="two"))
"""


def test_check_finds_a_wrong_gradient(run, folder):
    (folder / "wrong.py").write_text(WRONG)
    code, out, _ = run("check", "wrong.py:net", "N,3")
    assert code == 1
    assert out.startswith("fc (Linear): ok\none (Double): Double of (2, 4): ")
    assert "gradient" in out
    assert out.endswith("3 nodes at (2, 3): 2 not in order\n")
    code, out, _ = run("check", "--json", "wrong.py:net", "N,3")
    found = json.loads(out)
    assert (code, [node["ok"] for node in found["nodes"]]) == (1, [True, False, False])


def test_check_names_shapes_that_do_not_fit(run):
    code, out, _ = run("check", "models.py:net", "2,3,5,5", "2,30")
    assert code == 1
    assert "head (Linear): wanted (..., 100), got (2, 75) from 'flat'\n" in out
    assert "sum (Add): not checked, because of a fault above it\n" in out


# inspect --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(folder, rng):
    graph = Sequential(Linear(3, 4, name="fc"), Dropout(name="drop"), Linear(4, 2, useBias=False, name="out"))
    optimizer = MomentumSGD().setupOn(graph)
    y = graph(rng.standard_normal((5, 3)).astype("float32"))
    graph.backward(np.ones_like(y))
    optimizer.update()
    save("run.h5", graph, optimizer, {"epoch": 3, "seen": np.arange(4)})
    graph.save("net.h5")
    return folder


def test_inspect_lists_a_checkpoint(run, checkpoint):
    code, out, _ = run("inspect", "run.h5")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["params/fc.W", "(3,", "4)", "float32", "48", "B"] in lines
    assert ["states/drop.count", "()", "int64", "8", "B"] in lines
    assert any(line and line[0] == "optimizer/velocity/fc.W" for line in lines)
    assert ["optimizer", "optimizers.MomentumSGD", "after", "1", "steps"] in lines
    assert ["extra", "{'epoch':", "3,", "'seen':", "'array", "0'}"] in lines
    code, out, _ = run("inspect", "net.h5")
    assert "optimizer  none\nextra      None\n" in out


def test_inspect_as_json(run, checkpoint):
    code, out, _ = run("inspect", "--json", "run.h5")
    found = json.loads(out)
    assert (code, found["optimizer"]["step"]) == (0, 1)
    first = found["arrays"][0]
    assert (first["name"], first["shape"], first["dtype"], first["bytes"]) == ("params/fc.W", [3, 4], "float32", 48)


def test_inspect_of_what_is_no_checkpoint(run, checkpoint):
    code, _, err = run("inspect", "none.h5")
    assert (code, err) == (2, "puregraph inspect: there is no file 'none.h5'\n")
    (checkpoint / "cut.h5").write_bytes((checkpoint / "run.h5").read_bytes()[:2000])
    code, _, err = run("inspect", "cut.h5")
    assert (code, "cannot load 'cut.h5': it is cut off" in err) == (1, True)
    code, _, err = run("inspect", "models.py")
    assert (code, "not a puregraph checkpoint" in err) == (1, True)


def test_inspect_lists_the_weights_of_other_programs(run, folder):
    from puregraph.weights import writeWeights

    arrays = {"fc.weight": np.zeros((3, 5), np.float32), "steps": np.zeros((), np.int64)}
    for name in ("net.safetensors", "net.npz"):
        writeWeights(name, arrays)
        code, out, _ = run("inspect", name)
        lines = [line.split() for line in out.splitlines()]
        assert code == 0 and ["fc.weight", "(3,", "5)", "float32", "60", "B"] in lines
        assert ["format", name.split(".")[1]] in lines and ["arrays", "2,", "68", "B"] in lines
    code, out, _ = run("inspect", "--json", "net.safetensors")
    first = next(row for row in json.loads(out)["arrays"] if row["name"] == "fc.weight")
    assert (first["shape"], first["dtype"], first["bytes"]) == ([3, 5], "float32", 60)


# doctor ---------------------------------------------------------------------------------------------------------------


def test_doctor_says_device_reason_versions_and_threads(run):
    code, out, _ = run("doctor")
    facts = dict(line.split(None, 1) for line in out.splitlines())
    assert code == 0
    assert facts["device"] in ("cpu", "cuda")
    assert facts["why"].startswith(f"{facts['device']}, because ")
    assert facts["numpy"] == np.__version__
    assert int(facts["threads"]) >= 1
    out = run("doctor", "--json")[1]
    assert json.loads(out)["why"] == facts["why"]
    facts = json.loads(out)
    assert facts["driver"].startswith(("for CUDA", "no libcuda.so.1 was found; nothing runs on a GPU"))
    for name in ("NVRTC", "cuBLASLt", "cuDNN"):
        assert facts[name][0].isdigit() or "; " in facts[name]


def test_doctor_has_one_line_of_a_gpu_where_there_is_no_driver(run, monkeypatch):
    monkeypatch.setattr(doctorcommand, "driverVersion", lambda: None)
    out = run("doctor")[1]
    assert re.search(r"^GPU +no driver, so NVRTC, cuBLASLt, cuDNN are not used$", out, re.M) and "\nNVRTC" not in out
    monkeypatch.setattr(doctorcommand, "driverVersion", lambda: 13000)
    out = run("doctor")[1]
    assert "\nNVRTC " in out and "\nGPU " not in out


def test_doctor_says_whether_there_is_native_code_and_what_it_means(run, monkeypatch):
    monkeypatch.setattr(doctorcommand.jit, "missing", lambda: "llvmlite is not installed: pip install puregraph[fast]")
    assert re.search(r"^native code +no: llvmlite is not installed: .*several times slower$", run("doctor")[1], re.M)
    monkeypatch.setenv("PUREGRAPH_NATIVE", "0")
    assert re.search(r"^native code +no, because PUREGRAPH_NATIVE says so", run("doctor")[1], re.M)


@pytest.mark.parametrize(("name", "text"), [("THREADS", "zwei"), ("NATIVE", "perhaps"), ("THREADS", "0")])
def test_doctor_refuses_a_bad_variable_by_its_name(run, monkeypatch, name, text):
    monkeypatch.setenv(f"PUREGRAPH_{name}", text)
    code, _, err = run("doctor")
    assert code == 1 and err.startswith(f"puregraph doctor: PUREGRAPH_{name}: wanted ")


def test_inspect_says_where_a_training_is_and_its_figures(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, t = np.ones((10, 3), "f4"), np.zeros(10, int)

    def stop(trainer):
        if trainer.step == 8:
            trainer.stop(now=True)

    saving = Checkpoint("run.h5")
    Trainer(
        Sequential(Linear(3, 4)), CrossEntropy(), SGD(0.1), batchsize=2, callbacks=[saving, stop], progress=False
    ).train(x, t, epochs=3, validation=(x, t))
    code, out, _ = run("inspect", "run.h5")
    assert code == 0 and "\nextra  " not in out
    assert re.search(r"^training +1 epochs, and 3 steps of the next one; 8 steps in all$", out, re.M)
    assert re.search(r"^last epoch +loss \S+  val loss \S+  rate 0.1  seconds \S+$", out, re.M)
    assert re.search(r"^callbacks +Checkpoint$", out, re.M)


def test_inspect_writes_no_escapes_and_refuses_forged_files(tmp_path, capsys):
    name = "a\x1b]0;owned\x07b"
    net = Sequential(Linear(2, 2, name="fc"))
    path = tmp_path / "net.h5"
    net.save(path, extra={name: name})
    data = path.read_bytes()
    manifest = manifestOf(data)
    forged = dumps(manifest).replace(b"fc.W", b"f\\u001b[2JW"), dumps({**manifest, "optimizer": {"class": 3}})
    forged += dumps({**manifest, "blueprint": []}), dumps({"arrays": manifest["arrays"]})
    for options in ([], ["--json"]):
        assert cli.main(["inspect", str(path), *options]) == 0
        assert "\x1b" not in capsys.readouterr().out
    for text in forged:
        path.write_bytes(withManifest(data, text))
        for options in ([], ["--json"]):
            assert cli.main(["inspect", str(path), *options]) in (0, 1)
            printed = "".join(capsys.readouterr())
            assert "Traceback" not in printed and all(c.isprintable() or c == "\n" for c in printed)


def test_no_value_of_a_training_writes_escapes(tmp_path, capsys):
    """Every number and text of a run's file is a text that a terminal would obey, one at a time."""
    net, x = Sequential(Linear(3, 2, name="fc")), np.ones((4, 3), np.float32)
    trainer = Trainer(net, CrossEntropy(), SGD(0.1), batchsize=2, progress=False)
    trainer.train(x, np.zeros(4, int), epochs=1)
    trainer.save(tmp_path / "run.h5")
    data = (tmp_path / "run.h5").read_bytes()
    pairs = [(place, key) for place in placesIn(manifestOf(data)["extra"]) for key in range(len(place))]
    for number in range(len(pairs)):
        manifest = manifestOf(data)
        places = [(place, key) for place in placesIn(manifest["extra"]) for key in range(len(place))]
        place, key = places[number]
        key = list(place)[key] if isinstance(place, dict) else key
        if isinstance(place[key], (list, dict)):
            continue
        place[key] = "\x1b]0;owned\x07"
        (tmp_path / "forged.h5").write_bytes(withManifest(data, manifest))
        assert cli.main(["inspect", str(tmp_path / "forged.h5")]) in (0, 1)
        printed = "".join(capsys.readouterr())
        assert "Traceback" not in printed and all(c.isprintable() or c == "\n" for c in printed)


def test_a_model_is_drawn_from_the_command_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "net.py").write_text(
        "from puregraph import *\nnet = Sequential(Linear(784, 10, name='a'), Linear(12, 10, name='b'))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["draw", "net.py", "N,784", "-o", "net.html"]) == 1  # it has a fault
    printed = capsys.readouterr().out
    assert "net.html: <Drawing of" in printed and "red, as it does not fit its inputs: b" in printed
    assert "wanted (..., 12)" in (tmp_path / "net.html").read_text()
    assert cli.main(["draw", "net.py", "-o", "net.svg", "--depth", "0", "--repeats"]) == 0
    assert cli.main(["draw", "net.py", "N,784", "-o", "net.dot", "--json"]) == 1
    assert '"b"' in capsys.readouterr().out
    for wrong in (["-o", "net.gif"], ["-o", "net.svg", "--depth", "x"]):
        assert cli.main(["draw", "net.py", *wrong]) == 2
    assert "wanted a file name that ends in .svg, .html" in capsys.readouterr().err


def test_a_checkpoint_is_drawn_and_measured_as_a_model_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Trainer(Sequential(Linear(4, 3, name="fc")), CrossEntropy(), SGD(0.1)).save("run.h5")
    assert cli.main(["draw", "run.h5", "N,4", "-o", "net.dot"]) == 0 and "fc" in (tmp_path / "net.dot").read_text()
    assert cli.main(["shapes", "run.h5", "N,4"]) == 0 and "fc" in capsys.readouterr().out
    (tmp_path / "net.onnx").write_bytes(b"")
    assert cli.main(["draw", "net.onnx", "-o", "net.dot"]) == 2
    assert "puregraph onnx net.onnx --to FILE.h5" in capsys.readouterr().err
