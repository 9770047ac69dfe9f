"""Channels last: the layout of feature maps inside a program. Users see ordinary arrays; only strides differ.

Results of convolution and pooling are stored channels last. Results of pointwise calls have the layout of their
operands, as in numpy. So a network stays in this layout, with copies only at its inputs and outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.ops.kernel import CHANNELSLAST, HEADSLAST
from puregraph.ops.operation import declared


def channelsLast(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides in elements of contiguous feature maps, channels last."""
    n, c, *spatial = shape
    strides, step = [], c
    for m in reversed(spatial):
        strides.append(step)
        step *= m
    return (step, 1, *reversed(strides))


def layoutFor(kernel: Any, shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...] | None:
    """The strides in bytes of a kernel's result; None for row-major."""
    wanted = declared(kernel, "layout")
    if wanted == HEADSLAST and len(shape) == 4 and shape[3] > 1:  # like the matrix products before and after
        n, h, t, d = shape
        return tuple([s * dtype.itemsize for s in (t * h * d, d, h * d, 1)])
    if wanted != CHANNELSLAST or len(shape) < 3:
        return None
    return tuple([s * dtype.itemsize for s in channelsLast(shape)])
