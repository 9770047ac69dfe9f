"""What there is here of all that a GPU takes is told in sentences, with what it means where something is missing."""

import ctypes
import sys
import types

import pytest
from fakecupy import useGpu
from launches import needsEmulator

from puregraph.core.errors import DeviceError
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear
from puregraph.modules.costs import MSE
from puregraph.ops.cuda.libraries import cudnn, paths
from puregraph.ops.cuda.runtime import compiler, diagnose
from puregraph.ops.product.cuda import cublaslt

BRINGS = "the extras puregraph[cuda12] and puregraph[cuda13] bring it"


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine on which no library of NVIDIA's is found."""
    known = paths.load, paths.folders, compiler.missing, compiler.version, cublaslt.missing, cublaslt.library
    known = (*known, cudnn.missing, cudnn.library)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    for each in known:
        each.cache_clear()
    monkeypatch.setattr(paths, "fileName", lambda stem, version: f"libnone{stem}.so.{version}")
    yield
    monkeypatch.undo()
    for each in known:
        each.cache_clear()


def test_what_is_missing_is_told_with_what_it_means(bare, monkeypatch):
    monkeypatch.setattr(diagnose, "DRIVER", "libnone.so.1")
    assert diagnose.parts() == {
        "driver": "no libnone.so.1 was found; nothing runs on a GPU, but kernels can be compiled, and run by the emulator",
        "NVRTC": "CUDA kernels cannot be compiled here: no nvrtc was found: pip install puregraph[nvrtc]; "
        "no step runs on a GPU",
        "cuBLASLt": f"no cublasLt was found: {BRINGS}; matrix products are done by own kernels, slower",
        "cuDNN": f"no cudnn was found: {BRINGS}; convolutions and attention are done by own kernels, slower",
    }


def test_a_library_of_another_cuda_than_cupys_is_told(monkeypatch):
    def part(family):
        return diagnose.LibraryStatus(lambda: None, lambda: "9.19.0", lambda: family, "slower")

    assert diagnose.describe(part(13)) == "9.19.0"
    useGpu(monkeypatch)
    assert diagnose.describe(part(13)) == "9.19.0"
    assert (
        diagnose.describe(part(12)) == "9.19.0, for CUDA 12, but CuPy is made for CUDA 13: they may not work together"
    )


def test_a_driver_is_told_by_the_cuda_that_it_is_for(monkeypatch):
    def version(code, found):
        def ask(place):
            place._obj.value = found
            return code

        return lambda name: types.SimpleNamespace(cuDriverGetVersion=ask)

    monkeypatch.setattr(ctypes, "CDLL", version(0, 13010))
    assert diagnose.driver() == "for CUDA 13.1"
    for code, found in ((0, 0), (3, 13010)):
        monkeypatch.setattr(ctypes, "CDLL", version(code, found))
        assert diagnose.driver().startswith("no libcuda.so.1 was found; nothing runs on a GPU")


@needsEmulator
def test_a_table_says_which_library_is_missing(monkeypatch):
    useGpu(monkeypatch, libraries=False)
    words = DeviceError("no cudnn was found: it is not there")
    monkeypatch.setattr(cudnn, "missing", lambda: str(words))
    monkeypatch.setattr(cublaslt, "missing", lambda: None)
    table = Sequential(Linear(3, 2)).compile((4, 3), (4, 2), cost=MSE()).table()
    assert "no cuDNN: convolutions and attention are done by own kernels, slower" in " ".join(table.split())
    assert "no cuBLASLt" not in table
