"""Tally: the mean cost and the metrics of the batches so far."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from puregraph import device
from puregraph.data import Batch
from puregraph.errors import DataError, PuregraphError
from puregraph.train.metrics import Metric
from puregraph.train.task import named

EVERY = 16  # batches whose results wait on a GPU, so that most steps need not wait for it
BYTES = 1 << 26  # of results at most


class Tally:
    """The mean cost, each batch weighted by its size, and metrics; the device is read every few batches.

    Raises    DataError if two metrics have one name, or one looks at an output or target that is not there
    """

    def __init__(self, metrics: Iterable[Metric] = ()):
        if isinstance(metrics, Metric):
            raise DataError(f"metrics: wanted a list of Metrics, got {type(metrics).__name__}; write [it]")
        self.metrics = list(metrics)
        for metric in self.metrics:
            if not isinstance(metric, Metric):
                raise DataError(f"metrics: wanted Metrics such as Accuracy(), got {metric!r:.60}")
        names = [metric.name for metric in self.metrics]
        if len(set(names)) < len(names):
            raise DataError(f"metrics: two have one name ({', '.join(names)}); give one another, name=...")
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self.total, self.weight, self.last = 0.0, 0, math.nan
        self.waiting: list[tuple[Any, list[Any], Batch, str]] = []
        for metric in self.metrics:
            metric.reset()

    def add(self, cost: Any, outputs: list[Any], batch: Batch, place: str = "") -> None:
        """Count a batch. With a `place`, a cost that is not finite raises a PuregraphError that names it."""
        wanted = {metric.which for metric in self.metrics}
        kept = [y if slot in wanted else None for slot, y in enumerate(outputs)]
        self.waiting.append((cost, kept, batch, place))
        held = sum(y.nbytes for _, outs, _, _ in self.waiting for y in outs if y is not None)
        if not device.isDeviceArray(cost) or len(self.waiting) >= EVERY or held >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Read what waits on the device, in order."""
        waiting, self.waiting = self.waiting, []
        for cost, outputs, batch, place in waiting:
            self.last = float(device.toHost(cost))
            if place and not math.isfinite(self.last):
                raise PuregraphError(f"{place}: the cost is {self.last}; {remedy(batch)}")
            self.total += self.last * batch.size
            self.weight += batch.size
            for metric in self.metrics:
                metric.update(chosen(outputs, metric, "outputs"), chosen(batch.target, metric, "targets"))

    def row(self, prefix: str = "") -> dict[str, float]:
        """The mean cost as `loss`, and every metric that is one number."""
        self.flush()
        values = {metric.name: metric.value() for metric in self.metrics}
        loss = self.total / self.weight if self.weight else math.nan
        return {prefix + name: float(v) for name, v in {"loss": loss, **values}.items() if np.ndim(v) == 0}

    def state(self) -> dict[str, Any]:
        """The running sums, to be saved."""
        self.flush()
        return {
            "total": self.total,
            "weight": self.weight,
            "metrics": {metric.name: metric.state() for metric in self.metrics},
        }

    def check(self, state: dict[str, Any]) -> None:
        """Whether it can go on from saved sums.

        Raises    DataError if the metrics are not those that were saved
        """
        saved, own = list(state["metrics"]), [metric.name for metric in self.metrics]
        if sorted(saved) != sorted(own):
            wanted, given = (", ".join(names) or "none" for names in (saved, own))
            raise DataError(f"metrics: an epoch was begun with {wanted}, it cannot go on with {given}")

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved sums."""
        self.reset()
        self.total, self.weight = float(state["total"]), int(state["weight"])
        for metric in self.metrics:
            metric.restore(state["metrics"][metric.name])


def remedy(batch: Batch) -> str:
    """What to do about a cost that is not finite."""
    wrong = [name for name, x in named(batch) if x.dtype.kind == "f" and not np.isfinite(x).all()]
    if wrong:
        return f"{' and '.join(wrong)} of this batch hold{'s' * (len(wrong) == 1)} values that are not finite"
    return "lower the learning rate, clip the gradient, or look at the data"


def chosen(arrays: list[Any], metric: Metric, what: str) -> np.ndarray:
    """The output or target that a metric looks at, on the host."""
    if metric.which >= len(arrays):
        raise DataError(f"{metric.name}: wanted number {metric.which} of the {what}, got {len(arrays)}")
    return device.toHost(arrays[metric.which])
