"""Memory does not grow with the work that is done: training, validating, calculating, new shapes, graphs and formulas.

What is measured is what stays resident after a collection of cycles, once malloc has given back what is free. The
process collects every 50 iterations: the nodes of a graph link both ways, so graphs that are dropped wait for Python's
collector, which comes when there are a quarter more objects than before. The most that ever waited leaves memory
resident in pieces, up to 20 MB here after 80,000 iterations and no more from then on, whatever is alive. With the
collections a leak is all that is left to grow.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux tells it")
EVERYDAY, MANY = (700, 1400), (1000, 2500)  # the iterations between which memory is not to grow
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

leak, leaked = int(sys.argv[3]), []

def work(i):
    leaked.append(bytes(leak)) if leak else None
    if i % 50 == 0:
        gc.collect()
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


def grown(first, last, leak=0):
    """By how many kB a process grows from one iteration to another; with a leak of so many bytes in each."""
    command = [sys.executable, "-c", MIXED, *map(str, (first, last, leak))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_memory_does_not_grow_with_mixed_work():
    assert grown(*EVERYDAY) < 128


@pytest.mark.slow
@pytest.mark.parametrize(("iterations", "leak"), [(EVERYDAY, 250), (MANY, 100)])
def test_a_leak_of_so_many_bytes_an_iteration_would_be_noticed(iterations, leak):
    assert grown(*iterations, leak) > 128


@pytest.mark.slow
def test_memory_does_not_grow_with_more_of_it():
    assert grown(*MANY) < 128


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_memory_after_twenty_thousand_iterations_is_that_after_two_thousand():
    assert grown(2000, 20_000) < 256
