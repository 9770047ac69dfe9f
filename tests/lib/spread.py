"""Of many combinations a few are tried every day, evenly spread, and all the others are marked slow."""

from itertools import product

import pytest


def spread(every, *axes):
    """All combinations of what stands on some axes as cases of a test; one in `every` is no slow one.

    Each value is among those, and with it each of another axis if a third has at least `every` values.
    """
    slow = pytest.mark.slow
    places = product(*(enumerate(axis) for axis in axes))
    return [
        pytest.param(*(value for _, value in case), marks=[slow] * (sum(i for i, _ in case) % every > 0))
        for case in places
    ]
