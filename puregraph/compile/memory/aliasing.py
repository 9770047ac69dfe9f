"""Aliasing: the arguments whose memory a call may write its result to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from puregraph.core.opensize import isSameShape
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.ir.strides import isDense, sameStrides
from puregraph.ops.ir.value import Call, Value, put


def overwritable(call: Call, y: Value) -> Sequence[int]:
    """The indices of arguments that a call may overwrite with a result of equal layout."""
    if call.kind.isElementwise:
        if isinstance(call.function, (np.ufunc, Interpreter)):
            return range(len(call.arguments))
        return (2,) if call.function is np.where else ()  # elements that are not chosen keep their value
    if call.kind.isNative:
        native = call.function  # its scratch memory may be written before all arguments are read
        return native.over if any(y is result for result in call.outs[: native.results]) else ()
    return (0,) if call.function is put and type(call.arguments[0]) is Value else ()


def isSame(call: Call, index: int, y: Value) -> bool:
    """True if an argument has the layout of the result, fills its memory, and shares it with no other argument."""
    x = call.arguments[index]
    if x.root.nbytes != x.nbytes or x.dtype != y.dtype or not isSameShape(x.shape, y.shape):
        return False
    if x.strides != y.strides and not sameStrides(x.shape, x.strides, y.strides):
        return False
    return isDense(x.shape, x.strides, x.dtype.itemsize) and all(v is x or v.root is not x.root for v in call.values())
