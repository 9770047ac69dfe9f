"""Einsum: sums of products along named axes."""

from __future__ import annotations

import numpy as np

from puregraph.kernel import kernel
from puregraph.kernels.widen import widened


@widened
def contract(equation, *xs):
    """The sum that an equation such as `ij,jk->ik` says, through matrix products where there are some.

    Shapes    as the equation names them
    """
    return np.einsum(equation, *xs, optimize=len(xs) > 1)


def spread(values, letters, shape):
    """dx with dx[i, i] = values[i] for letters `ii`, zero elsewhere; repeated along axes of length one.

    Shapes    values: a size, or 1, for each distinct letter -> dx (shape)
    """
    if len(set(letters)) < len(letters):
        return ontoDiagonal(values, letters, shape)
    return values if values.shape == tuple(shape) else np.broadcast_to(values, shape).copy()


@kernel
def ontoDiagonal(values, letters, shape):
    """`spread` where letters repeat."""
    dx = np.zeros(shape, dtype=values.dtype)
    np.einsum(f"{letters}->{''.join(dict.fromkeys(letters))}", dx)[...] = values
    return dx


@ontoDiagonal.shape
def ontoDiagonal(values, letters, shape):
    """dx of the shape that is given."""
    return tuple(shape), values.dtype
