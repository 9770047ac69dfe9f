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
from puregraph.ops.native.threads import numthreads, pool
from puregraph.optimizers import AdamW, MomentumSGD

pytestmark = needsNative
ROOT = Path(__file__).parents[2]
THREADS = 1, 2, 3, 4
TRAINED = [  # a row of the matrix each: a workload, its batch, and the constants that are smaller than in benchmarks
    ("mlp", 1, {}),
    ("mlp", 64, {}),
    ("lenet", 64, {}),
    ("resnet20", 64, {}),
    ("resnet18", 2, {}),
    ("mobilenet", 16, {}),
    ("unet", 4, {"SIDE": 64, "CHANNELS": (16, 32, 64, 128, 256)}),
    ("lstm", 32, {}),
    ("transformer", 8, {}),
    ("gpt", 4, {"WORDS": 2000, "LENGTH": 128, "LAYERS": 2, "SIZE": 192}),
    ("dlrm", 256, {}),
]
SMALL = [
    ("mlp", 1, {}),
    ("mlp", 24, {}),
    ("lenet", 5, {}),
    ("resnet20", 3, {}),
    ("resnet18", 1, {}),
    ("mobilenet", 2, {}),
    ("unet", 2, workloads.load("unet").TINY),
    ("lstm", 5, {}),
    ("transformer", 1, {}),
    ("gpt", 2, {"WORDS": 200, "LENGTH": 40, "LAYERS": 1, "HEADS": 3, "SIZE": 24}),
    ("dlrm", 24, {"TABLES": (100,) * 26}),
]


def trained(name, batch, steps, constants, dtype="float32"):
    """The sha256 of all parameters and states of a workload after so many steps."""
    workload = workloads.load(name)
    workloads.resize(name, constants)
    puregraph.seed(0)
    net = workload.ours().trainMode()
    inputs, target = workloads.dataOf(workload, batch)
    if dtype == "float64":
        net.calcMode(dtype)
        inputs = [x.astype(dtype) if x.dtype.kind == "f" else x for x in inputs]
        target = target.astype(dtype) if target.dtype.kind == "f" else target
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


@pytest.fixture
def sameSizes():
    """The constants of workloads afterwards are those that there were."""
    before = {name: dict(vars(workloads.load(name))) for name in workloads.NAMES}
    yield
    for name, constants in before.items():
        workloads.resize(name, constants)


def test_the_matrix_has_every_workload_that_is_trained():
    trained = [name for name in workloads.NAMES for mode, _ in workloads.load(name).CASES if mode == "train"]
    assert [name for name, *_ in TRAINED] == [name for name, *_ in SMALL] == trained


@pytest.mark.usefixtures("quickly", "sameThreads", "sameSizes")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "batch", "constants"), SMALL, ids=[f"{name}-{batch}" for name, batch, _ in SMALL])
def test_two_steps_end_with_one_hash_for_any_number_of_threads(name, batch, constants, dtype):
    hashes = {}
    for threads in THREADS:
        pool.setThreads(threads)
        hashes[threads] = trained(name, batch, 2, constants, dtype)
    assert len(set(hashes.values())) == 1, hashes


def test_only_what_places_tasks_asks_how_many_threads_there_are():
    """Blockings of products, groups of samples, the pool, and compiling in parallel: anything else could cut a sum."""
    asking = re.compile(r"numthreads import .*\bthreads\b|\bthreads\(\)|\bcpu_count\(|\bcores\(")
    package = ROOT / "puregraph"
    paths = [path.relative_to(package) for folder in ("ops", "compile") for path in (package / folder).rglob("*.py")]
    asks = {path.as_posix() for path in paths if asking.search((package / path).read_text())}
    native = {f"ops/native/{name}.py" for name in ("llvm/jit", "threads/pool", "threads/numthreads")}
    assert asks - {"ops/cuda/runtime/compiler.py"} == {
        *native,
        "ops/product/native/gemm.py",
        "ops/quantized/lowering.py",  # sums of integers are exact
        "ops/recurrent/lowering.py",
    }


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "batch", "constants"), TRAINED, ids=[f"{name}-{batch}" for name, batch, _ in TRAINED])
def test_a_hundred_steps_end_with_one_hash_for_any_number_of_threads(name, batch, constants):
    """PUREGRAPH_THREADS, and OpenBLAS's, in a process of its own for each number."""
    program = f"from test_onehash import trained; print(trained({name!r}, {batch}, 100, {constants}))"
    paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent), *filter(None, sys.path)])
    hashes = {}
    for threads in THREADS:
        counts = {"PUREGRAPH_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
        environment = {**os.environ, "PYTHONPATH": paths, **counts}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        hashes[threads] = done.stdout.strip()
    assert len(set(hashes.values())) == 1, hashes
