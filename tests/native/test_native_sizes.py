"""Kernels are made for a layout, not for a number: those with equal keys have equal code, whatever the sizes."""

import os
import subprocess
import sys

import numpy as np
import pytest
from natively import needsNative

import puregraph
from puregraph import (
    AvgPool2D,
    BatchNorm,
    Conv2D,
    CrossEntropy,
    Flatten,
    Gelu,
    Graph,
    Identity,
    LayerNorm,
    Linear,
    MaxPool2D,
    Mean,
    MultiHeadAttention,
    Relu,
    Sequential,
    models,
)
from puregraph.compile.runtime import segment
from puregraph.ops.native.llvm import jit
from puregraph.ops.native.llvm.kernelcall import COMPILED

pytestmark = needsNative
SIZES = (64, 1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 33, 61)


def convolutions():
    """Direct, strided, grouped, depthwise, 1x1 and Winograd convolutions, with all kinds of pooling."""
    return Sequential(
        *(Conv2D(3, 16, 3, pad=1), BatchNorm(16), Relu(), Conv2D(16, 32, 3, pad=1), Relu()),
        *(Conv2D(32, 32, 3, pad=1, groups=32), Conv2D(32, 16, 1), MaxPool2D(3, 2, pad=1), Gelu()),
        *(Conv2D(16, 24, 5, stride=2, pad=2, groups=2), AvgPool2D(3, 1, pad=1), Flatten(), Linear(384, 10)),
    )


def skip(*modules):
    """The sum of some modules and their input."""
    x = Identity().node()
    return Graph([x], x + Sequential(*modules)(x))


def residual():
    """Blocks of Winograd convolutions."""

    def block(c):
        return skip(Conv2D(c, c, 3, pad=1), BatchNorm(c), Relu(), Conv2D(c, c, 3, pad=1))

    return Sequential(
        Conv2D(3, 32, 3, pad=1), block(32), Conv2D(32, 64, 3, 2, 1), block(64), Flatten(), Linear(4096, 10)
    )


def attention():
    """A block of self-attention over a sequence of any length."""
    return Sequential(skip(LayerNorm(32), MultiHeadAttention(32, 4)), Mean(axis=1), Linear(32, 10))


NETS = {
    "convolutions": (convolutions, lambda n: ((n, 3, 16, 16), (n,))),
    "lenet": (models.lenet, lambda n: ((n, 1, 28, 28), (n,))),
    "lstm": (models.lstm, lambda n: ((3, n, 28), (3,))),
    "residual": (residual, lambda n: ((n, 3, 16, 16), (n,))),
    "attention": (attention, lambda n: ((5, n, 32), (5,))),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_with_equal_keys_have_equal_code_for_all_sizes(name, dtype, monkeypatch):
    texts = {}
    count = 0

    def compileAll(wants, digest=""):
        nonlocal count
        libraries = []
        for key, make in wants:
            text, names, scratch = make()
            count += 1
            assert texts.setdefault((key, digest), (text, scratch)) == (text, scratch), f"'{key}' depends on a size"
            libraries.append(jit.LoadedKernel(0, tuple(names), scratch))
        return libraries

    monkeypatch.setattr(segment.jit, "compileAll", compileAll)
    make, shapes = NETS[name]
    net = make().calcMode(dtype)
    for n in SIZES:
        net.compile(*shapes(n), cost=CrossEntropy())
    assert count > 3 * len(texts)


STEPS = """
import hashlib, sys
import numpy as np
import puregraph
from puregraph import CrossEntropy, SGD
sys.path.insert(0, {folder!r})
from test_native_sizes import NETS

puregraph.seed(0)
make, shapes = NETS["convolutions"]
net, optimizer = make().trainMode(), SGD(0.01)
for n in {sizes}:
    rng = np.random.default_rng(n)
    images, labels = shapes(n)
    program = net.compile(images, labels, cost=CrossEntropy(), optimizer=optimizer)
    if n == {last}:
        for _ in range(2):
            program.run(rng.standard_normal(images, np.float32), rng.integers(0, 10, labels))
print(hashlib.sha256(b"".join(p.data.tobytes() for p in net.params.values())).hexdigest())
"""


def test_weights_equal_those_of_a_process_that_compiles_one_size(tmp_path):
    def hashOf(sizes, threads):
        text = STEPS.format(folder=os.path.dirname(__file__), sizes=sizes, last=sizes[-1])
        env = {**os.environ, "PUREGRAPH_CACHE": str(tmp_path / str(len(sizes))), "PUREGRAPH_THREADS": str(threads)}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        return subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True).stdout

    alone = hashOf((13,), 1)
    assert alone == hashOf((33, 13), 2) == hashOf((33, 13), 3)  # the latter from the cache on disk


@pytest.mark.parametrize("name", ["lenet", "residual", "lstm", "attention"])
def test_results_do_not_depend_on_the_sizes_compiled_before(name):
    """A tile that is compiled already computes the same bits as the fastest one."""
    make, shapes = NETS[name]
    puregraph.seed(0)
    net, cost = make().trainMode(), CrossEntropy()
    sizes = [*np.random.default_rng(1).permutation([1, 2, 3, 7, 12, 13, 16, 23, 24, 29, 31, 36, 37, 40])]

    def run(n):
        rng = np.random.default_rng(n)
        images, labels = shapes(int(n))
        program = net.compile(images, labels, cost=cost)
        outputs = program.run(rng.standard_normal(images, np.float32), rng.integers(0, 10, labels))
        kernels = {work.key for call in program.plan.schedule.calls for work in getattr(call.function, "works", ())}
        return [*outputs, *(p.grad.copy() for p in net.params.values())], kernels

    COMPILED.clear()
    together = [run(n) for n in sizes]
    alone = []
    for n in sizes:
        COMPILED.clear()
        alone.append(run(n))
    for n, (results, _), (others, _) in zip(sizes, together, alone):
        assert all(np.array_equal(x, y) for x, y in zip(results, others, strict=True)), f"size {n}"
    counts = [len(set().union(*(kernels for _, kernels in results))) for results in (together, alone)]
    assert counts[0] < counts[1]
