"""Whole steps on a GPU, as a stand-in for CuPy carries them out: they give what the CPU gives, from captured graphs."""

import numpy as np
import pytest
from fakecupy import useGpu
from launches import needsEmulator

from puregraph import device, initial
from puregraph.compile.gpu.capture import Section
from puregraph.costs import MSE, CrossEntropy
from puregraph.graph import Graph
from puregraph.input import Input
from puregraph.modules import (
    LSTM,
    Add,
    AvgPool2D,
    BatchNorm,
    Conv2D,
    Dropout,
    Embedder,
    Flatten,
    Gelu,
    GlobalAvgPool,
    LayerNorm,
    Linear,
    MaxPool2D,
    Relu,
)
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD
from puregraph.sequential import Sequential

pytestmark = needsEmulator


def perceptron():
    return Sequential(Linear(7, 5), Relu(), Linear(5, 4))


def lenet():
    return Sequential(
        *(Conv2D(1, 3, 3), Relu(), MaxPool2D(2), Conv2D(3, 4, 3), Relu(), MaxPool2D(2)),
        *(Flatten(), Linear(16, 6), Relu(), Linear(6, 4)),
    )


def residual():
    x = Input().node()
    first = Relu().node(BatchNorm(4).node(Conv2D(3, 4, 3, pad=1, useBias=False).node(x)))
    inner = Relu().node(BatchNorm(4).node(Conv2D(4, 4, 3, pad=1, useBias=False).node(first)))
    second = Relu().node(Add().node(BatchNorm(4).node(Conv2D(4, 4, 3, pad=1, useBias=False).node(inner)), first))
    return Graph(x, Linear(4, 4).node(GlobalAvgPool().node(second)))


def dropping():
    return Sequential(Linear(7, 16), Gelu(), Dropout(0.3), Linear(16, 4))


def images(rng, n, *shape):
    return [(rng.standard_normal((5, *shape)).astype(np.float32), rng.integers(0, 4, 5)) for _ in range(n)]


MODELS = {
    "perceptron": (perceptron, (7,), Adam),
    "lenet": (lenet, (1, 14, 14), MomentumSGD),
    "residual": (residual, (3, 6, 6), SGD),
    "dropping": (dropping, (7,), AdamW),
}


def trained(make, batches, optimizer, **options):
    """A program after it has run on batches, its graph, and what came out."""
    initial.seed(1)
    net = make()
    shapes = [x.shape for x in batches[0]]
    program = net.compile(*shapes, cost=CrossEntropy(), optimizer=optimizer, poison=True, **options)
    return program, net, [program.run(*batch) for batch in batches]


def onBoth(monkeypatch, make, batches, optimizer, libraries=True, **options):
    """The same on the CPU and on a GPU."""
    with device.useDevice("cpu"):
        near = trained(make, batches, optimizer(), **options)
    cupy = useGpu(monkeypatch, libraries)
    return near, trained(make, batches, optimizer(), **options), cupy.machine


def close(got, wanted, tolerance=2e-5):
    got, wanted = np.asarray(device.toHost(got), float), np.asarray(wanted, float)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max(initial=0) <= tolerance * max(np.abs(wanted).max(initial=0), 1e-2)


def sameNet(far, near):
    for path, stored in {**near.params, **near.states}.items():
        there = {**far.params, **far.states}[path]
        assert device.isDeviceArray(there.data)
        close(there.data, stored.data)


def sections(program):
    return [part for _, part in program.built.parts if type(part) is Section]


@pytest.mark.parametrize("libraries", [True, False], ids=["libraries", "own"])
@pytest.mark.parametrize("name", MODELS)
def test_training_gives_what_the_cpu_gives_from_one_graph(monkeypatch, rng, name, libraries):
    make, shape, optimizer = MODELS[name]
    found = onBoth(monkeypatch, make, images(rng, 4, *shape), optimizer, libraries)
    (_, near, wanted), (program, far, got), machine = found
    assert program.why == ""
    assert (machine.reads, machine.replays) == (0, 3)
    (section,) = sections(program)
    assert len(program.built.parts) == 1
    assert section.why == ""
    for each, other in zip(got, wanted, strict=True):
        for y, z in zip(each, other, strict=True):
            close(y, z)
    sameNet(far, near)
