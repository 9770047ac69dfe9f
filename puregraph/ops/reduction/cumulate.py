"""Cumulate: the cumulative sum, product, maximum or log-sum-exp of elements along an axis."""

from __future__ import annotations

import numpy as np

from puregraph.core.base.widen import widened
from puregraph.core.errors import Fault, ShapeError
from puregraph.core.shape import normalAxis
from puregraph.ops.cuda.nests.axes import axesOf
from puregraph.ops.cuda.runtime.launch import THREADS, WARP, WAVE, Launch, gridFor, stridesOf
from puregraph.ops.cuda.runtime.preprocess import areFloats, computed, defined, read, stored
from puregraph.ops.kernel import kernel

UFUNCS = {"sum": np.add, "product": np.multiply, "maximum": np.maximum, "logSumExp": np.logaddexp}
COALESCED = 4  # lines, at least, beside each other in memory for each thread of a block that would share one line


@kernel
@widened
def cumulate(x, axis, kind="sum", exclusive=False, reverse=False):
    """y[i] = sum of x[j] for j <= i along an axis; of j < i if `exclusive`, of j >= i or j > i if `reverse`.

    `kind` "product" multiplies; "maximum" takes the largest, nan if there is one; "logSumExp" is ln sum exp x[j].
    Elements are combined one after the other. Of no elements, y is 0, 1, the least number of its dtype, or -inf.

    Shapes    x (any with that axis) -> y the same
    Raises    ShapeError if x has no such axis, or for a kind that is none of these
    Source    https://en.wikipedia.org/wiki/Prefix_sum
    """
    check(kind)
    axis = normalAxis(axis, x.ndim)
    x = np.flip(x, axis) if reverse else x
    y = UFUNCS[kind].accumulate(shifted(x, axis, neutral(kind, x.dtype)) if exclusive else x, axis, x.dtype)
    return np.flip(y, axis) if reverse else y


@cumulate.shape
def cumulate(x, axis, kind="sum", exclusive=False, reverse=False):
    """y has the shape and dtype of x."""
    check(kind)
    normalAxis(axis, len(x.shape))
    return x.shape, x.dtype


@cumulate.flops
def cumulate(y, x, axis, kind="sum", exclusive=False, reverse=False):
    """An operation for each element; an exponential, a logarithm and two sums of a log-sum-exp."""
    return x.size * (4 if kind == "logSumExp" else 1)


@cumulate.samples
def cumulate(x, axis, kind="sum", exclusive=False, reverse=False):
    """Along the axis that this is within a sample."""
    return cumulate(x, normalAxis(axis, x.ndim - 1) + 1, kind, exclusive, reverse)


@cumulate.cuda
def cumulate(y, x, axis, kind="sum", exclusive=False, reverse=False):
    """A thread takes a line where neighbouring lines are neighbours in memory, else a block does, in a fixed tree."""
    if None in (stored(x.dtype), stored(y.dtype)) or not (x.dtype == y.dtype or areFloats(x, y)):
        return NotImplemented
    axis, wide = normalAxis(axis, len(x.shape)), computed(y.dtype)
    if wide == "bool" or kind == "logSumExp" and wide not in ("float", "double"):
        return NotImplemented
    if not y.size:
        return []
    n, sign = x.shape[axis], -1 if reverse else 1
    steps = [array[axis] for array in (stridesOf(y), stridesOf(x))]
    others = [without(values, axis) for values in (y.shape, stridesOf(y), stridesOf(x))]
    lines, axes = y.size // n, axesOf(others[0], {"to": others[1], "fromX": others[2]})
    isBlock = n > WARP and (lines < COALESCED * THREADS or abs(steps[1]) == 1)
    names = {"T": stored(y.dtype), "S": stored(x.dtype), "W": wide, "How": HOWS[kind], "START": start(kind, y.dtype)}
    names |= {"EXCLUSIVE": int(exclusive)}
    text = defined(names) + axes.defined("LINES") + read("cumulate.h")
    ends = [("long", (n - 1) * step if reverse else 0) for step in steps]
    slots = (("pointer", y), ("pointer", x), ("long", lines), ("long", n), *ends, *(("long", sign * s) for s in steps))
    grid = (min(lines, 2 * WAVE), 1, 1) if isBlock else gridFor(lines)
    entry = "cumulateBlocks" if isBlock else "cumulateLines"
    return [Launch("cumulate", text, entry, (*slots, *axes.slots), grid, (THREADS, 1, 1))]


HOWS = {"sum": "Sum", "product": "Product", "maximum": "Max", "logSumExp": "LogSum"}


def start(kind, dtype):
    """C of the value of no elements."""
    number = neutral(kind, dtype)
    if number == -np.inf:
        return "-INFINITY"
    return f"(W)({number + 1}{'u' * (dtype.kind == 'u')}ll - 1)"  # C has no literal of the least integer


def neutral(kind, dtype):
    """The value of no elements, as a number of Python."""
    if kind in ("sum", "product"):
        return 0 if kind == "sum" else 1
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def shifted(x, axis, first):
    """Each element one position further along the axis, after `first`; the last is left out.

    Shapes    x (any with that axis) -> y the same
    """
    head = np.full_like(part(x, axis, 0, 1), first)
    return part(np.concatenate([head, part(x, axis, 0, -1)], axis=axis), axis, 0, x.shape[axis])


def part(x, axis, start, stop):
    """x[start:stop] along an axis."""
    return x[(slice(None),) * axis + (slice(start, stop),)]


def without(values, axis):
    """A tuple without one of its entries."""
    return (*values[:axis], *values[axis + 1 :])


def check(kind):
    """Raise    ShapeError for an unknown kind."""
    if kind not in UFUNCS:
        raise ShapeError(Fault(f"one of {', '.join(UFUNCS)}", repr(kind), module="cumulate"))
