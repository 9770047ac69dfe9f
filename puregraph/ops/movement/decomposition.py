"""Array functions: repeat, tile, pad, roll, stack and the like."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.tracer import areRecorded
from puregraph.ops.ir.strides import along, dense
from puregraph.ops.ir.value import copy
from puregraph.ops.operation import op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray, Axes


@op(np.repeat).decompose
def repeat(x: AnyArray, repeats: Any, axis: int | None = None) -> AnyArray:
    """Each element several times: repeat along a new axis, then merge it with the axis before."""
    if not isinstance(repeats, Integral) or axis is None:
        return NotImplemented
    axis %= x.ndim
    return wide(x, axis, axis + 1, int(repeats))


@op(np.tile).decompose
def tile(x: AnyArray, reps: Any) -> AnyArray:
    """The array repeated along its axes."""
    reps = tuple(reps) if isinstance(reps, (tuple, list)) else (reps,)
    rank = max(x.ndim, len(reps))
    x = x.reshape((1,) * (rank - x.ndim) + x.shape)
    for axis, count in enumerate((1,) * (rank - len(reps)) + reps):
        x = wide(x, axis, axis, int(count)) if count != 1 else x
    return x.copy("K")


def wide(x: Any, axis: int, new: int, count: int) -> AnyArray:
    """x repeated along a new axis at position `new`, which is then merged with `axis`."""
    shape = (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])
    spread = (*x.shape[:new], count, *x.shape[new:])
    if count == 1 or 0 in shape:
        return np.zeros_like(x, shape=shape) if 0 in shape else x.copy("K")
    repeated: Any = np.broadcast_to(np.expand_dims(x, new), spread)  # a tracer like x
    recorder, of = x.recorder, repeated.value
    order = [a + (a >= new) for a in sorted(range(x.ndim), key=lambda a: -abs(x.current.strides[a]))]
    order.insert(order.index(axis + (axis >= new)) + (new > axis), new)
    y = recorder.made(copy, (of,), {}, "copy", spread, of.dtype, dense(spread, order, of.dtype.itemsize))
    return recorder.handle(y).reshape(shape)


@op(np.pad).decompose
def pad(x: Any, width: Any, mode: str = "constant", **options: Any) -> Any:
    """Padding: a constant, or values computed from the border."""
    if options.keys() - {"constant_values"} or (mode != "constant" and mode not in BORDERS):
        return NotImplemented
    number = options.get("constant_values", 0)
    if not isinstance(number, (int, float)):
        return NotImplemented
    widths = [(int(a), int(b)) for a, b in np.broadcast_to(np.asarray(width), (x.ndim, 2))]
    if mode == "constant":
        y = np.full_like(x, number, shape=tuple([n + a + b for n, (a, b) in zip(x.shape, widths)]))
        y[tuple([slice(a, a + n) for n, (a, _) in zip(x.shape, widths)])] = x
        return y
    most = {"edge": None, "reflect": -1}.get(mode, 0)
    if any(n < 1 or (most is not None and max(border) > n + most) for n, border in zip(x.shape, widths) if any(border)):
        return NotImplemented
    for axis, (a, b) in enumerate(widths):
        if a or b:
            before, after = BORDERS[mode](x, axis, a, b)
            x = np.concatenate([before, x, after], axis=axis)
    return x


def edge(x: AnyArray, axis: int, before: int, after: int) -> tuple[Any, Any]:
    """The outermost elements, repeated."""
    sides = x[along(axis, slice(0, 1))], x[along(axis, slice(-1, None))]
    first, last = (
        np.broadcast_to(s, (*x.shape[:axis], n, *x.shape[axis + 1 :])) for s, n in zip(sides, (before, after))
    )
    return first, last


def reflect(x: AnyArray, axis: int, before: int, after: int) -> tuple[Any, Any]:
    """The mirror image, without the outermost elements."""
    n = x.shape[axis]
    first, last = x[along(axis, slice(1, before + 1))], x[along(axis, slice(n - 1 - after, n - 1))]
    return np.flip(first, axis), np.flip(last, axis)


def symmetric(x: AnyArray, axis: int, before: int, after: int) -> tuple[Any, Any]:
    """The mirror image."""
    n = x.shape[axis]
    return np.flip(x[along(axis, slice(0, before))], axis), np.flip(x[along(axis, slice(n - after, n))], axis)


def wrap(x: AnyArray, axis: int, before: int, after: int) -> tuple[Any, Any]:
    """Elements from the other end."""
    n = x.shape[axis]
    return x[along(axis, slice(n - before, n))], x[along(axis, slice(0, after))]


BORDERS = {"edge": edge, "reflect": reflect, "symmetric": symmetric, "wrap": wrap}


@op(np.concatenate).decompose
def concatenate(parts: Sequence[AnyArray], axis: int = 0, **options: object) -> AnyArray:
    """Concatenate without empty parts."""
    if options or axis is None or not areRecorded(*parts) or len({x.dtype for x in parts}) > 1:
        return NotImplemented
    some = [x for x in parts if x.size]
    if len(some) == len(parts) or not some:
        return NotImplemented
    return np.concatenate(some, axis=axis) if len(some) > 1 else some[0].copy("K")


@op(np.hstack).decompose
def hstack(parts: Any) -> AnyArray:
    """Concatenated along the second axis, or the only one."""
    return np.concatenate(parts, axis=1 if parts[0].ndim > 1 else 0)


@op(np.vstack).decompose
def vstack(parts: Any) -> AnyArray:
    """Concatenated along the first axis."""
    return np.concatenate([x if x.ndim > 1 else x.reshape(1, -1) for x in parts], axis=0)


@op(np.roll).decompose
def roll(x: AnyArray, shift: Any, axis: Axes = None) -> AnyArray:
    """Shift elements along an axis; those past the end come in at the front."""
    if not isinstance(shift, Integral) or not isinstance(axis, Integral) or 0 in x.shape:
        return NotImplemented
    axis, cut = int(axis) % x.ndim, -int(shift) % x.shape[int(axis)]
    return np.concatenate([x[along(axis, slice(cut, None))], x[along(axis, slice(0, cut))]], axis=axis)


@op(np.diff).decompose
def diff(x: AnyArray, n: int = 1, axis: int = -1) -> AnyArray:
    """Each element less the one before."""
    if x.dtype.kind != "f":
        return NotImplemented
    axis %= x.ndim
    for _ in range(n):
        x = x[along(axis, slice(1, None))] - x[along(axis, slice(0, -1))]
    return x


@op(np.tril).decompose
def tril(x: AnyArray, k: int = 0) -> AnyArray:
    """Zero above a diagonal of the last two axes."""
    rows, columns = x.shape[-2:]
    return np.where(np.tri(rows, columns, k, bool), x, zero(x))


@op(np.triu).decompose
def triu(x: AnyArray, k: int = 0) -> AnyArray:
    """Zero below a diagonal of the last two axes."""
    rows, columns = x.shape[-2:]
    return np.where(np.tri(rows, columns, k - 1, bool), zero(x), x)


def zero(x: AnyArray) -> AnyArray:
    """0 in the dtype of x."""
    return x.dtype.type(0)
