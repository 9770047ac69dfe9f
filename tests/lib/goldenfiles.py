"""The golden files: a checkpoint of each kind that this release writes, and what is in it.

`python tests/lib/goldenfiles.py NAME ...` writes new ones beside those that are there. A file that is there is never
written again: it stands for the release that wrote it.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np

import puregraph
from puregraph import (
    Adam,
    BatchNorm,
    Dropout,
    Graph,
    Input,
    LayerNorm,
    Linear,
    MomentumSGD,
    Relu,
    Sequential,
)
from puregraph.core.storage.pieces import ElementRange, PieceSet, writePiece
from puregraph.modules import Add, Conv2D, Flatten, MaxPool2D
from puregraph.optimizers import SGD
from puregraph.serialize.checkpointwriter import DividedState, save

FOLDER = Path(__file__).resolve().parents[1] / "files" / "golden"


def drawn(*shape, dtype=np.float32):
    """Numbers that do not depend on any generator."""
    count = int(np.prod(shape))
    return (np.sin(np.arange(1, count + 1) * 1.7) * 0.5).reshape(shape).astype(dtype)


def filled(net):
    """A network whose arrays have such numbers."""
    for param in net.params.values():
        param.data = drawn(*param.shape, dtype=param.dtype)
    return net


def stepped(net, optimizer, x):
    """One step of an optimizer with a gradient of ones."""
    net.trainMode()
    y = net(x)
    net.backward(np.ones_like(y))
    optimizer.update()
    net.evalMode()
    return optimizer


def plain():
    """Layers with a state: no optimizer."""
    net = Sequential(
        Linear(3, 5, name="fc"), BatchNorm(5, name="norm"), Relu(name="relu"), Dropout(0.25, name="drop"), name="plain"
    )
    return filled(net).evalMode(), None, None


def trained():
    """An optimizer with its state, and all kinds of `extra`."""
    net = filled(Sequential(Linear(3, 4, name="fc"), Relu(name="relu"), Linear(4, 2, name="out"), name="trained"))
    optimizer = stepped(net, Adam(1e-2).setupOn(net), drawn(2, 3))
    extra = {"epoch": 3, "best": 0.75, "big": 1 << 80, "text": "\u00fcber", "none": None, "flags": [True, False],
             "pair": (1, 2.5), "order": np.arange(5), "masks": {"a": np.array([True, False])}}  # fmt: skip
    return net, optimizer, extra


def nested():
    """Graphs in graphs, with branches and two outputs."""
    x = Input(("N", 3), name="x").node()
    body = Sequential(
        Linear(3, 4, name="fc"), Sequential(LayerNorm(4, name="norm"), Relu(name="relu"), name="tail"), name="body"
    )(x)
    side = Linear(3, 4, name="side")(x)
    net = filled(Graph([x], [Add(name="sum")(body, side), Linear(4, 2, name="head")(body)], name="nested"))
    return net, fresh(net), {"note": "nested"}


def fresh(net):
    """An optimizer that has not stepped yet."""
    return MomentumSGD(0.1, 0.9).setupOn(net)


def tied():
    """One module at two nodes, and one array in two modules."""
    x = Input(("N", 4), name="x").node()
    layer, other = Linear(4, 4, name="layer"), Linear(4, 4, name="other")
    other.W = layer.W
    net = Graph([x], other(layer(layer(x))), name="tied")
    return filled(net), None, None


def doubles():
    """Arrays of float64, and of integers."""
    net = filled(Sequential(Linear(3, 2, name="fc"), BatchNorm(2, name="norm"), name="doubles").calcMode("float64"))
    return (
        net.evalMode(),
        None,
        {
            "int8": np.arange(-3, 3, dtype=np.int8),
            "uint64": np.array([2**64 - 1], np.uint64),
            "half": np.float16([1.5, -2]),
        },
    )


def halves():
    """Arrays of float16."""
    return filled(Sequential(Linear(3, 2, name="fc"), name="halves").calcMode("float16")).evalMode(), None, None


def picture():
    """A small convolutional network."""
    net = Sequential(
        Conv2D(1, 2, 3, pad=1, name="conv"),
        Relu(name="relu"),
        MaxPool2D(2, name="pool"),
        Flatten(name="flat"),
        Linear(8, 2, name="out"),
        name="picture",
    )
    return filled(net), SGD(0.5).setupOn(net), None


def pieces():
    """An optimizer whose state is in two pieces."""
    net = filled(Sequential(Linear(3, 4, name="one"), Linear(4, 2, name="two"), name="pieces"))
    return net, stepped(net, Adam(0.1).setupOn(net), drawn(2, 3)), None


MADE = {made.__name__: made for made in (plain, trained, nested, tied, doubles, halves, picture, pieces)}
INPUTS = {"picture": (2, 1, 4, 4), "tied": (2, 4)}


def writeInPieces(path, net, optimizer):
    """Write a checkpoint whose optimizer's state is in two files beside it."""
    state = optimizer.state
    runs, shapes = [[], []], []
    for index, (name, array) in enumerate(state.items()):
        if name.startswith("step"):
            continue
        flat = array.reshape(-1)
        shapes.append([index, list(array.shape), array.dtype.name])
        for rank, (a, b) in enumerate(itertools.pairwise((0, len(flat) // 2, len(flat)))):
            runs[rank] += [ElementRange(index, a, b, flat[a:b])] if a < b else []
    files = [writePiece(path, rank, 2, row) for rank, row in enumerate(runs)]
    arrays = {name: array if name.startswith("step") else None for name, array in state.items()}
    save(path, net, optimizer, None, DividedState(arrays, PieceSet(files, shapes)))


def described(value):
    """A value as JSON that can be compared."""
    if isinstance(value, np.ndarray):
        numbers = [repr(n) for n in value.ravel().tolist()]
        return {"dtype": value.dtype.name, "shape": list(value.shape), "numbers": numbers}
    if isinstance(value, dict):
        return {key: described(v) for key, v in value.items()}
    return {type(value).__name__: [described(v) for v in value]} if isinstance(value, (list, tuple)) else repr(value)


def facts(graph, optimizer, extra, name):
    """What is in a file, as JSON; `outputs` are those of the graph for fixed inputs."""
    dtype = graph.dtype or np.float32
    outputs = graph(drawn(*INPUTS.get(name, (2, 3)), dtype=dtype))
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return {
        "graph": graph.name,
        "nodes": [[step.path, type(step.module).__name__] for step in graph.steps().items],
        "arrays": {path: described(np.array(value.data)) for path, value in {**graph.params, **graph.states}.items()},
        "outputs": [{"shape": list(y.shape), "numbers": y.astype(float).ravel().tolist()} for y in outputs],
        "optimizer": None if optimizer is None else {
            "class": type(optimizer).__name__,
            "step": int(optimizer.step),
            "state": {key: described(np.array(value)) for key, value in optimizer.state.items()},
        },
        "extra": described(extra),
    }  # fmt: skip


def write(name):
    """Write one golden file with its facts, unless it is there."""
    path = FOLDER / f"{name}.h5"
    if path.exists():
        return
    puregraph.seed(0)
    net, optimizer, extra = MADE[name]()
    net.evalMode()  # as a graph is that was loaded
    if name == "pieces":
        writeInPieces(path, net, optimizer)
    else:
        save(path, net, optimizer, extra)
    known = facts(net, optimizer, extra, name)
    path.with_suffix(".json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or MADE:
        write(chosen)
