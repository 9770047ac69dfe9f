"""A small classifier with its samples, and trainers of it without progress."""

import traceback

import numpy as np

from puregraph import SGD, BatchNorm, Dropout, Linear, Relu, Sequential
from puregraph.core import device as devices
from puregraph.core import initial
from puregraph.train import Trainer


def classifier(insize=4, classes=3, dtype=None):
    initial.seed(3)
    net = Sequential(Linear(insize, 8), Relu(), Linear(8, classes))
    return net if dtype is None else net.calcMode(np.dtype(dtype))


def samples(rng, count=30, insize=4, classes=3):
    x = rng.standard_normal((count, insize)).astype(np.float32)
    return x, x[:, :classes].argmax(1)


def quiet(net, cost, optimizer=None, **options):
    return Trainer(net, cost, optimizer or SGD(0.1), progress="none", **options)


def arraysOf(net):
    return {path: devices.toHost(p.data).copy() for path, p in {**net.params, **net.states}.items()}


def told(error):
    """What somebody sees of an error."""
    return "".join(traceback.format_exception(error))


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def noisy():
    initial.seed(11)
    return Sequential(Linear(4, 8), BatchNorm(8), Relu(), Dropout(0.3), Linear(8, 3))
