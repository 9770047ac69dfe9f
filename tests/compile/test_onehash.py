"""One hash of the weights for any number of threads: sums are cut by their sizes, never by how many threads there are."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from natively import needsNative

import puregraph
from benchmarks import workloads
from benchmarks.contenders.puregraph import COSTS
from puregraph.native.threads import numthreads, pool
from puregraph.optimizers import AdamW, MomentumSGD

pytestmark = needsNative
ROOT = Path(__file__).parents[2]
THREADS = 1, 2, 3, 4
SMALL = {  # by workload its batch, and the constants that are smaller
    "mlp": (24, {}),
    "lenet": (5, {}),
    "unet": (2, workloads.load("unet").TINY),
    "lstm": (5, {}),
    "transformer": (1, {}),
    "gpt": (2, {"WORDS": 200, "LENGTH": 40, "LAYERS": 1, "HEADS": 3, "SIZE": 24}),
    "dlrm": (24, {"TABLES": (100,) * 26}),
}
TRAINED = [(name, batch) for name in workloads.NAMES for mode, batch in workloads.load(name).CASES if mode == "train"]


def trained(name, batch, steps):
    """The sha256 of all parameters and states of a workload after so many steps."""
    workload = workloads.load(name)
    puregraph.seed(0)
    net = workload.ours().trainMode()
    inputs, target = workloads.dataOf(workload, batch)
    optimizer = AdamW(1e-4) if workload.OPTIMIZER == "adamw" else MomentumSGD(1e-3, 0.9)
    shapes = [*(x.shape for x in inputs), target.shape]
    program = net.compile(shapes, cost=COSTS[workload.COST](), optimizer=optimizer, keepGrads=False)
    for _ in range(steps):
        loss = program.run(*inputs, target)[0]
    assert np.isfinite(loss)
    digest = hashlib.sha256()
    for value in (*net.params.values(), *net.states.values()):
        digest.update(np.ascontiguousarray(value.data).tobytes())
    return digest.hexdigest()


@pytest.fixture
def sameThreads():
    """The number of threads that there was is there afterwards."""
    before, count = list(numthreads.WANTED), pool.threads()
    yield
    pool.setThreads(count)
    numthreads.WANTED[:] = before


@pytest.mark.usefixtures("quickly", "sameThreads")
@pytest.mark.parametrize("name", SMALL)
def test_two_steps_end_with_one_hash_for_any_number_of_threads(name, monkeypatch):
    batch, constants = SMALL[name]
    for key, value in constants.items():
        monkeypatch.setattr(workloads.load(name), key, value)
    found = set()
    for threads in THREADS:
        pool.setThreads(threads)
        found.add(trained(name, batch, 2))
    assert len(found) == 1


def test_only_what_places_tasks_asks_how_many_threads_there_are():
    """Blockings of products, groups of samples, the pool, and compiling in parallel: anything else could cut a sum."""
    asking = re.compile(r"numthreads import .*\bthreads\b|\bthreads\(\)|\bcpu_count\(|\bcores\(")
    paths = [
        path for folder in ("native", "compile", "kernels") for path in (ROOT / "puregraph" / folder).rglob("*.py")
    ]
    found = {path.name for path in paths if asking.search(path.read_text())}
    assert found == {"gemm.py", "recurrent.py", "pool.py", "jit.py", "numthreads.py"}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "batch"), TRAINED)
def test_a_hundred_steps_end_with_one_hash_for_any_number_of_threads(name, batch):
    """PUREGRAPH_THREADS, and OpenBLAS's, in a process of its own for each number."""
    program = f"from test_onehash import trained; print(trained({name!r}, {batch}, 100))"
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *filter(None, sys.path)])
    found = set()
    for threads in THREADS:
        counts = {"PUREGRAPH_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        environment = {**os.environ, "PYTHONPATH": paths, **counts}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
