"""The wrapper of a special function: written for flat float64 arrays, it takes any shape, float type and device."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.device import isDeviceArray, toHost

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

L2_BLOCK_ELEMENTS = 8192  # elements of a block, which stays in the L2 cache
MAX_ORDERS = 150  # orders of a family are below this; n! exceeds float64 soon after

Rule = Callable[[np.ndarray], np.ndarray]


def special(rule: Rule, single: Rule | None = None) -> Callable[[Any], Any]:
    """A function of flat float64 arrays (and its `single` precision version), for any shape and float type."""

    @functools.wraps(rule)
    def function(x: AnyArray) -> AnyArray:
        if isDeviceArray(x):
            return onDevice(function, x)
        x = np.asarray(x)
        y = np.empty(x.shape, x.dtype if x.dtype.kind == "f" else np.float64)
        work, compute = (np.float32, single) if single and y.itemsize <= 4 else (np.float64, rule)
        source, target = x.reshape(-1), y.reshape(-1)
        with np.errstate(all="ignore"):
            for start in range(0, x.size, L2_BLOCK_ELEMENTS):
                target[start : start + L2_BLOCK_ELEMENTS] = compute(
                    source[start : start + L2_BLOCK_ELEMENTS].astype(work)
                )
        return y[()]

    return function


def family(rule: Callable[[int, np.ndarray], np.ndarray]) -> Callable[[Any, Any], Any]:
    """A function of an integer n and of flat float64 arrays, for any shapes; nan for another n."""

    def one(n: float, x: AnyArray) -> AnyArray:
        return special(functools.partial(rule, int(n)))(x) if abs(n) < MAX_ORDERS and n == int(n) else x * np.nan

    @functools.wraps(rule)
    def function(n: Any, x: AnyArray) -> Any:
        if isDeviceArray(x) or isDeviceArray(n):
            return sys.modules["cupy"].asarray(function(toHost(n), toHost(x)))
        if np.ndim(n) == 0:
            return one(float(n), x)
        y = np.full(np.broadcast_shapes(np.shape(n), np.shape(x)), np.nan, np.result_type(x, np.float16))
        for order in np.unique(n):
            np.copyto(y, one(float(order), x), where=n == order)
        return y

    return function


def onDevice(function: Callable[[Any], Any], x: AnyArray) -> AnyArray:
    """Apply CuPy's function of that name to a CuPy array; if there is none, apply ours to a copy on the host."""
    try:
        library = importlib.import_module("cupyx.scipy.special")  # comes with CuPy, and takes a while to load
    except ImportError:
        library = None
    name = function.__name__
    cupyFunction = getattr(library, "gammaln" if name == "lgamma" else name, None)
    return cupyFunction(x) if cupyFunction else sys.modules["cupy"].asarray(function(toHost(x)))


def horner(x: AnyArray, *coefficients: float) -> AnyArray:
    """A polynomial, its highest coefficient first."""
    y = x * coefficients[0]
    for c in coefficients[1:-1]:
        y += c
        y *= x
    y += coefficients[-1]
    return y
