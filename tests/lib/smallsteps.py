"""A small classifier with its batches, whose compiled steps tests compare with the graph."""

import numpy as np
import pytest

from puregraph import (
    Linear,
    Relu,
    Sequential,
)
from puregraph.core import initial
from puregraph.ops.kernel import useFast


@pytest.fixture
def plain():
    """Nothing becomes native code, which may sum in another order."""
    with useFast(False):
        yield


def classifier(*more, dtype="float64"):
    initial.seed(5)
    return Sequential(Linear(4, 6), Relu(), *more, Linear(6, 3)).calcMode(np.dtype(dtype))


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def batch(rng, count=8, dtype="float64"):
    return rng.standard_normal((count, 4)).astype(dtype), rng.integers(0, 3, count)


def kinds(program):
    return [call.kind.name for call in program.executable.schedule.calls]
