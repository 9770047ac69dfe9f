"""Where something is scarce (folders, file descriptors, memory) steps still run, or end with the error that says so."""

import os
import subprocess
import sys

import pytest

from puregraph.ops.native.threads.pages import AlignedBlock

RUN = """
import numpy as np
from puregraph import MSE, SGD, Calculator, Linear, Relu, Sequential, Trainer, Validator

def use(width):
    x, t = np.ones((40, 5), "f4"), np.zeros((40, 2), "f4")
    net = Sequential(Linear(5, width), Relu(), Linear(width, 2))
    program = net.compile((40, 5), train=False)
    assert program.run(x).shape == (40, 2) and program.why == "", program.why
    assert Calculator(net, batchsize=16).calculate(x).shape == (40, 2)
    Trainer(net, MSE(), SGD(0.1), batchsize=16, progress=None).train(x, t)
    assert np.isfinite(Validator(net, MSE(), batchsize=16).validate(x, t)["loss"])
"""
FOLDERS = """
import errno, os, tempfile

def refuse(*given, **options):
    raise OSError(errno.EROFS, "Read-only file system")

def nowhere():
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

os.mkdir = os.makedirs = os.replace = refuse
tempfile.gettempdir = nowhere
use(7)
"""
DESCRIPTORS = """
import os, resource
use(6)  # what is imported late is there by then
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    use(7)
"""
MEMORY = """
import resource
use(6)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
net = Sequential(Linear(64, 64), Relu()).evalMode()
program = net.compile((4, 64), train=False)
for room in (1 << 22, 1 << 24):
    try:
        net.compile((room, 64), train=False).run(np.ones((4, 64), "f4"))
    except MemoryError:
        print("MemoryError")
assert np.allclose(program.run(np.ones((4, 64), "f4")), net(np.ones((4, 64), "f4")), atol=1e-5)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
use(8)
"""


def ran(code, folder):
    """What a process prints that runs such code, whose kernels are compiled anew; warnings are errors there."""
    environment = {**os.environ, "PUREGRAPH_CACHE": str(folder)}
    command = [sys.executable, "-W", "error", "-c", RUN + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize("code", [FOLDERS, DESCRIPTORS], ids=["folders", "descriptors"])
def test_steps_are_compiled_in_memory_where_nothing_can_be_stored(tmp_path, code):
    ran(code, tmp_path / "cache")


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
def test_where_memory_ends_a_memory_error_says_so_and_all_goes_on_afterwards(tmp_path):
    assert ran(MEMORY, tmp_path / "cache").split() == ["MemoryError"] * 2


@pytest.mark.parametrize("size", [1 << 50, 1 << 60])
def test_memory_that_the_system_does_not_have_is_a_memory_error(size):
    with pytest.raises(MemoryError, match="there is no memory for"):
        AlignedBlock(size)
