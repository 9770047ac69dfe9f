"""The derivatives of what changes shapes and moves elements: views, copies, joined and split arrays, padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import isArray
from puregraph.core.errors import AutoDiffException
from puregraph.ops.operation import op
from puregraph.ops.reduction.derivatives import listOf
from puregraph.ops.reduction.reference import fit

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction

op(np.rollaxis, np.fliplr, np.flipud, np.rot90, np.fft.fftshift, np.fft.ifftshift).declare(moves=0)
op(np.delete, np.resize, np.hsplit, np.vsplit, np.dsplit).declare(moves=0)
op(np.compress).declare(moves=1)


@op(np.reshape, np.ravel, np.squeeze, np.expand_dims).adjoint
def reshapeRule(g, y, a, shape=None, axis=None):
    """The gradient in the argument's shape."""
    return g.reshape(a.shape)


@op(np.atleast_1d, np.atleast_2d, np.atleast_3d).adjoint
def atleastRule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
    """The gradient in the argument's shape."""
    grads = g if type(y) is tuple else (g,)
    return tuple([grad if grad is None else grad.reshape(np.shape(a)) for grad, a in zip(grads, arguments)])


@op(np.copy).adjoint
def copyRule(g, y, a, order="K"):
    """dx = g."""
    return g


@op(np.transpose).adjoint
def transposeRule(g, y, a, axes=None):
    """The gradient, with the axes permuted back."""
    order = range(a.ndim)[::-1] if axes is None else [axis % a.ndim for axis in axes]
    return g.transpose(tuple(int(i) for i in np.argsort(list(order))))


@op(np.swapaxes).adjoint
def swapaxesRule(g, y, a, axis1, axis2):
    """The gradient, with the same axes swapped."""
    return g.swapaxes(axis1, axis2)


@op(np.moveaxis).adjoint
def moveaxisRule(g, y, a, source, destination):
    """The gradient, with the axes moved back."""
    return np.moveaxis(g, destination, source)


@op(np.flip).adjoint
def flipRule(g, y, m, axis=None):
    """The gradient, flipped along the same axes."""
    return np.flip(g, axis)


@op(np.roll).adjoint
def rollRule(g, y, a, shift, axis=None):
    """The gradient, rolled in the other direction."""
    return np.roll(g, [-s for s in listOf(shift)] if np.ndim(shift) else -shift, axis)


@op(np.broadcast_to).adjoint
def broadcastRule(g, y, array, shape=None):
    """The sum of the gradient over the repeated axes."""
    return fit(g, array)


@op(np.broadcast_arrays).jvp
def broadcasted(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangents, broadcast like the arrays; zeros for an array without a tangent."""
    parts = [np.zeros_like(x) if t is None else t for x, t in zip(values, tangents)]
    return function(*values, **options), function(*parts, **options)


@op(np.tril).adjoint
def trilRule(g, y, m, k=0):
    """The lower triangle of the gradient."""
    return np.tril(g, k)


@op(np.triu).adjoint
def triuRule(g, y, m, k=0):
    """The upper triangle of the gradient."""
    return np.triu(g, k)


@op(np.pad).vjp
def padRule(g, y, array, pad_width, constant_values=0):
    """The gradient without the padding."""
    before = np.broadcast_to(pad_width, (array.ndim, 2))[:, 0]
    return g[tuple([slice(int(b), int(b) + n) for b, n in zip(before, array.shape)])]


@op(np.pad).jvp
def padded(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent, padded like the array but with zeros in place of constants."""
    mode = values[2] if len(values) > 2 else options.get("mode", "constant")
    if mode in ("maximum", "minimum", "median", "empty") or not isinstance(mode, str):
        raise AutoDiffException(f"forward mode knows no tangent of numpy.pad with mode {mode!r}")
    rest = {name: option for name, option in options.items() if name not in ("constant_values", "end_values")}
    return function(*values, **options), function(tangents[0], *values[1:], **rest)


JOINS: dict[Any, Callable[[Any, int], int | None]] = {  # the axis of the result along which arrays are joined
    np.concatenate: lambda axis, rank: axis,
    np.stack: lambda axis, rank: axis,
    np.vstack: lambda axis, rank: 0,
    np.hstack: lambda axis, rank: min(1, rank - 1),
    np.dstack: lambda axis, rank: 2,
    np.column_stack: lambda axis, rank: 1,
}


def joinRule(function: ArrayFunction) -> Callable[..., Any]:
    """The gradient of joining a list of arrays: each gets its slice. A single array counts as the list of its rows."""

    def rule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        joined = arguments[0]
        arrays = [a if isArray(a) else np.asarray(a) for a in joined]
        axis = JOINS[function](arguments[1] if len(arguments) > 1 else options.get("axis", 0), y.ndim)
        flat = g.reshape(-1) if axis is None else g
        axis = (axis or 0) % flat.ndim
        across = max(1, flat.size // max(1, flat.shape[axis]))
        ends = np.cumsum([0, *[a.size // across for a in arrays]]).tolist()
        slices = [flat[(slice(None),) * axis + (slice(i, j),)] for i, j in zip(ends, ends[1:])]
        slices = [part.reshape(a.shape) for part, a in zip(slices, arrays)]
        return (np.stack(slices) if isArray(joined) else slices, *[None] * (len(arguments) - 1))

    return rule


for join in JOINS:
    op(join).vjp(joinRule(join))


@op(*JOINS).jvp
def joined(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangents, joined like the arrays; zeros for an array without a tangent."""
    parts = [np.zeros_like(x) if t is None else t for x, t in zip(values[0], tangents[0])]
    return function(*values, **options), function(parts, *values[1:], **options)


@op(np.split, np.array_split).adjoint
def splitRule(g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple) -> Any:
    """Join the gradients of the slices; zeros for a slice without a gradient."""
    axis = arguments[2] if len(arguments) > 2 else options.get("axis", 0)
    slices = [np.zeros_like(part) if grad is None else grad for grad, part in zip(g, y)]
    return (np.concatenate(slices, axis), *[None] * (len(arguments) - 1))


@op(np.tile).adjoint
def tileRule(g, y, A, reps):
    """The sum of the gradient over the copies."""
    times = listOf(reps)
    shape = (1,) * (len(times) - A.ndim) + tuple(A.shape)
    times = [1] * (len(shape) - len(times)) + times
    pairs = [int(n) for pair in zip(times, shape) for n in pair]
    return g.reshape(pairs).sum(axis=tuple(range(0, len(pairs), 2))).reshape(A.shape)
