"""Optimizers with those of PyTorch, and a module that has parameters of several shapes and nothing else."""

import numpy as np

from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.optimizers import (
    SGD,
    Adam,
    AdamW,
    MomentumSGD,
    NesterovSGD,
    RMSProp,
)

SHAPES = {"W": (3, 5), "b": (5,), "gain": (), "none": (0, 2)}
OPTIMIZERS = {  # ours, and PyTorch's with its arguments
    "sgd": (lambda **o: SGD(0.1, **o), "SGD", {"lr": 0.1}),
    "momentum": (lambda **o: MomentumSGD(0.1, 0.8, **o), "SGD", {"lr": 0.1, "momentum": 0.8}),
    "nesterov": (
        lambda **o: NesterovSGD(0.1, 0.8, **o),
        "SGD",
        {"lr": 0.1, "momentum": 0.8, "nesterov": True},
    ),
    "rmsprop": (
        lambda **o: RMSProp(0.05, factor=0.7, epsilon=1e-4, **o),
        "RMSprop",
        {"lr": 0.05, "alpha": 0.7, "eps": 1e-4},
    ),
    "adam": (
        lambda **o: Adam(0.05, 0.8, 0.95, 1e-6, **o),
        "Adam",
        {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6},
    ),
    "adamw": (
        lambda **o: AdamW(0.05, **{"decay": 0.0, **o}),
        "AdamW",
        {"lr": 0.05, "weight_decay": 0.0},
    ),
}
CLASSES = [SGD, MomentumSGD, NesterovSGD, RMSProp, Adam, AdamW]


class Bag(Module):
    """Parameters of several shapes, and nothing else."""

    def __init__(self, dtype="float64", shapes=SHAPES):
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, Param(shape, lambda rng, shape: rng.standard_normal(shape), dtype))

    def draw(self, rng, size=1.0):
        """New gradients."""
        for p in self.params.values():
            p.grad = np.asarray(size * rng.standard_normal(p.shape)).astype(p.dtype)


def values(net):
    return {name: p.data.copy() for name, p in net.params.items()}


def assertSame(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
