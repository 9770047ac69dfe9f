"""External: arrays outside the arena that a step reads and writes."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from puregraph.core.device import isDeviceArray

GRADS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # the arrays that compiled steps leave in `Param.grad`


class GradientOf:
    """The target that stores a parameter's gradient: one array for all compiled steps."""

    __slots__ = ("dtype", "param")

    def __init__(self, param: Any, dtype: Any):
        self.param, self.dtype = param, dtype

    @property
    def array(self) -> Any:
        """The array."""
        array, data = GRADS.get(self.param), self.param.materialize()
        if (
            array is None
            or isDeviceArray(array) != isDeviceArray(data)
            or array.shape != data.shape
            or array.dtype != self.dtype
        ):
            array = GRADS[self.param] = np.zeros_like(data, self.dtype, order="C")
        return array


class StateOf:
    """An array that an optimizer keeps for a parameter."""

    __slots__ = ("name", "slot")

    def __init__(self, slot: Any, name: str):
        self.slot, self.name = slot, name

    @property
    def array(self) -> Any:
        """The array."""
        return self.slot.arrays[self.name]


class ReshapedTarget:
    """A target in another shape."""

    __slots__ = ("shape", "target")

    def __init__(self, target: Any, shape: tuple[int, ...]):
        self.target, self.shape = target, shape

    @property
    def array(self) -> Any:
        """The array, whose elements are in row-major order."""
        return self.target.array.reshape(self.shape)
