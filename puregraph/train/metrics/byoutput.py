"""Metrics by the names of a network's outputs, as costs are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from puregraph.core.errors import DataError
from puregraph.train.metrics.metric import Metric

if TYPE_CHECKING:
    from puregraph.graph.graph import Graph
    from puregraph.graph.module import Module


def metricsFrom(metrics: Any, net: Graph, cost: Module) -> Iterable[Metric]:
    """Convert a dict of metrics, or lists of metrics, by output to a list; other values are returned unchanged.

    Every metric uses its output and that output's target, and is named like `"digit accuracy"` in the history.

    Raises    DataError for a name that is not an output with a target, a value that is not a Metric, or a repeated one
    """
    if not isinstance(metrics, dict):
        return metrics
    collected: list[Metric] = []
    outputs = list(net.outputNames)
    targets = list(getattr(cost, "parts", outputs))
    for output, ofOutput in metrics.items():
        if output not in targets:
            raise DataError(f"metrics: wanted outputs that have a target ({', '.join(targets)}), got {output!r}")
        for metric in ofOutput if isinstance(ofOutput, (list, tuple)) else [ofOutput]:
            if not isinstance(metric, Metric):
                raise DataError(f"metrics[{output!r}]: wanted Metrics such as Accuracy(), got {metric!r:.60}")
            if any(metric is other for other in collected):
                raise DataError(f"metrics[{output!r}]: {metric.name} is given twice; make one for each output")
            metric.which, metric.target = outputs.index(output), targets.index(output)
            metric.name = f"{output} {metric.name.removeprefix(output + ' ')}"
            collected.append(metric)
    return collected
