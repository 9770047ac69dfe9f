"""A stand-in for CuPy that computes with numpy and can be broken in each way that real installations are."""

from types import ModuleType, SimpleNamespace

import numpy as np


class FakeArray:
    """An array that numpy cannot read, as CuPy's cannot."""

    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        return FakeArray(self.values + other)

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to numpy is not allowed")


def makeCupy(available=True, fault=None, wrong=0.0):
    """A module like cupy: with a driver or not, raising `fault` from its kernels, or off by `wrong`."""
    cupy = ModuleType("cupy")
    cupy.__version__ = "14.2.0"
    cupy.waits = 0

    def asarray(values):
        if fault:
            raise fault
        return values if isinstance(values, FakeArray) else FakeArray(np.array(values))

    def synchronize():
        cupy.waits += 1

    cupy.ndarray = FakeArray
    cupy.asarray = asarray
    cupy.asnumpy = lambda array: array.values + wrong if wrong else array.values
    cupy.cuda = SimpleNamespace(
        is_available=lambda: available,
        Device=lambda: SimpleNamespace(id=0, synchronize=synchronize),
        runtime=SimpleNamespace(getDeviceProperties=lambda index: {"name": b"Toy GPU"}),
    )
    return cupy
