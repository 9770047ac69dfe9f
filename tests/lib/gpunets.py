"""Small networks that are trained on a GPU in tests, and what trains them."""

import numpy as np

from puregraph.core import device, initial
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import (
    LSTM,
    Add,
    Attention,
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
    Reshape,
    Transpose,
)
from puregraph.modules.costs import CrossEntropy
from puregraph.optimizers import SGD, Adam, AdamW, MomentumSGD


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
    """Batches of numbers, or of words, and labels."""
    if shape == (None,):
        return [(rng.integers(0, 11, (5, 6)), rng.integers(0, 4, 5)) for _ in range(n)]
    return [(rng.standard_normal((5, *shape)).astype(np.float32), rng.integers(0, 4, 5)) for _ in range(n)]


def remembering():
    return Sequential(LSTM(3, 4), Flatten(), Linear(20, 4))


def transforming():
    """A block of a transformer on words: attention, and a network behind it, each with a norm before."""
    words = Input().node()
    x = Embedder(11, 8).node(words)
    heads = [
        Transpose((0, 2, 1, 3)).node(Reshape((-1, 6, 2, 8)).node(Linear(8, 16).node(LayerNorm(8).node(x))))
        for _ in "qkv"
    ]
    y = Reshape((-1, 6, 16)).node(Transpose((0, 2, 1, 3)).node(Attention(causal=True).node(*heads)))
    x = Add().node(x, Linear(16, 8).node(y))
    inner = Linear(12, 8).node(Gelu(approximate=True).node(Linear(8, 12).node(LayerNorm(8).node(x))))
    return Graph(words, Linear(48, 4).node(Flatten().node(Add().node(x, inner))))


def averaging():
    return Sequential(Conv2D(2, 3, 3, stride=2), AvgPool2D(2), Flatten(), Linear(12, 4))


MODELS = {
    "perceptron": (perceptron, (7,), Adam),
    "lenet": (lenet, (1, 14, 14), MomentumSGD),
    "residual": (residual, (3, 6, 6), SGD),
    "dropping": (dropping, (7,), AdamW),
    "remembering": (remembering, (5, 3), Adam),
    "transforming": (transforming, None, MomentumSGD),
    "averaging": (averaging, (2, 9, 9), SGD),
}


def trained(make, batches, optimizer, runs=None, **options):
    """A program after it has run on batches, its graph, and what came out."""
    initial.seed(1)
    net = make()
    shapes = [x.shape for x in batches[0]]
    program = net.compile(*shapes, cost=CrossEntropy(), optimizer=optimizer, poison=True, **options)
    return program, net, [program.run(*batch) for batch in batches[:runs]]


def close(got, wanted, tolerance=2e-5):
    got, wanted = np.asarray(device.toHost(got), float), np.asarray(wanted, float)
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max(initial=0) <= tolerance * max(np.abs(wanted).max(initial=0), 1e-2)
