"""What every test gets: the devices to run on, a seed of its own, and one line about what was left out."""

import os

# As many workers as cores: products that wait for each other's threads would take twenty times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
import importlib.util
import signal
import sys
import threading
import zlib
from collections import Counter

import numpy as np
import launched
import pytest
import ongpu
from hypothesis import settings

from puregraph.core import device as devices
from puregraph.core import initial
from puregraph.ops.cuda.runtime import compiler
from puregraph.testing.emulator import emulator
from puregraph.ops.kernel import useFast
from puregraph.ops.native.llvm import jit
from puregraph.core.storage import diskcache
from puregraph.train import announcing

announcing.SILENT_SECONDS = 600  # a busy machine adds no line to what is printed
settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")

DEVICES = ["cpu", "cuda"] if devices.name() == "cuda" else ["cpu"]
LEFTOUT = {
    "peers": "comparisons with others were skipped: install the extras puregraph[peers] and, for all, puregraph[bench]",
    "gpu": f"tests that need a GPU were skipped: {devices.reason()}",
    "emulator": f"tests of kernels for a GPU were skipped: {emulator.missing() or 'the reasons are told by -rs'}",
    "nvrtc": f"tests of kernels for a GPU were skipped: {compiler.missing()}; install the extra puregraph[nvrtc]",
    "mpi": "tests of training on several processes were skipped: install the extra puregraph[mpich]",
    "ray": "tests of processes that are started again were skipped: install the extras puregraph[ray,mpich]",
    "openmpi": "tests of processes that survive others were skipped: scripts/mpi.sh runs them under Open MPI",
    "cupy": "tests of the real CuPy without a driver were skipped: install the extra puregraph[cupy]",
}
SHARE = 0.1  # seconds of CPU for each file of tests, in each worker of the quick tier
SPENT: Counter = Counter()  # seconds of CPU by file
QUICK = {"LOADED": {}, "HERE": threading.local()}  # what is loaded without having been optimised, and made for it
HASCUPY = importlib.util.find_spec("cupy") is not None
MISSING = {
    "emulator": emulator.missing(),
    "nvrtc": compiler.missing(),
    "cupy": None if HASCUPY else "CuPy is not installed",
    "mpi": launched.missing(),
    "openmpi": launched.missingOpenMpi(),
    "ray": launched.missing() or (None if importlib.util.find_spec("ray") is not None else "Ray is not installed"),
    "gpu": None if "cuda" in DEVICES else devices.reason(),
    "peers": None if importlib.util.find_spec("torch") is not None else "PyTorch is not installed",
}


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs in the background: Ctrl-C is tested
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    if importlib.util.find_spec("pytest_timeout") is None:
        parser.addini("timeout", "read by pytest-timeout, which is not installed")


def pytest_configure(config):
    """A worker that is done takes over tests of another: those that start processes are long, and stand together."""
    if getattr(config.option, "dist", "no") == "load":  # what -n alone means
        config.option.dist = "worksteal"


def pytest_report_header():
    return f"puregraph: {devices.reason()}; {devices.threads()} threads"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """The garbage collector rests while tens of thousands of tests are made, none of which becomes garbage, and never
    looks at them again: a collection of all of them takes more than a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items):
    """The first case of each test function is marked quick, unless it starts a process or takes long; what this
    machine lacks is skipped."""
    missing = {marker: reason for marker, reason in MISSING.items() if reason is not None}
    quick = set()
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if item.function not in quick and not markers & {"slow", "costly"} and not hasattr(item.module, "subprocess"):
            quick.add(item.function)
            item.add_marker("quick")
        for marker in missing.keys() & markers:
            item.add_marker(pytest.mark.skip(reason=missing[marker]))


def cpuSeconds():
    """What this process and those that it waited for have taken of the CPU."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    begun = cpuSeconds()
    try:
        return (yield)
    finally:
        SPENT[item.path] += cpuSeconds() - begun


def pytest_runtest_setup(item):
    if item.config.option.markexpr == "quick" and SPENT[item.path] > SHARE:
        pytest.skip("the quick tier gives each file its share of time, which is used up")


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", [])
    for marker, sentence in LEFTOUT.items():
        count = sum(marker in getattr(report, "keywords", ()) for report in skipped)
        if count:
            terminalreporter.write_line(f"{count} {sentence}")
    passed = terminalreporter.stats.get("passed", [])
    found = [value for report in passed for name, value in report.user_properties if name == "kernels"]
    if found:
        total = {key: (sum if key in ("texts", "launches") else max)(each[key] for each in found) for key in found[0]}
        terminalreporter.write_line(
            "kernels for a GPU: {texts:,} texts of {launches:,} launches; they take up to {registers} registers and "
            "{shared:,} bytes of shared memory".format(**total)
        )


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.gpu] * (name == "cuda")) for name in DEVICES])
def device(request):
    """The name of the device in use; a test that takes it runs once on each device to be tested."""
    with devices.useDevice(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def onItsDevice(request, monkeypatch):
    """Where there is a GPU, what asks for one gets it, kernels that would be emulated run there, and the rest is about
    the CPU. A GPU that does not answer any more takes the worker with it: pytest-xdist names the test, and starts anew."""
    if "cuda" not in DEVICES:
        yield
        return
    isGpu, cupy = "gpu" in request.keywords, sys.modules["cupy"]
    if "emulator" in request.keywords and request.module.__name__ not in ongpu.BROKEN:
        monkeypatch.setattr(emulator, "run", ongpu.run)
    with devices.useDevice("cuda" if isGpu else "cpu"):
        yield
    try:
        cupy.cuda.Device().synchronize()
    except Exception as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(70)
        pytest.exit(f"{request.node.nodeid}: the GPU does not answer any more: {error}")


@pytest.fixture
def seed(request):
    """A number that belongs to this test and stays the same from run to run, whichever folder its file is moved to."""
    name = request.node.nodeid.partition("::")[2]
    return zlib.crc32(f"tests/{request.path.name}::{name}".encode())


@pytest.fixture(autouse=True)
def seeded(seed):
    """All random numbers of a test start the same, whatever ran before it."""
    np.random.seed(seed)
    initial.seed(seed)


@pytest.fixture
def rng(seed):
    """A generator of random numbers of the test's own."""
    return np.random.default_rng(seed)


@pytest.fixture
def numpyOnly():
    """Programs are carried out by numpy, which equals the eager pass to the last bit."""
    with useFast(False):
        yield


@pytest.fixture
def longIfSlow(request, monkeypatch):
    """Have runs of `recipes.outcome` take thirty steps in slow tests, in place of ten."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.setenv(launched.LENGTH, "30")


@pytest.fixture
def quickly(request, monkeypatch):
    """Have LLVM optimise nothing everyday, which takes less time; kernels made so are kept in a folder beside the others.

    A test that changes what is generated sets PUREGRAPH_CACHE and `jit.LOADED` to its own."""
    if request.node.get_closest_marker("slow"):  # these take kernels as users have them
        return

    def createMachine(L, name, features):
        triple = L.get_process_triple()
        return L.Target.from_triple(triple).create_target_machine(cpu=name, features=features, opt=0, jit=True)

    def optimise(L, module, machineHere):
        builder = L.create_pass_builder(machineHere, L.create_pipeline_tuning_options(speed_level=0))
        builder.getModulePassManager().run(module, builder)

    monkeypatch.setenv("PUREGRAPH_CACHE", os.path.join(next(diskcache.folders()), "opt0"))
    monkeypatch.setattr(jit, "createMachine", createMachine)
    monkeypatch.setattr(jit, "optimise", optimise)
    for name, value in QUICK.items():
        monkeypatch.setattr(jit, name, value)
