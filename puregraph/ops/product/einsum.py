"""Einsum: sums of products along named axes."""

from __future__ import annotations

import numpy as np

from puregraph.core.base.widen import asResultType, widened
from puregraph.ops.cuda.nests.axes import Axes
from puregraph.ops.cuda.runtime.launch import THREADS, Launch, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats, defined, stored
from puregraph.ops.kernel import ANYFLOATS, kernel
from puregraph.ops.reduction.reference import unbroadcast


@widened
def contract(equation, *xs):
    """The sum of products of an equation such as `ij,jk->ik`, through matrix products where possible.

    Shapes    as the equation names them
    """
    return np.einsum(equation, *asResultType(*xs), optimize=len(xs) > 1)


def spread(values, letters, shape):
    """dx with dx[i, i] = values[i] for letters `ii`, zero elsewhere; repeated along axes of length one.

    Shapes    values: a size, or 1, for each distinct letter -> dx (shape)
    """
    if len(set(letters)) < len(letters):
        return ontoDiagonal(values, letters, shape)
    return values if values.shape == tuple(shape) else np.broadcast_to(values, shape).copy()


@kernel
def ontoDiagonal(values, letters, shape):
    """dx with the values on the diagonal of equal letters, zero elsewhere."""
    dx = np.zeros(shape, dtype=values.dtype)
    np.einsum(f"{letters}->{''.join(dict.fromkeys(letters))}", dx)[...] = values
    return dx


@ontoDiagonal.shape
def ontoDiagonal(values, letters, shape):
    """dx of the shape that is given."""
    return tuple(shape), values.dtype


@ontoDiagonal.cuda
def ontoDiagonal(dx, values, letters, shape):
    """A thread an element: a value where the indices along axes of one letter are equal, else zero."""
    if dx.dtype != values.dtype and not areFloats(dx, values):
        return NotImplemented
    if not dx.size:
        return []
    distinct = list(dict.fromkeys(letters))
    strideOf = dict(zip(distinct, [0 if n == 1 else s for n, s in zip(values.shape, stridesOf(values))]))
    first = {letter: letters.index(letter) for letter in distinct}
    strides = [strideOf[letter] if first[letter] == a else 0 for a, letter in enumerate(letters)]
    axes = Axes(tuple(shape), {"to": stridesOf(dx), "fromValues": tuple(strides)})
    same = " && ".join(f"c{a} == c{first[x]}" for a, x in enumerate(letters) if first[x] != a)
    text = defined({"T": stored(dx.dtype), "S": stored(values.dtype), "SAME": same}) + axes.defined("AXES") + DIAGONAL
    slots = (("pointer", dx), ("pointer", values), ("long", dx.size), *axes.slots)
    return [Launch("ontoDiagonal", text, "ontoDiagonal", slots, gridFor(dx.size), (THREADS, 1, 1))]


@ontoDiagonal.adjoint
def ontoDiagonal(g, dx, values, letters):
    """The gradient on the diagonal."""
    distinct = "".join(dict.fromkeys(letters))
    return unbroadcast(np.einsum(f"{letters}->{distinct}", g), values.shape)


ontoDiagonal.declare(halves=ANYFLOATS)


DIAGONAL = """
extern "C" __global__ void ontoDiagonal(T* __restrict__ dx, const S* __restrict__ values, int64 count,
                                        AXES_PARAMETERS) {
  for (AXES_COUNTER i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    AXES_OFFSETS
    dx[to] = SAME ? kept<T>(values[fromValues]) : T();
  }
}
"""
