"""Benchmarks compare the same work: the same networks on every side, and tables that say what was measured."""

import json
import mmap
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from natively import needsNative
from source import ROOT

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from benchmarks import lockstep, machine, report, run, share, workloads
from benchmarks.contenders import CONTENDERS, fits
from benchmarks.contenders import puregraph as ours
from benchmarks.workloads.kernels import KERNELS
from puregraph.ops.native.threads import pool

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are watched through /proc")
LARGE = ("resnet18", "mobilenet", "unet", "gpt")
WORKLOADS = [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in (*workloads.NAMES, "tiny")]
SMALL = [name for name in (*workloads.NAMES, "tiny") if name not in LARGE]
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
FEW = 2  # samples, in place of the batch that is measured


@pytest.fixture
def weights(tmp_path):
    """A function that writes the weights of a workload and says where they are."""

    def write(name):
        path = str(tmp_path / f"{name}.npz")
        ours.writeWeights(name, path)
        return path

    return write


@pytest.fixture
def small(monkeypatch):
    """Workloads in their tiny form."""
    for name in (*workloads.NAMES, *workloads.ONGPU):
        workload = workloads.load(name)
        for key, value in getattr(workload, "TINY", {}).items():
            monkeypatch.setattr(workload, key, value)


def numbers(name, weights):
    """What the first step of training gives, and the outputs of an inference."""
    train, _ = ours.prepare(name, "train", FEW, weights, compiled=False)
    infer, _ = ours.prepare(name, "infer", FEW, weights, compiled=False)
    return float(train()), infer()


# The same work --------------------------------------------------------------------------------------------------------


@pytest.mark.peers
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_network_of_torch_is_the_same(name, weights):
    import torch

    from benchmarks.contenders import torch as theirs

    workload, path = workloads.load(name), weights(name)
    count = sum(p.numel() for p in workload.torch(torch).parameters())
    assert count - getattr(workload, "UNUSED", 0) == workload.ours().numOfParams()
    loss, y = numbers(name, path)
    train, _ = theirs.prepare(name, "train", FEW, path)
    assert theirs.number(train()) == pytest.approx(loss, rel=1e-4)
    infer, _ = theirs.prepare(name, "infer", FEW, path)
    found = infer().cpu().numpy()
    assert found.shape == y.shape
    np.testing.assert_allclose(found, y, rtol=0, atol=1e-4 * np.abs(y).max())


@pytest.mark.peers
@pytest.mark.parametrize("name", ["lenet", "tiny"])
def test_channels_last_is_the_same_work(name, weights):
    from benchmarks.contenders import torch as theirs

    path = weights(name)
    train, _ = theirs.prepare(name, "train", FEW, path, channelsLast=True)
    assert theirs.number(train()) == pytest.approx(numbers(name, path)[0], rel=1e-4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_network_of_jax_is_the_same(name, weights):
    pytest.importorskip("jax")
    from benchmarks.contenders import jax as theirs

    path = weights(name)
    loss, y = numbers(name, path)
    train, _ = theirs.prepare(name, "train", FEW, path)
    assert theirs.number(train()) == pytest.approx(loss, rel=1e-4)
    infer, _ = theirs.prepare(name, "infer", FEW, path)
    found = np.asarray(infer())
    found = found if found.shape == y.shape else np.moveaxis(found, -1, 1)
    np.testing.assert_allclose(found, y, rtol=0, atol=1e-4 * np.abs(y).max())


@pytest.mark.peers
@pytest.mark.parametrize(
    "name", ["gpt2", *[pytest.param(name, marks=pytest.mark.slow) for name in ("vit", "unet", "resnet50")]]
)
def test_the_networks_of_a_gpu_are_the_same(name, small, weights):
    import torch

    from benchmarks.contenders import torch as theirs

    workload, path = workloads.load(name), weights(name)
    assert sum(p.numel() for p in workload.torch(torch).parameters()) == workload.ours().numOfParams()
    step, _ = ours.prepare(name, "train", FEW, path, compiled=name != "resnet50")
    loss = ours.number(step())
    train, _ = theirs.prepare(name, "train", FEW, path, channelsLast=workload.IMAGES)
    assert theirs.number(train()) == pytest.approx(loss, rel=1e-4)
    train, _ = theirs.prepare(name, "train", FEW, path, precision="bfloat16")
    assert theirs.number(train()) == pytest.approx(loss, rel=5e-2)


@pytest.mark.peers
@pytest.mark.parametrize("name", SMALL)
def test_the_network_of_onnxruntime_is_the_same(name, weights, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from benchmarks.contenders import onnxruntime as theirs
    from benchmarks.export import export

    path = weights(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(name, FEW, str(tmp_path / f"{name}-{FEW}.onnx"), path)
    monkeypatch.setenv("BENCHMARK_CACHE", str(tmp_path))
    infer, _ = theirs.prepare(name, "infer", FEW, path)
    y = numbers(name, path)[1]
    np.testing.assert_allclose(infer(), y, rtol=0, atol=1e-4 * np.abs(y).max())


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_gives_what_torch_gives(name, compiled):
    from benchmarks.contenders import torch as theirs

    wanted = theirs.number(theirs.prepare(name, "kernel", 0, None)[0]())
    step, _ = ours.prepare(name, "kernel", 0, None, compiled=compiled)
    assert wanted == pytest.approx(ours.number(step()), rel=1e-4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_program_is_the_same_work(name, weights):
    path = weights(name)
    loss, y = numbers(name, path)
    train, notes = ours.prepare(name, "train", FEW, path, compiled=True)
    assert ours.number(train()) == pytest.approx(loss, rel=1e-4) and notes["predicted"] > 0
    infer, _ = ours.prepare(name, "infer", FEW, path, compiled=True)
    np.testing.assert_allclose(infer(), y, rtol=0, atol=1e-4 * np.abs(y).max())


@pytest.mark.parametrize("name", [*workloads.NAMES, "tiny"])
def test_a_workload_is_complete(name):
    workload = workloads.load(name)
    assert workload.TITLE and workload.__doc__
    assert workload.COST in ours.COSTS and workload.OPTIMIZER in ours.OPTIMIZERS
    assert {mode for mode, _ in workload.CASES} == {"train", "infer"}
    inputs, target = workloads.dataOf(workload, FEW)
    again, _ = workloads.dataOf(workload, FEW)
    assert all(np.array_equal(a, b) for a, b in zip(inputs, again))
    assert all(x.dtype in (np.float32, np.int64) for x in (*inputs, target))
    graph = workload.ours()
    assert len(graph.inputs) == len(inputs)
    assert graph.dataShapeFrom([x.shape for x in inputs])


def test_every_file_of_a_workload_is_listed():
    files = {path.stem for path in (ROOT / "benchmarks" / "workloads").glob("*.py")}
    assert files == {*workloads.NAMES, *workloads.ONGPU, "kernels", "tiny", "residual", "__init__"}


# Who takes part, and options ------------------------------------------------------------------------------------------


def test_who_takes_part():
    assert [c for c in CONTENDERS if fits(c, "infer", True)] == list(CONTENDERS)
    assert set(CONTENDERS) - {c for c in CONTENDERS if fits(c, "train", True)} == {"onnxruntime"}
    assert not any(c.endswith("-cl") for c in CONTENDERS if fits(c, "train", False))
    assert [c for c in CONTENDERS if fits(c, "kernel", False)] == ["puregraph", "puregraph-eager", "torch"]


def test_a_quick_run_saves_nothing_unless_asked():
    assert run.parsed(["mlp"]).out == report.RESULTS and run.parsed(["mlp"]).rounds == 7
    quick = run.parsed(["mlp", "--quick"])
    assert quick.out is None and quick.rounds == 3 and quick.starts == 1
    asked = run.parsed(["mlp", "--quick", "--out", "here", "--rounds", "2"])
    assert asked.out == "here" and asked.rounds == 2


def test_the_list(capsys):
    run.main(["list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*workloads.NAMES, "kernels"]
    assert "train b1, train b64, infer b1, infer b64" in lines[0]


def test_a_case_is_chosen_by_mode_and_title():
    chosen = run.casesOf("mlp", run.parsed(["mlp", "--mode", "train", "--match", "b64"]))
    assert chosen == {"train b64": {"workload": "mlp", "mode": "train", "batch": 64}}


# Tables ---------------------------------------------------------------------------------------------------------------


def measured(seconds, value=1.0, **more):
    """What a contest finds of one contender."""
    found = {"seconds": seconds, "blocks": [seconds, 2 * seconds], "value": value}
    return {**found, "notes": {}, "retries": 0, "foreign": [0.0, 0.02], **more}


FOUND = {
    "puregraph": measured(1e-3, warm=0.5, cold=1.0, bytes=2e6) | {"notes": {"predicted": 1_900_000}},
    "torch": measured(4e-3, warm=1.5, cold=1.5, bytes=4e6),
    "jax": measured(2e-3, value=1.0004),
    "onnxruntime": {"failed": "there is no such file"},
}


def test_a_table_gives_times_and_ratios():
    lines = report.table("title", FOUND)
    rows = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert [line.split()[0] for line in lines[3:6]] == ["puregraph", "jax", "torch"]
    assert rows["puregraph"] == ["1.000", "1.000", "2.000", "4.00", "2.00", "0.50", "1.00", "2.0", "0"]
    assert rows["jax"] == ["2.000", "2.000", "4.000", "2.00", "1.00", "0"]
    assert lines[6:] == ["puregraph: predicted peak 1.9 MB", "onnxruntime: there is no such file"]


def test_a_busy_machine_is_pointed_out():
    lines = report.table("title", {**FOUND, "torch": measured(4e-3, foreign=[0.01, 0.25])})
    assert "torch: NOISY, others took up to 25 % of the processors" in lines


def test_another_number_is_pointed_out():
    wrong = {**FOUND, "torch": measured(4e-3, value=1.01)}
    assert report.differs(FOUND) == {} and report.differs(wrong) == {"torch": 1.01}
    assert "torch: ITS FIRST STEP GIVES 1.01, others another number" in report.table("title", wrong)
    assert report.differs({**FOUND, "torch": measured(4e-3, value=float("nan"))}).keys() == {"torch"}


def test_the_summary_has_geometric_means(tmp_path):
    second = {"puregraph": measured(1.0), "torch": measured(1.0)}
    report.save("mlp", ["a", "b", "c"], {"train b1": FOUND, "train b64": second, "infer b1": second}, tmp_path)
    lines = report.summary(["mlp", "lenet"], tmp_path)
    assert lines[1].split() == ["mlp", "train", "b1", "1.000", "4.000", "2.000", "jax", "4.00", "2.00", "0.50", "0.33"]
    assert "train: 2.00 times torch eager in the geometric mean of 2, least 1.00" in lines
    assert "train: 1.41 times the best peer in the geometric mean of 2, least 1.00" in lines
    assert "infer: 1.00 times torch eager in the geometric mean of 1, least 1.00" in lines


# Processes ------------------------------------------------------------------------------------------------------------


@LINUX
def test_the_peak_counts_what_is_gone_again():
    machine.forgetPeak()
    before = machine.anonymousPeak()
    with mmap.mmap(-1, 32_000_000) as block:  # memory that no allocator keeps for later
        for _ in range(32):
            block.write(bytes(1_000_000))
    assert 28e6 < machine.anonymousPeak() - before < 40e6
    machine.forgetPeak()
    assert machine.anonymousPeak() - before < 8e6


@LINUX
def test_processors_are_busy_while_somebody_works():
    import os

    cpus = sorted(os.sched_getaffinity(0))
    before, start = machine.busy(cpus), os.times()
    x = np.ones(1000)
    while os.times().user - start.user < 0.2:
        x = x * 1.0
    assert machine.busy(cpus) - before >= 0.15


@LINUX
def test_a_comparison_from_end_to_end(tmp_path, capsys):
    options = [
        "mlp",
        "--quick",
        "--match",
        "train b1",
        "--only",
        "puregraph-eager",
        "--rounds",
        "2",
        "--seconds",
        "0.01",
    ]
    run.main([*options, "--threads", "1", "--out", str(tmp_path)])
    text = (tmp_path / "mlp.txt").read_text()
    assert text in capsys.readouterr().out + "\n" and "--match 'train b1'" in text.splitlines()[0]
    assert "1 threads on processors" in text and "puregraph-eager" in text
    found = json.loads((tmp_path / "mlp.json").read_text())["cases"]["train b1"]["puregraph-eager"]
    assert len(found["blocks"]) == 2 and 0 < min(found["blocks"]) <= found["seconds"] <= max(found["blocks"])
    assert found["warm"] > 0 and found["cold"] > 0 and found["bytes"] > 669_706 * 4
    loss = float(ours.prepare("mlp", "train", 1, None, compiled=False)[0]())
    assert found["value"] == pytest.approx(loss, rel=1e-5)


@LINUX
def test_a_contender_that_fails_says_why(tmp_path):
    setting = lockstep.Setting([0], tmp_path)
    with lockstep.Contest(["puregraph-eager"], setting, "none", lambda text: None) as contest:
        case = {"workload": "mlp", "mode": "train", "batch": 0, "weights": "nowhere.npz"}
        found = contest.run(case, ["puregraph-eager"], 1, 0.01)
    assert "nowhere.npz" in found["puregraph-eager"]["failed"]
    assert "nowhere.npz" in Path(tmp_path / "none" / "puregraph-eager" / "log.txt").read_text()


@LINUX
@pytest.mark.skipif(len(CPUS) < 2, reason="one processor")
def test_a_table_says_how_far_apart_the_processors_were(tmp_path):
    pytest.importorskip("llvmlite")
    found = lockstep.Setting(CPUS[:2], tmp_path).distance()
    assert 1 < found < 100_000
    assert report.apart([40, found, 40]) == [
        f"processors {min(40, found)} to {max(40, found)} ns apart, 40 in the median"
    ]
    assert report.apart([]) == []


def test_starts_alone_are_a_table_of_their_own():
    found = {
        "torch": {"warm": 2.0, "cold": 2.5, "bytes": 9e6},
        "puregraph": {"warm": 0.5, "cold": 1.0, "bytes": 6e6},
        "jax": {"failed": "not installed"},
    }
    *_, own, theirs, absent = report.starts("MLP: train b1", found)
    assert own.split() == ["puregraph", "0.50", "1.00", "6.0"]
    assert theirs.split() == ["torch", "2.00", "2.50", "9.0"]
    assert absent == "jax: not installed"


def test_nothing_to_measure_is_an_error(capsys):
    with pytest.raises(SystemExit):
        run.parsed(["mlp", "--rounds", "0", "--starts", "0"])
    assert "--rounds 0 and --starts 0 leave nothing to measure" in capsys.readouterr().err


@needsNative
def test_what_python_has_of_a_step_is_part_of_it(monkeypatch):
    monkeypatch.setattr(share, "SECONDS", 0.05)
    step, rest, calls = share.measure("tiny", 2)
    assert 0 < rest < 1000 * step and calls > 5
    assert not isinstance(pool.threadPool().run, share.Clock)
