"""Fractions: targets from 0 to 1, checked before anything is computed from them."""

import numpy as np

from puregraph.core.tracer import tracerOf
from puregraph.errors import DataError
from puregraph.kernel import kernel
from puregraph.kernels.labels import positionOf


@kernel
def fractions(target):
    """The targets as they are.

    Raises    DataError for one that is not from 0 to 1, with its position
    """
    wrong = ~((target >= 0) & (target <= 1))
    if wrong.any():
        first = tuple(np.argwhere(wrong)[0].tolist())
        isSigned = set(np.unique(target).tolist()) == {-1, 1}
        other = "scale them, or take another cost, such as MSE"
        hint = "give (target + 1) / 2 in place of -1 and 1" if isSigned else other
        raise DataError(f"wanted targets from 0 to 1, got {target[first]}{positionOf(first)}; {hint}")
    return target


@fractions.device
def fractions(target):
    """The same calls on CuPy arrays; the check waits for the GPU once."""
    return fractions.reference(target)


def checkFractions(target):
    """Refuse targets that are not from 0 to 1; a tracer has no values to check."""
    if tracerOf((target,)) is None:
        fractions(target)
