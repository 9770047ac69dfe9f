"""Layout: which maps lie channels last inside a program. Users see plain arrays; only strides differ.

What a convolution or pooling makes lies channels last, and by numpy's own rule results of pointwise calls lie as their
operands do, so that a whole network stays in this order but at its edges, where a copy turns what it has to.
"""

from __future__ import annotations

from typing import Any

from puregraph.kernel import CHANNELSLAST, HEADSLAST, declared


def channelsLast(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in numbers, of maps without gaps whose channels lie side by side."""
    n, c, *spatial = shape
    strides, step = [], c
    for m in reversed(spatial):
        strides.append(step)
        step *= m
    return (step, 1, *reversed(strides))


def layoutFor(kernel: Any, shape: tuple[int, ...], dtype: Any) -> tuple[int, ...] | None:
    """The strides in bytes of what a kernel makes; None for row by row."""
    wanted = declared(kernel, "layout")
    if wanted == HEADSLAST and len(shape) == 4 and shape[3] > 1:  # as the products around them have them
        n, h, t, d = shape
        return tuple([s * dtype.itemsize for s in (t * h * d, d, h * d, 1)])
    if wanted != CHANNELSLAST or len(shape) < 3:
        return None
    return tuple([s * dtype.itemsize for s in channelsLast(shape)])
