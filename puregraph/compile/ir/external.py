"""External: arrays outside the arena that a step reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from puregraph.core.device import isDeviceArray

if TYPE_CHECKING:
    from puregraph.core.device import Array
    from puregraph.core.param import Param
    from puregraph.optimizers.slot import Slot

GRADS: WeakKeyDictionary[Param, Array] = WeakKeyDictionary()  # the arrays that compiled steps leave in `Param.grad`


class StoreTarget(Protocol):
    """Where a step stores a value: a Param, a State, or one of the classes below."""

    @property
    def array(self) -> Any:
        """The array."""


class GradientOf:
    """The target that stores a parameter's gradient: one array for all compiled steps."""

    __slots__ = ("dtype", "param")

    def __init__(self, param: Param, dtype: np.dtype):
        self.param, self.dtype = param, dtype

    @property
    def array(self) -> Array:
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

    def __init__(self, slot: Slot, name: str):
        self.slot, self.name = slot, name

    @property
    def array(self) -> Array:
        """The array."""
        return self.slot.arrays[self.name]


class ReshapedTarget:
    """A target in another shape."""

    __slots__ = ("shape", "target")

    def __init__(self, target: StoreTarget, shape: tuple[int, ...]):
        self.target, self.shape = target, shape

    @property
    def array(self) -> Array:
        """The array, whose elements are in row-major order."""
        return self.target.array.reshape(self.shape)
