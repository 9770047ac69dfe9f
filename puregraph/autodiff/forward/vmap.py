"""Samples: an array for each sample, in place of one array; a rule that is run once on it has run on each sample."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.derivatives.declarations import namesOf
from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import Tracer, astype
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.operation import declared, op

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

Rule = Callable[..., Any]


class _Unknown(AutoDiffException):
    """A function without a rule for many samples at once."""


class Samples(Tracer):
    """Arrays of one shape for each of n samples, held as one array of shape (n, *shape).

    A call on Samples runs for all samples at once: every axis that it names is shifted past the axis of samples. Other
    arrays are the same for all samples.

    Raises    _Unknown for a function without a rule here; the caller then runs sample by sample

    >>> np.sum(Samples(np.ones((5, 2, 3))), axis=0).batch.shape      # axis 0 of each of five samples
    (5, 3)
    """

    __slots__ = ("batch",)

    def __init__(self, batch: Any):
        self.batch = batch

    @property
    def carrier(self) -> Any:
        return self.batch

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return self.batch.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self.batch.dtype

    @property
    def all(self) -> Any:  # type: ignore[override]
        """The former name of `batch`."""
        warnings.warn("Samples.all is called Samples.batch now", DeprecationWarning, stacklevel=2)
        return self.batch

    def handle(self, function: Callable[..., Any], arguments: tuple, options: dict[str, Any]) -> Any:
        rule = declared(function, "perSample")
        if rule is None and (isinstance(function, Interpreter) or isinstance(function, np.ufunc)):
            rule = pointwise
        if rule is None and declared(function, "samples") is not None:
            rule = ofAll
        if rule is None or "out" in options:
            raise _Unknown(f"no rule for many samples of {getattr(function, '__name__', function)}")
        return rule(function, *arguments, **options)

    def tolist(self) -> list:
        raise _Unknown("each sample has elements of its own")

    def __setitem__(self, key: Any, new: Any) -> None:
        self.batch[behind(key)] = new.batch if isinstance(new, Samples) else new


AXES = {"axis", "axis1", "axis2", "source", "destination"}  # names of arguments that are axis numbers


def rankOf(x: Any) -> int:
    """The number of axes within a sample, or of an array that all samples share."""
    return x.ndim if isinstance(x, Samples) else np.ndim(x)


def aligned(arguments: tuple) -> list[Any]:
    """Return arrays that broadcast as for a single sample: missing axes are inserted after the axis of samples."""
    rank = max(map(rankOf, arguments))
    return [
        a.batch.reshape(a.batch.shape[0], *(1,) * (rank - a.ndim), *a.shape) if isinstance(a, Samples) else a
        for a in arguments
    ]


def wrapped(result: Any, count: int, rank: int) -> Any:
    """Wrap a result with an axis of samples as Samples."""
    return Samples(result) if result.ndim == rank + 1 and result.shape[0] == count else result


def ofAll(function: ArrayFunction, *arguments: Any, **options: Any) -> Any:
    """Call a Kernel that declares a rule for samples of some arguments."""
    sampled = declared(function, "sampled") or (0,)
    if any(isinstance(a, Samples) != (i in sampled) for i, a in enumerate(arguments)):
        raise _Unknown(f"samples in arguments of {function.__name__} other than {', '.join(map(str, sampled))}")
    arrays = [a.batch if isinstance(a, Samples) else a for a in arguments]
    result = declared(function, "samples")(*arrays, **options)
    if result is NotImplemented:
        raise _Unknown(f"samples of {function.__name__} for these shapes")
    return Samples(result)


@op(np.where).perSample
def pointwise(function: ArrayFunction, *arguments: Any, **options: Any) -> Any:
    """Call an elementwise function."""
    arrays = aligned(arguments)
    count = next(len(a.batch) for a in arguments if isinstance(a, Samples))
    rank = max(map(rankOf, arguments))
    result = function(*arrays, **options)
    if isinstance(result, (list, tuple)):
        return [wrapped(y, count, rank) for y in result]
    return wrapped(result, count, rank)


def along(axis: Any, rank: int) -> Any:
    """Shift axes within a sample past the axis of samples."""
    if axis is None:
        return tuple(range(1, rank + 1))
    if isinstance(axis, tuple):
        return tuple(a % rank + 1 for a in axis)
    return axis % rank + 1


@op(np.sum, np.mean, np.max, np.min, np.prod, np.var, np.std, np.any, np.all, np.amax, np.amin).perSample
@op(np.cumsum, np.flip, np.swapaxes, np.moveaxis).perSample
def alongAxes(function: ArrayFunction, x: Any, *arguments: Any, **options: Any) -> Any:
    """Call a function along axes within each sample."""
    names = namesOf(function)
    bound = {**dict(zip(names[1:], arguments)), **options}
    axes = {name: along(bound.get(name), x.ndim) for name in names if name in AXES}
    return Samples(function(x.batch, **{**bound, **axes}))


@op(np.reshape).perSample
def reshaped(function: ArrayFunction, x: Any, shape: Any) -> Any:
    """The values of each sample in another shape."""
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    if -1 in shape:
        rest = int(np.prod([d for d in shape if d != -1]))
        shape = [x.size // max(1, rest) if d == -1 else d for d in shape]
    return Samples(x.batch.reshape(len(x.batch), *shape))


@op(np.ravel).perSample
def raveled(function: ArrayFunction, x: Any) -> Any:
    """The values of each sample in a row."""
    return reshaped(np.reshape, x, (-1,))


@op(np.transpose).perSample
def transposed(function: ArrayFunction, x: Any, axes: Any = None) -> Any:
    """The axes of each sample in another order."""
    order = range(x.ndim)[::-1] if axes is None else [a % x.ndim for a in axes]
    return Samples(x.batch.transpose(0, *(a + 1 for a in order)))


@op(np.squeeze).perSample
def squeezed(function: ArrayFunction, x: Any, axis: Any = None) -> Any:
    """Each sample without axes of length one."""
    ones = tuple(i for i, d in enumerate(x.shape) if d == 1) if axis is None else axis
    return Samples(x.batch.squeeze(axis=along(ones, x.ndim))) if ones != () else x


@op(np.broadcast_to).perSample
def broadcasted(function: ArrayFunction, x: Any, shape: Any) -> Any:
    """Each sample broadcast to a larger shape."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    full = x.batch.reshape(len(x.batch), *(1,) * (len(shape) - x.ndim), *x.shape)
    return Samples(function(full, (len(x.batch), *shape)))


@op(astype, np.copy).perSample
def converted(function: ArrayFunction, x: Any, *arguments: Any, **options: Any) -> Any:
    """Convert or copy each sample."""
    return Samples(function(x.batch, *arguments, **options))


@op(np.zeros_like, np.ones_like, np.full_like).perSample
def alike(function: ArrayFunction, x: Any, *arguments: Any, shape: Any = None, **options: Any) -> Any:
    """Make an array for each sample with the same content, as zeros_like."""
    sizes = x.shape if shape is None else shape if isinstance(shape, (tuple, list)) else (shape,)
    return Samples(function(x.batch, *arguments, shape=(len(x.batch), *sizes), **options))


@op(np.concatenate, np.stack).perSample
def joined(function: ArrayFunction, arrays: Any, axis: int = 0) -> Any:
    """Arrays of each sample one after another, or along a new axis."""
    first = next(a for a in arrays if isinstance(a, Samples))
    parts = [a.batch if isinstance(a, Samples) else np.broadcast_to(a, (len(first.batch), *a.shape)) for a in arrays]
    return Samples(function(parts, axis=along(axis, first.ndim + (function is np.stack))))


@op(operator.getitem).perSample
def indexed(function: ArrayFunction, x: Any, key: Any) -> Any:
    """A part of each sample."""
    return Samples(x.batch[behind(key)])


def behind(key: Any) -> tuple:
    """Convert an index into a sample to one into the batch."""
    parts = key if isinstance(key, tuple) else (key,)
    if not all(part is None or part is ... or isinstance(part, (int, np.integer, slice)) for part in parts):
        raise _Unknown("an index by arrays")
    return (slice(None), *parts)


@op(np.matmul).perSample
def multiplied(function: ArrayFunction, a: Any, b: Any) -> Any:
    """A matrix product for each sample; common arrays must not have more axes than a sample."""
    ranks = [rankOf(x) for x in (a, b) if isinstance(x, Samples)]
    if min(rankOf(a), rankOf(b)) < 2 or max(rankOf(a), rankOf(b)) > max(ranks):
        raise _Unknown("a matrix product with a vector, or with more axes than the samples have")
    return Samples(function(*aligned((a, b))))


@op(np.einsum).perSample
def contracted(function: ArrayFunction, equation: str, *xs: Any, **options: Any) -> Any:
    """A sum of products for each sample: one more letter."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    free = [letter for letter in ascii_letters if letter not in equation]
    if not arrow or "." in equation or not free:
        raise _Unknown(f"the equation {equation!r}")
    groups = [free[0] * isinstance(x, Samples) + letters for letters, x in zip(left.split(","), xs)]
    arrays = [x.batch if isinstance(x, Samples) else x for x in xs]
    return Samples(function(f"{','.join(groups)}->{free[0]}{output}", *arrays, **options))
