"""The script for a machine with a GPU: its stages stand alone, tell what became of them, and hide nothing."""

import os
import shutil
import subprocess
import sys

import pytest
from source import ROOT

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
SCRIPT = ROOT / "scripts/gpu.sh"
STAGES = ("probe", "suite", "sanitizer", "benchmarks")
# A Python that has a GPU: it writes down what it is asked to do, and does what the environment says that comes of it.
PYTHON = """#!/usr/bin/env bash
case "$*" in
*device.reason*) echo "cuda, because a test kernel ran" ;;
*doctor*) printf 'cuBLASLt  13.1\\ncuDNN  %s\\n' "${CUDNN:-9.19}" ;;
*"import puregraph.models"*) exit 0 ;;
*"import xdist"*) exit "${XDIST:-0}" ;;
*sysconfig*) echo "$TOOLS" ;;
*"/ 60"*) exec "$REAL" "$@" ;;
*)
    echo "$(basename "$0") $*" >>"$TOOLS/asked"
    case "$*" in
    *probe.py*) echo "13 of 14 checks passed" >"$OUT/probe.txt" && exit "${PROBE:-0}" ;;
    *gpu.py*) printf 'puregraph         1.0\\npuregraph         2.0\\n' >"$OUT/benchmarks.txt" && exit "${BENCH:-0}" ;;
    *"import cupy"*) exit "${CUPY:-0}" ;;
    *"-m emulator"*) echo "========= ${SAID:-ERROR SUMMARY: 0 errors}" && exit "${KERNELS:-0}" ;;
    *"not gpu"*) echo "700 passed, 3 skipped in 1.00s" && sleep "${SLEEP:-0}" && exit "${REST:-0}" ;;
    *"-m pytest"*) echo "40 passed in 0.50s" && exit "${GPU:-0}" ;;
    esac
    ;;
esac
"""
TOOL = (
    '#!/usr/bin/env bash\necho "sanitizer $*" >>"$TOOLS/asked"\nwhile [[ $1 != *python* ]]; do shift; done\nexec "$@"\n'
)


@pytest.fixture
def machine(tmp_path):
    """A function that runs the script on a machine with a GPU: the lines of its verdict, what was asked for, and its
    exit code."""
    for name, text in (("python", PYTHON), ("nvidia/cu13/bin/compute-sanitizer", TOOL)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(*stages, **settings):
        given = {"PYTHON": str(tmp_path / "python"), "TOOLS": str(tmp_path), "OUT": str(tmp_path / "out")}
        given |= {"REAL": sys.executable, "CUDA_HOME": str(tmp_path / "none"), **settings}
        done = subprocess.run([SCRIPT, *stages], env=os.environ | given, capture_output=True, text=True, timeout=60)
        asked = tmp_path / "asked"
        last = done.stdout.splitlines()[-1]
        verdicts = dict(part.split(" ", 1) for part in last.removeprefix("gpu.sh: ").split("; "))
        return verdicts, asked.read_text() if asked.exists() else "", done

    return run


def test_without_a_gpu_each_stage_says_in_a_sentence_why_it_is_skipped(tmp_path):
    given = {"PYTHON": sys.executable, "OUT": str(tmp_path / "out"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([SCRIPT], env=os.environ | given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    why, *lines = done.stdout.splitlines()
    assert why.startswith("cpu, because CuPy ")
    assert lines == [f"== {stage}: skipped: {why}" for stage in STAGES]
    assert not (tmp_path / "out").exists()


def test_all_stages_in_their_order(machine, tmp_path):
    verdicts, asked, done = machine()
    assert list(verdicts) == list(STAGES) and done.returncode == 0, done.stdout + done.stderr
    assert all(text.startswith("passed in ") for text in verdicts.values())
    assert verdicts["probe"].endswith("13 of 14 checks passed")
    assert verdicts["suite"].endswith("40 passed in 0.50s;700 passed, 3 skipped in 1.00s")
    assert verdicts["sanitizer"].endswith("0 reports") and verdicts["benchmarks"].endswith("2 cases measured")
    assert "benchmarks/gpu.py --minutes 9.0 --out" in asked and asked.count("-n auto") == 6
    assert "--tool memcheck" in asked and "--tool racecheck" in asked
    assert len(list((tmp_path / "out").iterdir())) <= 8
    assert (tmp_path / "out" / "verdict.txt").read_text() == done.stdout.splitlines()[-1] + "\n"


def test_a_stage_that_fails_hides_none_behind_it(machine):
    verdicts, _, done = machine(PROBE="1", GPU="1")
    assert done.returncode == 1
    assert [text.split()[0] for text in verdicts.values()] == ["FAILED", "FAILED", "passed", "passed"]


def test_a_stage_that_takes_too_long_is_cut_off_and_said_so(machine):
    verdicts, _, done = machine("suite", "benchmarks", SLEEP="30", SUITE_SECONDS="2")
    assert verdicts["suite"].startswith("CUT OFF in ") and verdicts["benchmarks"].startswith("passed")
    assert done.returncode == 1


def test_a_library_that_is_missing_is_told_before_and_at_the_end(machine):
    verdicts, _, done = machine("benchmarks", CUDNN="none: convolutions and attention are done by own kernels, slower")
    assert done.returncode == 0 and verdicts["WITHOUT"] == "cuDNN"
    assert "gpu.sh: WITHOUT cuDNN: times below are not what they could be" in done.stdout
    assert "WITHOUT" not in machine("benchmarks")[0]


def test_some_stages_and_what_follows_for_the_last(machine):
    verdicts, asked, done = machine("probe", "benchmarks", "--", "mlp-64", "--rounds", "2")
    assert list(verdicts) == ["probe", "benchmarks"] and done.returncode == 0
    assert asked.splitlines()[0].endswith("/out") and asked.splitlines()[-1].endswith("mlp-64 --rounds 2")


def test_a_stage_that_does_not_exist_is_refused_with_those_that_do():
    done = subprocess.run([SCRIPT, "test"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "gpu.sh: there is no stage test: there are probe, suite, sanitizer, benchmarks, all\n"


@pytest.mark.parametrize("said", ["Invalid __global__ read of size 4 bytes", "Error: Race reported between"])
def test_what_the_sanitizer_reports_fails_even_where_tests_pass(machine, said):
    verdicts, _, done = machine("sanitizer", SAID=said)
    assert verdicts["sanitizer"].startswith("FAILED") and verdicts["sanitizer"].endswith("2 reports")
    assert done.returncode == 1


def test_a_sanitizer_that_does_not_work_or_is_not_there_is_no_failure(machine, tmp_path):
    verdicts, _, done = machine("sanitizer", CUPY="1")
    assert verdicts["sanitizer"].startswith("skipped: compute-sanitizer does not work here") and done.returncode == 0
    (tmp_path / "nvidia/cu13/bin/compute-sanitizer").unlink()
    verdicts, asked, done = machine("sanitizer")
    assert (
        verdicts["sanitizer"].startswith("skipped: there is no compute-sanitizer (pip install") and not done.returncode
    )


def test_without_workers_the_suite_runs_in_one_process(machine):
    _, asked, _ = machine("suite", XDIST="1")
    assert "-n auto" not in asked and "pytest" in asked
