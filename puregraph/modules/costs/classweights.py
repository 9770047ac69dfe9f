"""Class weights: a factor for each class, which a cost keeps as a State."""

from numbers import Integral

import numpy as np

from puregraph.core import device
from puregraph.core.accumulate import needPlain
from puregraph.core.errors import ArgumentError
from puregraph.core.param import State


def weightState(weights, cost):
    """The State of a cost's class weights; None without any."""
    values = None if weights is None else classWeights(weights, type(cost).__name__)
    return None if values is None else State((len(values),), _Given(values), np.float64)


def classWeights(weights, label):
    """The weights of all classes, in order, from a list or a dict by class.

    Raises    ArgumentError for other keys than the classes, and for weights that are not finite or below 0
    """
    if isinstance(weights, dict):
        isNumbered = all(isinstance(k, Integral) for k in weights)
        wanted = range(min(int(max(weights, default=-1)) + 1, 1000) if isNumbered else len(weights))
        if set(weights) != set(wanted):
            missing = [str(k) for k in wanted if isNumbered and k not in weights]
            hint = f"; give {', '.join(missing):.60} a weight too, 1 changes nothing" if missing else ""
            raise ArgumentError(
                f"{label}: wanted weights by the numbers of the classes, from 0 on, one for each class, "
                f"got the keys {', '.join(map(repr, weights)) or 'none'}{hint}"
            )
        weights = [weights[k] for k in wanted]
    needPlain(weights, f"{label}, weights")
    try:
        array = np.asarray(device.toHost(weights), np.float64)
    except (TypeError, ValueError):
        array = None
    if array is None or array.ndim != 1 or not array.size:
        raise ArgumentError(
            f"{label}: wanted weights as a list of numbers, one for each class, or a dict of them by class, "
            f"got {weights!r:.60}"
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any() or not array.any():
        k = int(wrong.argmax())
        raise ArgumentError(
            f"{label}: wanted weights of at least 0, finite, and not all 0, "
            + (f"got {array[k]} for class {k}" if wrong.any() else f"got {array.size} zeros")
        )
    return array.tolist()


class _Given:
    """Initializer with fixed values."""

    def __init__(self, values):
        self.values = tuple(values)

    def __call__(self, rng, shape):
        return np.array(self.values, np.float64)


def norm(share):
    """The divisor of the sum: the total weight, or 1 if that is 0."""
    total = share.sum()
    return total + (total == 0)
