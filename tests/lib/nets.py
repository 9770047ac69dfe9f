"""Networks for the tests of blueprints and checkpoints."""

import numpy as np

from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.sequential import Sequential
from puregraph.modules import Add, BatchNorm, Concat, Conv2D, Dropout, Flatten, Linear, Relu, Split


def small():
    """Every kind of array: parameters, float states, counters, a random key."""
    return Sequential(
        Conv2D(1, 2, 3, name="conv"), BatchNorm(2), Relu(), Flatten(), Dropout(), Linear(32, 3, name="fc")
    )


def branched():
    """Slots, two outputs, a nested graph at two nodes, and one Module twice."""
    x = Input(name="x").node()
    shared = Linear(4, 4, name="shared")
    block = Sequential(shared, Relu(), name="block")
    first = block.node(x, name="first")
    parts = Split(axis=1, sections=(1, 3), name="parts").node(block.node(first, name="second"))
    joined = Concat(axis=1, name="joined").node((parts, [1, 0]), first)
    return Graph(x, [Add(name="sum").node(shared.node(x, name="again"), first), joined], name="net")


def tied():
    """An encoder and a decoder of different classes that share one array."""
    net = Sequential(Linear(3, 3, name="encoder"), Relu(), Linear(3, 3, name="decoder"))
    net["decoder"].W = net["encoder"].W
    return net


def values(graph):
    """All arrays by path."""
    return {path: np.array(a.data) for path, a in {**graph.params, **graph.states}.items()}


def same(one, other):
    """Whether two graphs hold the same bits."""
    a, b = values(one), values(other)
    return list(a) == list(b) and all(a[k].dtype == b[k].dtype and a[k].tobytes() == b[k].tobytes() for k in a)
