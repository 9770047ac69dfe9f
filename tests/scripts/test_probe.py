"""The probe of a GPU, tried on a tracer for one: what it checks it finds, and what fails hides nothing else."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator
from source import ROOT

if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import probe

from puregraph.core.storage import diskcache
from puregraph.ops.cuda.libraries import cudnn
from puregraph.ops.product.cuda import librarygemm

PROPERTIES = json.loads(probe.H200.read_text())
BROKEN = {  # what is wrong, and what the line says of it
    "properties": "no frontend",
    "plans": "no frontend",
}


@pytest.fixture
def said(monkeypatch, tmp_path):
    """A function that runs the probe on a tracer for a GPU: its lines, and how many checks failed."""
    cupy = useGpu(monkeypatch)
    cupy.cuda.get_elapsed_time = lambda first, last: 1.0
    cupy.cuda.runtime.driverGetVersion = lambda: 13000
    monkeypatch.setattr(probe.cublaslt, "library", lambda: SimpleNamespace(version=130100))
    monkeypatch.setattr(probe.compiler, "version", lambda: (13, 0))
    monkeypatch.setattr(cudnn, "missing", lambda: "no frontend")
    monkeypatch.setattr(cudnn, "library", refuse)

    def go():
        lines = []
        failed = probe.run(probe.Probe(tmp_path, isQuick=True), lines.append)
        return lines, failed

    return go


def refuse():
    raise RuntimeError("no frontend")


@needsEmulator
def test_every_check_passes_on_a_gpu_that_works_and_others_say_why_not(said):
    lines, failed = said()
    assert failed == len(BROKEN), "\n".join(lines)
    for name, line in zip(probe.CHECKS, lines):
        state = (
            f"FAILED  {getattr(probe.Probe, name).__doc__}: RuntimeError: {BROKEN[name]}" if name in BROKEN else "ok"
        )
        assert line.startswith(state), line
    assert lines[-1] == f"{len(probe.CHECKS) - 2} of {len(probe.CHECKS)} checks passed"
    assert "1 graph of CUDA" in lines[probe.CHECKS.index("step")]
    assert "refused, as expected: NotImplementedError" in lines[probe.CHECKS.index("refusal")]
    assert "NVRTC 13.0" in lines[0]


@needsEmulator
def test_wrong_numbers_of_a_library_are_told(said, monkeypatch):
    right = librarygemm.Product.emulate
    calls = iter(range(9))
    monkeypatch.setattr(
        librarygemm.Product, "emulate", lambda self, arrays: right(self, arrays) or off(arrays, next(calls))
    )
    lines, _ = said()
    assert "FAILED  a product by cuBLASLt, captured: RuntimeError: direct numbers are off by" in "\n".join(lines)


def off(arrays, call):
    """The first time, when numpy says what is right, it is something else."""
    arrays[-1][...] += call == 0


def test_what_cudnn_says_of_the_device_is_kept_and_compared(monkeypatch, tmp_path):
    told = PROPERTIES | {"smClockRateKHz": 1785000}
    library = SimpleNamespace(
        create_device_properties=lambda number: SimpleNamespace(serialize=lambda: json.dumps(told)),
    )
    useGpu(monkeypatch)
    monkeypatch.setattr(cudnn, "library", lambda: library)
    text = probe.Probe(tmp_path).properties()
    assert text == "NVIDIA H200; smClockRateKHz 1785000, not 1980000"
    assert json.loads((tmp_path / "device.json").read_text()) == told
    told["smClockRateKHz"] = 1980000
    assert probe.Probe(tmp_path).properties() == "NVIDIA H200; as in h200.json"


def test_plans_made_elsewhere_are_counted(monkeypatch, tmp_path):
    class Planner:
        label = "9.19 1.32 sm90 132 NVIDIA H200"

        def load(self, plan):
            if plan.data == b"bad":
                raise RuntimeError("another driver")

    useGpu(monkeypatch)
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(cudnn, "current", Planner)
    for i, data in enumerate((b"good", b"bad", b"fine")):
        diskcache.write(f"plan{i}", {"workspace": 0, "key": f"{Planner.label} task {i}"}, data)
    diskcache.write("other", {"workspace": 0, "key": "9.18 1.32 sm90 132 NVIDIA H200 task"}, b"bad")
    diskcache.write("kernel", {"key": "cubin", "resources": {}}, b"")
    assert probe.Probe(tmp_path).plans() == "2 of 3 load; the first refusal: RuntimeError: another driver"


def test_without_a_gpu_it_says_why_and_succeeds(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(probe.device, "chooser", probe.device.DeviceChooser())
    assert probe.main(["--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("skipped: cpu, because CuPy is not installed")
    assert not any(tmp_path.iterdir())


def test_numbers_are_compared_by_their_norm():
    probe.want(np.array([1.0, 2.0]), np.array([1.0, 2.001]), 1e-2)
    with pytest.raises(RuntimeError, match="captured numbers are off by"):
        probe.want(np.array([1.0, np.nan]), np.array([1.0, 2.0]), 1e-2, "captured")
