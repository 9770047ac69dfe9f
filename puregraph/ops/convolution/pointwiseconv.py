"""Pointwise (1x1) convolutions: matrix products of positions by channels, which cuBLASLt computes without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from puregraph.ops.product.cuda.librarygemm import product

if TYPE_CHECKING:
    from types import NotImplementedType

    from puregraph.core.protocols import Strided
    from puregraph.ops.product.cuda.librarygemm import Product

ACTIVATIONS = {"": None, "relu": "relu", "geluTanh": "gelu"}  # activations that a product may have as its epilogue


class Alias:
    """An array with another shape and other strides."""

    __slots__ = ("array", "dtype", "shape", "size", "strides")

    def __init__(self, array: Strided, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.array, self.dtype, self.size = array, array.dtype, array.size
        self.shape, self.strides = tuple(shape), tuple(strides)


def forward(out: Any, x: Any, W: Any, bias: Any, activation: str, tf32: bool) -> Any:
    """out[n, o, a] = activation(sum over c of W[o, c] x[n, c, a] + bias[o])"""
    if activation not in ACTIVATIONS:
        return NotImplemented
    how = {"bias": bias, "activation": ACTIVATIONS[activation], "tf32": tf32}
    return unwrapped(product(channelsLast(out), channelsLast(x), matrix(W, isTransposed=True), **how))


def data(out: Strided, grad: Strided, W: Strided, tf32: bool) -> Product | NotImplementedType:
    """out[n, c, a] = sum over o of W[o, c] grad[n, o, a]"""
    return unwrapped(product(channelsLast(out), channelsLast(grad), matrix(W), tf32=tf32))


def weight(out: Strided, grad: Strided, x: Strided, tf32: bool) -> Product | NotImplementedType:
    """out[o, c] = sum over n, a of grad[n, o, a] x[n, c, a]; NotImplemented where positions are not evenly strided."""
    left, right = positionRows(grad), positionRows(x)
    if left is None or right is None:
        return NotImplemented
    transposed = Alias(left.array, left.shape[::-1], left.strides[::-1])
    return unwrapped(product(matrix(out), transposed, right, tf32=tf32))


def channelsLast(x: Strided) -> Alias:
    """An array (n, c, *spatial) as (n, *spatial, c)."""
    n, c, *spatial = range(len(x.shape))
    order = (n, *spatial, c)
    return Alias(x, [x.shape[i] for i in order], [x.strides[i] for i in order])


def positionRows(x: Strided) -> Alias | None:
    """An array (n, c, *spatial) as (positions, c); None if positions are not evenly strided."""
    last = channelsLast(x)
    count, step = 1, 0
    for length, stride in zip(last.shape[-2::-1], last.strides[-2::-1]):
        if length > 1 and count > 1 and stride != count * step:
            return None
        step = stride if count == 1 else step
        count *= length
    return Alias(x, (count, last.shape[-1]), (step, last.strides[-1]))


def matrix(W: Strided, isTransposed: bool = False) -> Alias:
    """A weight (o, c, 1, ...) as (o, c), or as (c, o)."""
    turn = -1 if isTransposed else 1
    return Alias(W, W.shape[:2][::turn], W.strides[:2][::turn])


def unwrapped(call: Any) -> Any:
    """A product with the arrays themselves in its slots."""
    if call is not NotImplemented:
        call.slots = tuple([(kind, what.array if isinstance(what, Alias) else what) for kind, what in call.slots])
    return call
