"""Benchmarks of a GPU, tried without one: tiny networks take the same way through the same code on the CPU."""

import json
import sys

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator
from source import ROOT

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from benchmarks import floors, gpu, lockstep, workloads
from benchmarks.contenders import ONGPU
from benchmarks.contenders import puregraph as side
from puregraph.core import device

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are watched through /proc")
QUICK = ["--rounds", "2", "--seconds", "0.01"]


@pytest.mark.costly
@LINUX
def test_a_dry_run_compares_on_the_cpu_and_saves_what_it_found(tmp_path, capsys):
    gpu.main(["mlp-64", "--dry", "--only", "puregraph", *QUICK, "--out", str(tmp_path)])
    text = (tmp_path / "benchmarks.txt").read_text()
    assert text == capsys.readouterr().out and "A DRY RUN" in text
    assert "mlp-64: MLP 784-512-512-10, training, 2 at a time, float32" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("puregraph ")]
    found = json.loads((tmp_path / "benchmarks.json").read_text())["cases"]["mlp-64"]["puregraph"]
    assert len(found["blocks"]) == 2 and found["events"] == []
    assert 0 < found["host"] and 0 < found["ready"]
    middle = f"{1e3 * found['seconds']:.4g}"
    assert row[1] == middle and f"{2 / found['seconds']:,.0f}" in row
    assert any(line.split()[:2] == ["mlp-64", middle] for line in text.splitlines())


def test_what_does_not_fit_into_the_time_is_left_out_and_said_so(tmp_path):
    gpu.main(["--dry", "--minutes", "0", "--out", str(tmp_path)])
    text = (tmp_path / "benchmarks.txt").read_text()
    assert all(f"{title}: skipped: 0 s are left, and it may take" in text for title in gpu.CASES)
    assert json.loads((tmp_path / "benchmarks.json").read_text())["cases"] == {}


@LINUX
def test_a_contender_without_time_is_left_out(tmp_path):
    setting = gpu.Setting([0], tmp_path, dry=True)
    with gpu.Contest(["puregraph"], setting, "none", lambda text: None, end=0) as contest:
        found = contest.run({}, ["puregraph"], 1, 0.01)
    assert found == {"puregraph": {"failed": "skipped: 0 s were left of the time for this case"}}


@LINUX
def test_a_contender_that_takes_too_long_is_stopped(tmp_path):
    process = lockstep.Process("puregraph", gpu.Setting([0], tmp_path, dry=True), "none")
    with pytest.raises(lockstep.FailedError, match="no answer in 0 s"):
        process.ask("setup", limit=0.01, workload="mlp", mode="train", batch=2, precision="float32")
    process.close()


def test_a_contender_that_fails_among_the_rounds_leaves_the_others_their_times(tmp_path):
    class Answers:
        def __init__(self, *blocks):
            self.blocks = list(blocks)

        def ask(self, do, **details):
            if do == "block" and not self.blocks:
                raise lockstep.FailedError("no memory is left")
            if do == "block":
                return {"times": [self.blocks.pop()], "events": None}
            return {} if do == "setup" else {"seconds": 1.0}

    contest = gpu.Contest([], gpu.Setting([0], tmp_path, dry=True), "none", lambda text: None, end=float("inf"))
    contest.processes = {"puregraph": Answers(3.0, 2.0, 1.0), "torch": Answers(5.0), "jax": Answers()}
    found = contest.run({}, list(contest.processes), 3, 0.01)
    assert found["puregraph"]["seconds"] == 2.0 and "failed" not in found["puregraph"]
    assert (found["torch"]["seconds"], found["torch"]["failed"]) == (5.0, "no memory is left")
    assert "seconds" not in found["jax"] and found["jax"]["failed"] == "no memory is left"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_is_cut_off_or_fails_keeps_its_tables(monkeypatch, tmp_path, error):
    def found(title, case, *rest):
        if title == "lenet-64":
            raise error("here")
        return {
            "puregraph": {
                "seconds": 1.0,
                "blocks": [1.0],
                "events": [],
                "value": 1.0,
                "host": 0.0,
                "ready": 0.0,
                "notes": {},
            }
        }

    monkeypatch.setattr(gpu, "compare", found)
    names = ["mlp-64", "lenet-64", "unet-16"]
    try:
        gpu.main([*names, "--dry", "--out", str(tmp_path)])
        assert error is ZeroDivisionError
    except KeyboardInterrupt:
        assert error is KeyboardInterrupt
    text = (tmp_path / "benchmarks.txt").read_text()
    last = text[text.index("\ncase ") :]
    assert "mlp-64" in last and ("unet-16" in last) == ("FAILED: ZeroDivisionError: here" in text) == (
        error is ZeroDivisionError
    )


def test_a_script_that_takes_too_long_is_stopped(tmp_path):
    with pytest.raises(lockstep.FailedError, match="floors has taken more than 0 s"):
        gpu.Setting([0], tmp_path, dry=True).script("floors", "--dry", limit=0.01)


def test_cases_are_workloads_and_the_most_telling_come_first():
    cases = {title: case for title, case in gpu.CASES.items() if case is not None}
    assert {case.workload for case in cases.values()} <= {*workloads.NAMES, *workloads.ONGPU}
    assert {case.precision for case in cases.values()} <= set(gpu.AGREE)
    for case in cases.values():
        workload = workloads.load(case.workload)
        assert all(hasattr(workload, name) for name in (*case.settings, *getattr(workload, "TINY", {})))
    assert list(gpu.CASES)[:4] == ["mlp-64", "lenet-64", "gpt2-16", "resnet50-64"]


def test_what_contenders_import_is_read_once_however_that_ends(tmp_path):
    (tmp_path / "slow.py").write_text("import time; open('begun', 'w').close(); time.sleep(60)")
    (tmp_path / "quick.py").write_text("open('there', 'w').close()")
    setting = gpu.Setting([0], tmp_path, dry=True)
    setting.environment = lambda home: {"PYTHONPATH": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        gpu.readOnce(setting, ("quick", "absent", "slow"), limit=2)
    assert (tmp_path / "there").exists()


def test_who_takes_part():
    taking = {title: [n for n in ONGPU if gpu.takesPart(n, case)] for title, case in gpu.CASES.items() if case}
    assert taking["mlp-64"] == list(ONGPU)
    assert taking["gpt2-16"] == [n for n in ONGPU if n != "jax"]
    assert taking["vit-64"] == [n for n in ONGPU if n not in ("jax", gpu.SLOWEST)]


def test_a_case_that_does_not_exist_is_refused_with_those_that_do(capsys):
    with pytest.raises(SystemExit):
        gpu.parsed(["mlp"])
    assert "there is no case mlp: there are mlp-64, lenet-64" in capsys.readouterr().err


def test_a_table_tells_who_was_how_fast_and_who_computes_something_else():
    def measured(seconds, value, **more):
        return {
            "seconds": seconds,
            "blocks": [seconds],
            "value": value,
            "host": 1e-5,
            "ready": 2.0,
            "notes": {},
            **more,
        }

    found = {
        "puregraph": measured(0.02, 1.0, events=[0.019]),
        "torch": measured(0.05, 1.0, events=[]),
        "torch-compile": measured(0.03, 1.2, events=[0.03]),
        "jax": {"failed": "not here"},
    }
    lines = gpu.table("gpt2-16", gpu.CASES["gpt2-16"], found)
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:] if line}
    assert rows["puregraph"] == ["20", "19", "20", "20", "819,200", "2.50", "1.50", "10.0", "2.0"]
    assert lines[-2:] == ["jax: not here", "torch-compile: ITS FIRST STEP GIVES 1.2, others another number"]
    (last,) = gpu.summary({"gpt2-16": found, "kernels": {}}, False)[2:]
    assert last.split("  ")[-1] == "torch 2.50, torch-compile 1.50" and "819,200 tokens" in last


def test_every_single_kernel_is_timed(monkeypatch, capsys, tmp_path):
    path = tmp_path / "numbers.json"
    monkeypatch.setattr(sys, "argv", ["floors", "--dry", "--numbers", str(path)])
    monkeypatch.setattr(floors, "BLOCK", 1e-4)
    floors.main()
    text = capsys.readouterr().out
    assert "FAILED" not in text and "skipped" not in text
    found = json.loads(path.read_text())
    assert len(found["kernels"]) == len(floors.FLOORS) == len({one["title"] for one in found["kernels"]})
    assert all(one["seconds"] > 0 and one["rate"] > 0 and one["note"] == "" for one in found["kernels"])


def test_a_kernel_that_fails_hides_no_other(monkeypatch, capsys):
    def fails(precision, *sizes):
        raise RuntimeError("no memory is left")

    monkeypatch.setattr(floors, "FLOORS", [floors.FLOORS[0]._replace(make=fails), floors.FLOORS[1]])
    monkeypatch.setattr(sys, "argv", ["floors", "--dry"])
    floors.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "gelu: FAILED: RuntimeError: no memory is left" and lines[3].startswith("add and relu")


def test_the_share_is_that_of_a_copy_or_of_the_largest_product():
    one = {"title": "a", "seconds": 1e-3, "rate": 3e12, "isMoved": True, "note": ""}
    assert floors.row(one, 4e12, 0.0).split() == "a 1000.0 3,000.0 GB/s 75 % below the goal".split()
    assert floors.row({**one, "isMoved": False}, 4e12, 6e12).split() == "a 1000.0 3.0 TFLOP/s 50 %".split()


@needsEmulator
@pytest.mark.parametrize("floor", [floors.FLOORS[i] for i in (1, 3, 7, 8, 9)], ids=lambda floor: floor.title)
def test_on_a_gpu_only_the_launches_are_timed(monkeypatch, floor):
    cupy = useGpu(monkeypatch)
    monkeypatch.setattr(side, "mark", lambda: None)
    program, inputs = floor.make(floor.precision or "float16", *floor.tiny)
    assert [np.dtype(d) for d in program.dtypes] == [x.dtype for x in inputs[: len(program.dtypes)]]
    go, note = floors.launchesOf(program, inputs)
    before = cupy.machine.copies, cupy.machine.replays
    go()
    assert note == "" and (cupy.machine.copies, cupy.machine.replays) == (before[0], before[1] + 1)


@needsEmulator
def test_on_a_gpu_a_step_is_one_graph_and_the_host_waits_for_nothing(monkeypatch):
    cupy = useGpu(monkeypatch)
    step, _ = side.prepare("tiny", "train", 2, None, compiled=True, precision="float32")
    first = side.number(step())
    step()
    machine = cupy.machine
    before = machine.reads, machine.waits, machine.replays
    step()
    assert (machine.reads, machine.waits, machine.replays) == (before[0], before[1], before[2] + 1)
    monkeypatch.setattr(device, "chooser", device.DeviceChooser())
    with device.useDevice("cpu"):
        step, _ = side.prepare("tiny", "train", 2, None, compiled=True)
        assert first == pytest.approx(side.number(step()), rel=1e-4)
