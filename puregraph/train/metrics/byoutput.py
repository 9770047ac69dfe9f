"""Metrics by the names of a network's outputs, as costs are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from puregraph.errors import DataError
from puregraph.train.metrics.metric import Metric


def metricsFrom(metrics: Any, net: Any, cost: Any) -> Iterable[Metric]:
    """A dict of a metric for each output, or a list of them, as one list; anything else as it is.

    Each looks at its output and at the target of its output's cost, and is called `"digit accuracy"` in the history.

    Raises    DataError for a name that is no output with a target, for anything but Metrics, and for one given twice
    """
    if not isinstance(metrics, dict):
        return metrics
    found: list[Metric] = []
    outputs = list(net.outputNames)
    targets = list(getattr(cost, "parts", outputs))
    for output, given in metrics.items():
        if output not in targets:
            raise DataError(f"metrics: wanted outputs that have a target ({', '.join(targets)}), got {output!r}")
        for metric in given if isinstance(given, (list, tuple)) else [given]:
            if not isinstance(metric, Metric):
                raise DataError(f"metrics[{output!r}]: wanted Metrics such as Accuracy(), got {metric!r:.60}")
            if any(metric is each for each in found):
                raise DataError(f"metrics[{output!r}]: {metric.name} is given twice; make one for each output")
            metric.which, metric.target = outputs.index(output), targets.index(output)
            metric.name = f"{output} {metric.name.removeprefix(output + ' ')}"
            found.append(metric)
    return found
