"""Repeat: the runs of a loop over time steps, each a function of arrays; a compiled step holds its body once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.ops.kernel import compositeKernel


@compositeKernel
def repeatBody(body: Callable[..., Any], carried: Any, slices: Any, shared: Any, isReversed: bool = False) -> Any:
    """for t in 0, 1, ..., n - 1: c[k + 1], added, rows[t] = body(c[k], [x[t] for x in slices], shared)

    k counts the runs; with `isReversed` t goes from n - 1 to 0. c[0] is `carried`; `added` is summed over the runs.
    `body` takes and returns lists of arrays, of equal shapes in every run.

    Shapes    carried c any, slices x (n, ...) with n at least 1 -> c (n + 1, *c), sums as added, rows (n, *row)
    """
    count = len(slices[0])
    states: list[Any] = [[c] for c in carried]
    sums: list[Any] = []
    rows: list[Any] = []
    for t in reversed(range(count)) if isReversed else range(count):
        carried, added, row = body([s[-1] for s in states], [x[t] for x in slices], shared)
        for state, new in zip(states, carried, strict=True):
            state.append(new)
        sums = sums or [np.zeros_like(a) for a in added]
        sums = [s + a for s, a in zip(sums, added, strict=True)]
        rows.append(row)
    rows = rows[::-1] if isReversed else rows
    return (*map(np.stack, states), *sums, *map(np.stack, zip(*rows)))
