"""Window sum: sums of neighbours along one axis.

    y[i] = x[i] + ... + x[i + size - 1]

It is linear. Its adjoint is a window sum of the gradient with zeros on both sides.
"""

from __future__ import annotations

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.core.errors import Fault, ShapeError
from puregraph.ops.cuda.nests import launches
from puregraph.ops.cuda.nests.contiguous import KINDS
from puregraph.ops.cuda.runtime.launch import stridesOf
from puregraph.ops.formula.loopnest import LoopNest, Operand, Reduce
from puregraph.ops.kernel import kernel


@kernel
@widened
def windowSum(x, axis, size):
    """y[i] = sum of x[i + k] for k below `size`, along an axis.

    Shapes    x (..., n, ...) -> y (..., n - size + 1, ...)
    Raises    ShapeError if the window is not from 1 to n long
    """
    check(x, axis, size)
    return np.lib.stride_tricks.sliding_window_view(x, size, axis).sum(axis=-1)


@windowSum.shape
def windowSum(x, axis, size):
    """y (..., n - size + 1, ...)."""
    check(x, axis, size)
    axis %= x.ndim
    return (*x.shape[:axis], x.shape[axis] - size + 1, *x.shape[axis + 1 :]), x.dtype


@windowSum.cuda
def windowSum(y, x, axis, size):
    """A loop nest over y, reduced over the elements of the window."""
    kinds = [KINDS.get(array.dtype.name) for array in (x, y)]
    if None in kinds:
        return NotImplemented
    loads = {"x": Operand(kinds[0], x, (*stridesOf(x), stridesOf(x)[axis]))}
    stores = {"y": Operand(kinds[1], y, (*stridesOf(y), 0))}
    lines = (("y", Reduce("sum", "x", frozenset({x.ndim}))),)
    return launches.launches(LoopNest((*y.shape, size), loads, lines, stores, "f64" if "f64" in kinds else "f32"))


@windowSum.decompose
def windowSum(x, axis, size):
    """A view of all windows and its sum, which every backend supports."""
    return windowSum.reference(x, axis, size)


@windowSum.adjoint
def windowSum(g, y, x, axis, size):
    """Each element gets the sum of the gradients of the windows that it is in."""
    around = [(size - 1, size - 1) if a == axis % x.ndim else (0, 0) for a in range(x.ndim)]
    return windowSum(np.pad(g, around), axis, size)


@windowSum.samples
def windowSum(x, axis, size):
    """The sums of each sample, along the same axis within it."""
    return windowSum(x, axis % (x.ndim - 1) + 1, size)


@windowSum.flops
def windowSum(y, x, axis, size):
    """An addition for each element of each window."""
    return y.size * size


def check(x, axis, size):
    """Raise ShapeError for a window that does not fit."""
    if not (-x.ndim <= axis < x.ndim and 1 <= size <= x.shape[axis]):
        wanted = f"an axis of {x.shape} with at least {size} elements"
        raise ShapeError(Fault(wanted, f"axis {axis}", module="windowSum"))
