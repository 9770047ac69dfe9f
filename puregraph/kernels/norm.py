"""Norm: the size of many arrays taken together."""

from __future__ import annotations

import numpy as np

from puregraph.kernel import kernel
from puregraph.kernels.widen import widen


@kernel
def norm(*arrays):
    """y = sqrt(sum x^2) over all elements of all arrays, one array after the other, in float64 between them.

    Shapes    any -> y ()
    """
    with np.errstate(all="ignore"):
        return np.sqrt(sum(np.vdot(x, x).astype(np.float64) for x in map(widen, arrays)))


@norm.shape
def norm(*arrays):
    """A number in float64."""
    return (), np.dtype(np.float64)


@norm.device
def norm(*arrays):
    """The reference, which runs on CuPy's arrays as it is."""
    return norm.reference(*arrays)
