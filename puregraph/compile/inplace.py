"""In place: which arguments' memory a call may write its result to."""

from __future__ import annotations

import numpy as np

from puregraph.compile.strides import isDense, sameStrides
from puregraph.compile.value import Call, Value, put
from puregraph.evaluator import Evaluator
from puregraph.standin import astype


def overwritable(call: Call, y: Value) -> list[int]:
    """The places of arguments over which a call may write a result: the same elements in the same order."""
    if call.kind == "pointwise":
        if call.function is np.where:
            places = [2]  # the choice is written over what it is made in place of
        elif call.function is astype or not isinstance(call.function, (np.ufunc, Evaluator)):
            return []
        else:
            places = range(len(call.arguments))
    elif getattr(call.function, "pointwise", False):
        places = range(len(call.arguments))
    elif call.function is put:
        places = [0]
    else:
        return []
    return [i for i in places if isSame(call, i, y)]


def isSame(call: Call, place: int, y: Value) -> bool:
    """Whether an argument lies as the result does, has all of its memory, and no other argument a part of it."""
    x = call.arguments[place]
    if type(x) is not Value or x.base is not None or x.dtype != y.dtype or x.shape != y.shape:
        return False
    if not sameStrides(x.shape, x.strides, y.strides) or not isDense(x.shape, x.strides, x.dtype.itemsize):
        return False
    return all(v is x or v.root is not x for v in call.values())
