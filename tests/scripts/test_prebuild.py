"""What is compiled ahead for a GPU: all that the steps need which are compared there, found again where it is wanted."""

import os
import sys

import numpy as np
import pytest
from launches import needsNvrtc
from source import ROOT

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
if str(ROOT / "scripts") not in sys.path:
    sys.path.append(str(ROOT / "scripts"))

import prebuild

from benchmarks import gpu, workloads
from benchmarks.contenders import puregraph as side
from puregraph.compile import program
from puregraph.core.storage import diskcache
from puregraph.modules import Linear
from puregraph.ops.cuda.runtime import compiler


@pytest.mark.parametrize("title", [title for title, case in gpu.CASES.items() if case is not None])
def test_a_step_that_is_compared_is_launches_from_end_to_end(title, monkeypatch):
    case, wanted = gpu.tiny(gpu.CASES[title]), prebuild.Wanted()
    for name, value in case.settings.items():
        monkeypatch.setattr(workloads.load(case.workload), name, value)
    before = program.backendFor
    with prebuild.onPaper(wanted):
        side.prepare(case.workload, "train", case.batch, None, compiled=True, precision=case.precision)
    assert program.backendFor is before
    assert wanted.sources and not wanted.left


def test_the_examples_of_a_class_are_gathered():
    wanted = prebuild.Wanted()
    prebuild.exampleOf(wanted, Linear, np.float32, True)
    count = len(wanted.sources)
    prebuild.exampleOf(wanted, Linear, np.float64, True)
    assert 0 < count < len(wanted.sources)


@needsNvrtc
def test_what_is_compiled_ahead_is_found_again(tmp_path, monkeypatch):
    wanted = prebuild.Wanted()
    prebuild.exampleOf(wanted, Linear, np.float32, False)
    monkeypatch.setenv("PUREGRAPH_CACHE", os.environ.get("PUREGRAPH_CACHE", ""))
    line = prebuild.kernels(wanted, "sm_90", tmp_path)
    assert line.startswith(f"{len(wanted.sources)} texts of kernels for sm_90 in ")
    files = list(tmp_path.glob(f"*{diskcache.SUFFIX}"))
    assert len(files) == len(wanted.sources)
    assert prebuild.size(tmp_path).startswith(f"{len(files)} files, ")
    compiler.KNOWN.clear()
    monkeypatch.setenv("PUREGRAPH_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "compiled", None)
    for source in wanted.sources:
        assert compiler.cubin(source, "sm_90").data.startswith(b"\x7fELF")
