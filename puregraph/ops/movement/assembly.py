"""Arrays put together from elements of several: each function is run once on their positions, which are then read."""

from __future__ import annotations

import numpy as np

from puregraph.core.tracer import Tracer
from puregraph.ops.operation import op
from puregraph.ops.reduction.statistics import valuesOf

op(np.matrix_transpose, np.linalg.matrix_transpose, np.linalg.diagonal, np.unstack).declare(moves=0)
op(np.extract).declare(moves=1)


class NumberedElements:
    """The elements of arrays, one after the other; `numbered` gives an array of the positions of those of one."""

    def __init__(self):
        self.parts, self.count = [], 0

    def numbered(self, x):
        """The positions of the elements of an array, in its shape."""
        x = x if isinstance(x, Tracer) else np.asarray(x)
        first, self.count = self.count, self.count + x.size
        self.parts.append(x.reshape(-1))
        return np.arange(first, self.count).reshape(x.shape)

    def nested(self, xs):
        """The same for lists of arrays."""
        return [self.nested(x) for x in xs] if type(xs) in (list, tuple) else self.numbered(xs)

    def at(self, positions):
        """The elements at positions; for each array of a list of them."""
        if type(positions) in (list, tuple):
            return type(positions)([self.at(p) for p in positions])
        return np.concatenate(self.parts)[positions]


@op(np.append).composed
def appended(arr, values, axis=None):
    """Joined along an axis; flat without one."""
    return np.concatenate([np.ravel(arr), np.ravel(values)] if axis is None else [arr, values], axis=axis or 0)


@op(np.insert).composed
def inserted(arr, obj, values, axis=None):
    """The values before the positions `obj`."""
    of = NumberedElements()
    first = of.numbered(arr)
    return of.at(np.insert(first, obj, of.numbered(values), axis))


@op(np.block).composed
def blocks(arrays):
    """Arrays beside and below each other."""
    of = NumberedElements()
    return of.at(np.block(of.nested(arrays)))


@op(np.select).composed
def selected(condlist, choicelist, default=0):
    """The choice of the first condition that holds."""
    of = NumberedElements()
    return of.at(np.select([valuesOf(c) for c in condlist], of.nested(choicelist), of.numbered(default)))


@op(np.choose).composed
def chosen(a, choices, mode="raise"):
    """The element of the choice that a says."""
    of = NumberedElements()
    return of.at(np.choose(valuesOf(a), of.nested(list(choices)), mode=mode))


@op(np.meshgrid).composed
def grids(*xi, copy=True, sparse=False, indexing="xy"):
    """Each coordinate at all points of a grid."""
    of = NumberedElements()
    return of.at(np.meshgrid(*of.nested(xi), sparse=sparse, indexing=indexing))


@op(np.broadcast_arrays).composed
def alike(*args):
    """Each array in the shape of all."""
    of = NumberedElements()
    return of.at(tuple(np.broadcast_arrays(*of.nested(args))))


@op(np.diagflat).composed
def diagonal(v, k=0):
    """The elements on a diagonal."""
    return np.diag(np.ravel(v), k)


@op(np.partition).composed
def parted(a, kth, axis=-1):
    """The elements as they are put by numpy."""
    a, axis = (np.ravel(a), 0) if axis is None else (a, axis)
    return np.take_along_axis(a, np.argpartition(valuesOf(a), kth, axis), axis)
