"""Functional writes by index, which return a new array; rules and Variables use them instead of x[key] = new."""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import combine, isArray
from puregraph.core.device import isDeviceArray
from puregraph.core.tracer import HANDED, dataOf, tracerOf
from puregraph.ops.gather.reference import scatterAdd

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


def putAt(g: Any, key: Any, shape: Any) -> AnyArray:
    """dx[key] += g, zero elsewhere: the adjoint of x[key].

    Shapes    g as x[key] -> dx (shape)
    """
    if tracerOf((g,)) is not None:
        return g.handle(putAt, (g, key, shape), {})
    dx = np.zeros_like(g, shape=shape)
    if isBasic(key):
        dx[key] = g
    elif isDeviceArray(dx):
        to = sys.modules["cupy"].asarray
        keys = tuple([to(k) if isinstance(k, np.ndarray) else k for k in (key if isinstance(key, tuple) else (key,))])
        positions = to(np.arange(prod(shape)).reshape(shape))[keys]
        return scatterAdd(g.reshape(-1, 1), positions.reshape(-1), prod(shape)).reshape(shape)
    else:
        np.add.at(dx, key, g)
    return dx


def isBasic(key: object) -> bool:
    """True if an index cannot select a position twice: it has only slices, integers and masks."""
    parts = key if type(key) is tuple else (key,)
    return all(isinstance(part, (int, slice, type(None), type(Ellipsis))) or isMask(part) for part in parts)


def isMask(part: Any) -> bool:
    """True if an index is an array of bools."""
    return isArray(part) and part.dtype == bool


def setAt(x: Any, key: Any, new: Any) -> Any:
    """A copy y of x with y[key] = new.

    Shapes    x (any), new as x[key], or broadcast to it -> y as x
    """
    tracer = tracerOf((x, new))
    if tracer is not None:
        return tracer.handle(setAt, (x, key, new), {})
    y = x.copy()
    y[key] = new
    return y


def movedBack(
    function: Any, g: Any, y: Any, arguments: tuple, options: dict[str, Any] | None = None, at: int = 0
) -> Any:
    """The gradients of a function that only moves elements of argument `at`: each is added at its source."""
    x = dataOf(arguments[at])
    positions = np.cumsum(np.ones_like(x, dtype=np.intp)).reshape(x.shape) - 1  # on the device of x
    read = function(*arguments[:at], positions, *arguments[at + 1 :], **(options or {}))
    pairs = zip(g, read) if type(y) is tuple else [(g, read)]
    placed = [putAt(part, (dataOf(p),), (x.size,)) for part, p in pairs if part is not None]
    return (*[None] * at, combine(placed).reshape(x.shape), *[None] * (len(arguments) - at - 1))


HANDED.update((putAt, setAt))
