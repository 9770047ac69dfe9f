"""Graphs of many forms, with input shapes, to draw."""

import puregraph as pg
from puregraph import models


def withLengths():
    """An LSTM over sequences of several lengths."""
    tokens, lengths = pg.Input("tokens").node(), pg.Input("lengths").node()
    last = pg.LSTM(4, 8, outputs="h", name="rnn").node(tokens, lengths=lengths)
    return pg.Graph([tokens, lengths], pg.Linear(8, 3, name="out")(last), name="lengths"), [("N", 7, 4), ("N",)]


def eightInputs():
    """Eight inputs, joined."""
    parts = [pg.Linear(5 + i, 4, name=f"in{i}").node() for i in range(8)]
    joined = pg.Concat(1, name="all").node(*parts)
    return pg.Graph(parts, pg.Linear(32, 2, name="out")(joined), name="eight"), [("N", 5 + i) for i in range(8)]


def faulty():
    """A network whose third layer does not take what the second gives."""
    layers = [pg.Linear(784, 100, name="fc1"), pg.Relu(name="relu"), pg.Linear(120, 10, name="fc2"), pg.Relu(name="r2")]
    return pg.Sequential(*layers, name="faulty"), [("N", 784)]


NETS = {
    "lenet": lambda: (models.lenet(), [("N", 1, 28, 28)]),
    "unet": lambda: (models.unet(depth=3), [(1, 1, 64, 64)]),
    "resnet50": lambda: (models.resnet50(), [("N", 3, 224, 224)]),
    "gpt2": lambda: (models.gpt2(), [("N", 64)]),
    "lengths": withLengths,
    "eight": eightInputs,
    "faulty": faulty,
}
