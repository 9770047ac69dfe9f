"""Accumulate: add two gradients of one value. Arrays are added; text and your own types register a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import DataError

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


@singledispatch
def accumulate(total: Any, new: Any) -> Any:
    """Combine two contributions to one gradient, in the order in which their readers ran: `total + new` for arrays.

    Register a function for a type of your own; values of that type may then flow through graphs:

        @accumulate.register
        def _(total: Counter, new: Counter): return total + new
    """
    return total + new


@accumulate.register
def accumulateText(total: str, new: Any) -> Any:
    """Join two texts as lines; empty ones are dropped. The second may be a Variable or a list of texts."""
    text = getattr(new, "data", new)
    if isinstance(text, list):
        return [accumulate(total, line) for line in text]
    return "\n".join(filter(None, (total, text)))


@accumulate.register
def accumulateList(total: list, new: Any) -> list:
    """Add lists element by element; a text as gradient applies to every element.

    Raises    ValueError if the lengths differ
    """
    return [accumulate(a, b) for a, b in zip(total, [new] * len(total) if isinstance(new, str) else new, strict=True)]


@singledispatch
def zeroLike(value: object) -> Any:
    """Return the zero gradient of a value: zeros, or an empty text."""
    return np.zeros_like(value)


@zeroLike.register
def zeroList(value: list) -> list:
    """A zero gradient for each element."""
    return [zeroLike(v) for v in value]


@zeroLike.register(str)
@zeroLike.register(dict)
def zeroOfType(value: object) -> Any:
    """The empty text, or an empty collection."""
    return type(value)()


@singledispatch
def seedLike(value: object) -> Any:
    """The gradient of a value with respect to itself: one; for text, which has none, the empty text."""
    return np.ones_like(value)


@seedLike.register
def seedList(value: list) -> list:
    """A seed gradient for each element."""
    return [seedLike(v) for v in value]


@seedLike.register(str)
@seedLike.register(dict)
def seedOfType(value: object) -> Any:
    """The empty text, or an empty collection."""
    return type(value)()


PLAIN = accumulate.dispatch(object)


def combine(grads: Sequence[Any], add: Callable[[Any, Any], Any] | None = None) -> Any:
    """Combine all contributions to one gradient, in order. None of them is modified; a single one is returned."""
    total = grads[0]
    if len(grads) > 1:
        plus = add or accumulate.dispatch(type(total))
        total = plus(total, grads[1])
        for g in grads[2:]:
            if plus is PLAIN:
                total += g
            else:
                total = plus(total, g)
    return total


def isArray(value: Any) -> bool:
    """True if a value has a shape and a dtype."""
    return hasattr(value, "dtype")


def isValue(value: object) -> bool:
    """True if a value may flow through a graph: an array with a numpy dtype, a type with a registered `accumulate`, or
    an object with `flows`. A list may not, because a graph reads a list as several values; nor may a numpy subclass
    with its own operators."""
    if type(value) is np.ndarray:
        return True
    isOwn = accumulate.dispatch(type(value)) not in (PLAIN, accumulateList)
    isFlowing = isinstance(getattr(value, "dtype", None), np.dtype) or isOwn or getattr(value, "flows", False)
    return isFlowing and not operatorsHint(value)


OPERATORS = ("__array_ufunc__", "__array_function__", "__add__", "__mul__")


def operatorsHint(value: object) -> str:
    """Describe a masked or sparse array, a matrix or another array with its own operators; "" for anything else."""
    kind = type(value)
    if kind is np.ndarray:
        return ""
    if kind.__module__.startswith("scipy.sparse"):
        return f"a sparse {kind.__name__}; array.toarray() makes a plain one"
    if not isinstance(value, np.ndarray):
        return ""
    if isinstance(value, np.ma.MaskedArray):
        return "a masked array; fill it, as in array.filled(0)"
    isPlain = all(getattr(kind, name) is getattr(np.ndarray, name) for name in OPERATORS)
    return "" if isPlain else f"a {kind.__name__}, whose operators are its own; np.asarray makes a plain array"


def needPlain(value: object, where: str) -> None:
    """Refuse an array with its own operators, such as a masked array or a matrix, which rules cannot use.

    Raises    DataError
    """
    hint = operatorsHint(value)
    if hint:
        raise DataError(f"{where}: wanted a plain array, got {hint}")


def differentiable(value: object) -> bool:
    """True if a value can have a gradient: floating point, or anything that is not a number."""
    kind = getattr(value, "dtype", None)
    return isFloating(kind) if kind is not None else not isinstance(value, (bool, int, complex, type(None)))


def shapeOf(value: Any) -> tuple[int, ...]:
    """Return the shape of an array; () for any other value."""
    return tuple(value.shape) if hasattr(value, "dtype") else ()


def inShape(tangent: AnyArray, value: AnyArray) -> AnyArray:
    """Return a tangent in the shape and dtype of its value."""
    if tangent.shape != value.shape:
        tangent = np.broadcast_to(tangent, value.shape)
    return tangent.astype(value.dtype, copy=False)
