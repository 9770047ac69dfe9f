"""Memory does not grow with the work that is done: training, validating, calculating, new shapes, graphs and formulas."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux tells it")
MIXED = """
import ctypes, gc, sys, warnings
warnings.simplefilter("ignore")  # of many shapes
import numpy as np
from puregraph import (
    Adam, BatchNorm, Calculator, CrossEntropy, Formula, Linear, Relu, Sequential, Trainer, Validator
)

def used():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))

first, last = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
x, t = rng.normal(size=(64, 6)).astype("f4"), rng.integers(0, 3, 64)
net = Sequential(Linear(6, 8), Relu(), BatchNorm(8), Linear(8, 3))
trainer = Trainer(net, CrossEntropy(), Adam(), batchsize=32, progress=None)
validator, calculator = Validator(net, CrossEntropy(), batchsize=32), Calculator(net, batchsize=64)

def work(i):
    kind = i % 5
    if kind == 0:
        trainer.train(x, t)
        trainer.history.clear()  # which is the user's, and has a row for each epoch
    elif kind == 1:
        validator.validate(x, t)
    elif kind == 2:
        calculator.calculate(x[: 1 + i // 5 % 60])
    elif kind == 3:
        width = 1 + i // 5 % 9
        made = Sequential(Linear(6, width), Relu(), Linear(width, 2))
        made(x[:3])
        if i % 25 == 3:
            made.compile((3, 6), train=False).run(x[:3])
    else:
        Formula(f"x * {i}.5 + exp(-x)").derivative("x")(x=x)

for i in range(600):  # what is remembered of formulas is bounded
    Formula(f"x * {i}.25 + exp(-x)").derivative("x")(x=x)
for i in range(first):
    work(i)
before = used()
for i in range(first, last):
    work(i)
print(used() - before)
"""


def grown(first, last, folder, timeout):
    """By how many kB a process grows from one iteration to another."""
    environment = {**os.environ, "PUREGRAPH_CACHE": str(folder)}
    command = [sys.executable, "-c", MIXED, str(first), str(last)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_memory_does_not_grow_with_mixed_work(tmp_path):
    assert grown(1000, 2500, tmp_path, 280) < 1024


@pytest.mark.slow
@pytest.mark.timeout(4000)
def test_memory_after_twenty_thousand_iterations_is_that_after_two_thousand(tmp_path):
    assert grown(2000, 20_000, tmp_path, 3900) < 1024
