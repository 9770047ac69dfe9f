"""Param and State: a named array, and the declaration it is until its data is first wanted."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np

from puregraph import device
from puregraph.aligned import aligned
from puregraph.changes import Noted
from puregraph.errors import Fault, ShapeError, show
from puregraph.initial import SEED, generator, start


def wholes(shape: Any, kind: str) -> tuple[int, ...]:
    """The sizes of an array that can be made: whole numbers of at least 0."""
    good = isinstance(shape, (tuple, list)) and all(
        isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 0 for n in shape
    )
    if not good:
        raise ShapeError(Fault(f"whole numbers for the shape of a {kind}", repr(shape)))
    return tuple(int(n) for n in shape)


class Stored:
    """Shape, dtype and starting values of an array that is made when `data` is first read.

    A model of any size can so be built and checked without memory. Two modules may hold the same one.
    """

    kind = "array"
    array: Any = Noted()

    def __init__(self, shape: tuple[int, ...], initial: Any = "zeros", dtype: Any = np.float32):
        self.shape = wholes(shape, self.kind)
        self.dtype = np.dtype(dtype)
        self.initial = start(initial)
        self.key = SEED.next()
        self.array = None

    @property
    def data(self) -> Any:
        """The array itself, on the device in use when it was made."""
        if self.array is None:
            values = self.initial(generator(self.key), self.shape)
            self.array = aligned(device.toDevice(np.ascontiguousarray(values, self.dtype).reshape(self.shape)))
        return self.array

    @data.setter
    def data(self, array: Any) -> None:
        if tuple(array.shape) != self.shape:
            raise ShapeError(Fault(f"{self.kind} data of shape {show(self.shape)}", show(tuple(array.shape))))
        self.array = array.astype(self.dtype, copy=False)

    @property
    def made(self) -> bool:
        """Whether the data exists, or is still only declared."""
        return self.array is not None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def calcMode(self, dtype: Any) -> None:
        """Keep the values, in another dtype."""
        self.dtype = np.dtype(dtype)
        if self.array is not None:
            self.array = aligned(self.array.astype(self.dtype, copy=False))

    def __getstate__(self) -> dict:
        return {**vars(self), "initial": None if self.made else self.initial}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({show(self.shape)}, {self.dtype})"


class GradOfPass:
    """The gradient of a parameter; setting it counts up `gradVersion`, by which an optimizer tells it from an old one.

    It is read from where all attributes are, at no further cost, for there is no `__get__`.
    """

    def __set__(self, owner: Any, value: Any) -> None:
        own = vars(owner)
        own["grad"] = value
        own["gradVersion"] = owner.gradVersion + 1


class Param(Stored):
    """A trainable array.

    `grad` holds the gradient of the last backward pass. `trainable`, `rate` (a factor of the learning rate) and
    `decay` (whether weight decay applies) are this parameter's own settings.
    """

    kind = "parameter"
    trainable: Any = Noted()
    rate: Any = Noted()
    decay: Any = Noted()
    grad: Any = GradOfPass()
    gradVersion = 0

    def __init__(self, shape: tuple[int, ...], initial: Any = "zeros", dtype: Any = np.float32):
        super().__init__(shape, initial, dtype)
        self.grad = None
        self.trainable = True
        self.rate = 1.0
        self.decay = True

    def calcMode(self, dtype: Any) -> None:
        super().calcMode(dtype)
        self.grad = None

    def store(self, new: Any, scale: float = 1.0, momentum: float = 0.0, alias: bool = False) -> None:
        """grad = scale * new + momentum * grad, in an array of its own: copied where `new` may be somebody else's.

        Without a `new` one, of a pass that does not reach this parameter, nothing is left but what momentum keeps.
        """
        if new is None:
            if momentum != 1.0 and self.grad is not None:
                self.grad = self.grad * momentum if momentum else None
            return
        if scale != 1.0:
            new = new * scale
        elif alias or new.base is not None:
            new = new.copy()
        self.grad = new if momentum == 0.0 or self.grad is None else new + self.grad * momentum


class State(Stored):
    """A running statistic, a counter or a random key: saved and loaded, never trained.

    Floating states stay in float32 or better, and whole numbers as they are, whatever a graph computes in.
    """

    kind = "state"

    def calcMode(self, dtype: Any) -> None:
        if self.dtype.kind == "f":
            super().calcMode(np.promote_types(dtype, np.float32))
