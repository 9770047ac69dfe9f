"""Lease: an array lent to a user, over memory that the library reads; its holder may write at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from puregraph.core.base.dtype import isBfloat16

if TYPE_CHECKING:
    from puregraph.core.device import Array

PLAIN = "biufc"  # the dtype kinds of numbers


class Inner(np.ndarray):
    """A view of a lent array."""

    __slots__ = ()


class Outer(np.ndarray):
    """A view of an Inner. numpy collapses chains of bases of one type: so the base of a plain array over this one is
    this one, and the base of a view of that plain array is the plain array."""

    __slots__ = ()


class Lease(ref):
    """A weak reference to a lent array over the memory of `of`; call it to get that array, or None.

    An array keeps its base alive, so every view, buffer or tensor of a lent array keeps the lent array alive. Once it
    is gone, nothing can write through it.
    """

    __slots__ = ("of",)
    of: Any


def lend(array: Array, leases: list[Lease]) -> Array:
    """Make a new array over another one's memory; its lease is in `leases` as long as it is alive."""
    lent = array.view(Inner).view(Outer).view(np.ndarray)
    lease = Lease(lent, leases.remove)
    lease.of = array
    leases.append(lease)
    return lent


def isLendable(array: Array) -> bool:
    """True if the end of a handed-out array's life can be detected: numpy arrays of numbers."""
    return type(array) is np.ndarray and (array.dtype.kind in PLAIN or isBfloat16(array.dtype))
