"""Metrics over random cuts into batches, some of them empty, counted by two metrics that are merged and restored."""

import copy

import numpy as np


def cut(rng, n):
    """Random batches of n samples, some of them empty."""
    ends = np.sort(rng.integers(0, n + 1, rng.integers(0, 6)))
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, n])]


def valueOver(rng, metric, *arrays):
    """The value of a metric whose batches are counted by itself and by a copy, and merged."""
    other = copy.deepcopy(metric)
    parts = cut(rng, len(arrays[0]))
    middle = int(rng.integers(0, len(parts) + 1))
    for number, part in enumerate(parts):
        (metric if number < middle else other).update(*(x[part] for x in arrays))
    metric.merge(other.state())
    fresh = copy.deepcopy(metric)
    fresh.reset()
    fresh.restore(metric.state())
    return fresh.value()
