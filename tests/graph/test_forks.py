"""A process forks while its threads run programs, compile and make formulas: its children do all that, and none hangs."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
BUSY = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which are what is tried here
import numpy as np
from puregraph import MSE, SGD, BatchNorm, Conv2D, Formula, Linear, Relu, Sequential
from puregraph.compile import Program
from puregraph.compile.runtime.buffers import Workspace
from puregraph.core import initial

count, patience = int(sys.argv[1]), 30.0
net, room = Sequential(Conv2D(3, 8, 3, pad=1), BatchNorm(8), Relu()).evalMode(), Workspace()
given = [np.random.default_rng(n).normal(size=(n, 3, 8, 8)).astype("f4") for n in (4, 9, 16)]
programs = [Program(net, [x.shape], workspace=room) for x in given]
wanted = [net(x) for x in given]
x, t = np.ones((8, 5), "f4"), np.zeros((8, 2), "f4")
second = Sequential(Linear(5, 6), Relu(), Linear(6, 2))
learner = second.compile([x.shape, t.shape], cost=MSE(), optimizer=SGD(0.01))
over = threading.Event()

def check():
    for program, x, y in zip(programs, given, wanted):
        assert np.allclose(program.run(x), y, rtol=1e-4, atol=1e-4)

def formula(k):
    assert np.isfinite(Formula(f"exp(-x * x) + tanh({k}.5 * x)").derivative("x")(x=np.ones(3))).all()

def run():
    while not over.is_set():
        check()

def learn():
    while not over.is_set():
        learner.run(x, t)

def make():
    k = 0
    while not over.is_set():
        k += 1
        formula(k)
        initial.SEED.next()

def build():
    k = 0
    while not over.is_set():
        k += 1
        Sequential(Linear(3, 2 + k % 5), Relu()).compile((4, 3), train=False)

threads = [threading.Thread(target=each) for each in (run, learn, make, build)]
for thread in threads:
    thread.start()
children, hung, failed = {}, 0, 0

def child():
    check()
    formula(1)
    Sequential(Linear(3, 4), Relu()).compile((2, 3), train=False).run(np.ones((2, 3), "f4"))

def settle(most):
    global hung, failed
    while len(children) > most:
        for pid, begun in list(children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del children[pid]
                failed += status != 0
            elif time.monotonic() - begun > patience:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del children[pid]
                hung += 1
        time.sleep(0.002)

for _ in range(count):
    settle(3)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(code)
    children[pid] = time.monotonic()
settle(0)
over.set()
for thread in threads:
    thread.join(60)
print(f"{hung} hung, {failed} failed, {sum(thread.is_alive() for thread in threads)} threads left")
"""


def forked(count, folder, timeout):
    """What a busy process says of its children."""
    environment = {**os.environ, "PUREGRAPH_CACHE": str(folder)}
    command = [sys.executable, "-c", BUSY, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    return done.stdout.strip() + done.stderr[-2000:]


def test_children_of_a_busy_process_do_what_it_does(tmp_path):
    assert forked(20, tmp_path, 280) == "0 hung, 0 failed, 0 threads left"


@pytest.mark.slow
@pytest.mark.timeout(4000)
def test_a_thousand_children_of_a_busy_process_do_what_it_does(tmp_path):
    assert forked(1000, tmp_path, 3900) == "0 hung, 0 failed, 0 threads left"
