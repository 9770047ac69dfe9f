"""The device is chosen once, for a reason that it can say; a GPU counts only after a kernel ran."""

import importlib
import platform
import sys
import threading

import numpy as np
import pytest
from fakecupy import FakeArray, makeCupy

from puregraph.core import device as devices
from puregraph.core.errors import DeviceError


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a new process: nothing chosen yet, and no wish in the environment."""
    monkeypatch.setattr(devices, "chooser", devices.DeviceChooser())
    monkeypatch.delenv("PUREGRAPH_DEVICE", raising=False)


@pytest.fixture
def install(monkeypatch):
    """Put a fake CuPy in place; None for a machine without one."""
    return lambda cupy: monkeypatch.setitem(sys.modules, "cupy", cupy)


def test_without_cupy_the_cpu_is_chosen_and_the_extras_are_named(install):
    install(None)
    assert devices.name() == "cpu"
    assert devices.arrays() is np
    assert "CuPy is not installed" in devices.reason()
    assert "puregraph[cuda12]" in devices.reason()


def test_a_gpu_counts_when_its_kernel_ran(install):
    cupy = makeCupy()
    install(cupy)
    assert devices.name() == "cuda"
    assert devices.arrays() is cupy
    assert devices.reason() == "cuda, because a test kernel ran on Toy GPU with CuPy 14.2.0"


@pytest.mark.parametrize(
    ("cupy", "words"),
    [
        (makeCupy(available=False, driver=0), "CuPy 14.2.0 is installed, but finds no NVIDIA driver"),
        (
            makeCupy(available=False, driver=12040),
            "CuPy 14.2.0 is made for CUDA 13.2, the NVIDIA driver for CUDA 12.4: install cupy-cuda12x in place of it, "
            "or a newer driver",
        ),
        (makeCupy(available=False), "finds an NVIDIA driver for CUDA 13.0, but no GPU that it can use"),
        (makeCupy(fault=RuntimeError("cudaErrorInsufficientDriver: too old")), "cudaErrorInsufficientDriver"),
        (
            makeCupy(fault=OSError("libnvrtc.so.13: cannot open\nsecond line")),
            "NVRTC, which compiles kernels, cannot be used: the extras puregraph[cuda12] and puregraph[cuda13] bring it; "
            "a test kernel did not run with CuPy 14.2.0: OSError: libnvrtc.so.13: cannot open",
        ),
        (makeCupy(wrong=1.0), "wrong result on Toy GPU: wanted [2.5], got [3.5]"),
    ],
    ids=["no driver", "driver of another CUDA", "no GPU", "old driver", "no NVRTC", "wrong result"],
)
def test_a_gpu_that_does_not_work_does_not_count(install, cupy, words):
    install(cupy)
    assert devices.name() == "cpu"
    assert words in devices.reason()
    assert "\n" not in devices.reason()
    with pytest.raises(DeviceError) as caught:
        devices.useDevice("cuda")
    assert words in str(caught.value)
    assert "'cpu' and 'auto' work" in str(caught.value)


def test_a_cupy_that_breaks_on_import_does_not_count(tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text("raise OSError('libcublas.so.13: no such file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    importlib.invalidate_caches()
    assert devices.name() == "cpu"
    assert "CuPy cannot be imported: OSError: libcublas.so.13" in devices.reason()


def test_the_environment_can_ask_for_the_cpu(install, monkeypatch):
    install(makeCupy(fault=AssertionError("nobody should touch the GPU")))
    monkeypatch.setenv("PUREGRAPH_DEVICE", "cpu")
    assert devices.name() == "cpu"
    assert devices.reason() == "cpu, because PUREGRAPH_DEVICE=cpu"


def test_the_environment_can_demand_a_gpu(install, monkeypatch):
    install(None)
    monkeypatch.setenv("PUREGRAPH_DEVICE", "cuda")
    with pytest.raises(DeviceError, match="PUREGRAPH_DEVICE=cuda: no GPU can be used, because CuPy is not installed"):
        devices.name()
    with devices.useDevice("cpu"):
        assert devices.name() == "cpu"


def test_an_unknown_wish_names_value_and_choices(monkeypatch):
    monkeypatch.setenv("PUREGRAPH_DEVICE", "gpu")
    with pytest.raises(DeviceError, match="PUREGRAPH_DEVICE=gpu: wanted one of auto, cpu, cuda, got 'gpu'"):
        devices.name()
    with pytest.raises(DeviceError, match="wanted one of auto, cpu, cuda, got 'tpu'"):
        devices.useDevice("tpu")


def test_an_empty_wish_is_none(install, monkeypatch):
    install(None)
    monkeypatch.setenv("PUREGRAPH_DEVICE", "")
    assert devices.name() == "cpu"


def test_the_environment_is_read_once(install, monkeypatch):
    install(makeCupy())
    monkeypatch.setenv("PUREGRAPH_DEVICE", "cpu")
    assert devices.name() == "cpu"
    monkeypatch.setenv("PUREGRAPH_DEVICE", "cuda")
    assert devices.name() == "cpu"


def test_a_device_is_used_until_the_block_ends(install):
    install(makeCupy())
    devices.useDevice("cpu")
    assert devices.reason() == "cpu, because useDevice('cpu')"
    with devices.useDevice("cuda"):
        assert devices.name() == "cuda"
        with devices.useDevice("cpu"):
            assert devices.name() == "cpu"
        assert devices.name() == "cuda"
    assert devices.name() == "cpu"


def test_the_block_ends_with_an_exception_too(install):
    install(makeCupy())
    with pytest.raises(KeyError), devices.useDevice("cpu"):
        raise KeyError
    assert devices.name() == "cuda"


def test_a_refused_device_leaves_the_one_in_use(install):
    install(None)
    devices.useDevice("cpu")
    with pytest.raises(DeviceError):
        devices.useDevice("cuda")
    assert devices.name() == "cpu"


def test_eight_threads_probe_once(monkeypatch):
    calls, together, allStarted = [], threading.Barrier(9), threading.Event()

    def slowProbe():
        calls.append(1)
        allStarted.wait(10)
        return None, "this machine has none"

    def ask():
        together.wait(10)
        names.append(devices.name())

    names = []
    monkeypatch.setattr(devices, "probe", slowProbe)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.wait(10)
    allStarted.set()
    for thread in threads:
        thread.join(10)
    assert names == ["cpu"] * 8
    assert len(calls) == 1


def test_arrays_move_both_ways(install):
    install(makeCupy())
    there = devices.toDevice(np.array([1, 2]))
    assert isinstance(there, FakeArray)
    assert devices.toDevice(there) is there
    assert devices.isDeviceArray(there)
    assert devices.toHost(there).tolist() == [1, 2]
    with devices.useDevice("cpu"):
        assert devices.toDevice(there).tolist() == [1, 2]


def test_on_the_cpu_arrays_stay_what_they_are(install):
    install(None)
    x = np.arange(3)
    assert devices.toDevice(x) is x
    assert devices.toHost(x) is x
    assert devices.toHost([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert not devices.isDeviceArray(x)
    assert not devices.isDeviceArray([x])


def test_a_half_imported_cupy_has_no_arrays(install):
    install(type(sys)("cupy"))
    assert not devices.isDeviceArray(np.arange(3))


def test_synchronize_waits_for_the_gpu_alone(install):
    cupy = makeCupy()
    install(cupy)
    with devices.useDevice("cpu"):
        devices.synchronize()
    assert cupy.machine.waits == 0
    devices.synchronize()
    assert cupy.machine.waits == 1


def test_threads_are_cores_unless_limited(monkeypatch):
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    for variable in devices.LIMITS:
        monkeypatch.delenv(variable, raising=False)
    assert devices.threads() == 6
    monkeypatch.setenv("OMP_NUM_THREADS", "4,2")
    assert devices.threads() == 4
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert devices.threads() == 3
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "99")
    assert devices.threads() == 6
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "many")
    assert devices.threads() == 4


def test_versions_name_what_is_there_and_what_is_not():
    found = devices.versions()
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert set(devices.PACKAGES) <= set(found)
    assert "not installed" in (found["cupy-cuda12x"], found["cupy-cuda13x"])


def test_a_test_runs_on_each_device(device):
    with devices.useDevice(device):
        x = devices.toDevice(np.arange(3.0))
        assert devices.isDeviceArray(x) == (device == "cuda")
        assert devices.toHost(x + x).tolist() == [0.0, 2.0, 4.0]
