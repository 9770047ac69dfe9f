"""Meters: the mean cost and the metrics of the batches so far."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from puregraph.compile.gpu.runtime.d2h import DeviceResults
from puregraph.core import device
from puregraph.core.errors import DataError, GraphWarning, NotFiniteError
from puregraph.core.errors.userwarning import warnUser
from puregraph.data import Batch
from puregraph.data.nonfinite import blamed, named, remedy
from puregraph.modules.costs.counted import countedIn
from puregraph.train.metrics import Metric

EVERY = 16  # batches whose results are read from a GPU together
MAX_PENDING_BYTES = 1 << 26  # most bytes of results being copied, and of data kept for error messages


class Waiting(NamedTuple):
    """A batch whose results are being copied from a GPU: the cost, then the arrays that each metric reads."""

    parcel: DeviceResults
    batch: Batch | None
    location: str
    step: int
    size: int


class Meters:
    """The mean cost, each batch weighted by the number of values in its mean, and metrics.

    Results on a GPU are copied to the host after their step, and read once in `every` batches, `every` steps later, so
    that the host does not wait for a running step. Large results are read earlier. `learns` is True if weights depend
    on the costs.

    Raises    DataError if two metrics have one name, or one uses an output or target that does not exist
    """

    def __init__(self, metrics: Iterable[Metric] = (), every: int = EVERY, learns: bool = True, cost: Any = None):
        if isinstance(metrics, (Metric, dict)) or not isinstance(metrics, Iterable):
            raise DataError(f"metrics: wanted a list of Metrics, got {type(metrics).__name__}; write [it]")
        self.metrics, self.every, self.learns, self.cost = list(metrics), every, learns, cost
        for metric in self.metrics:
            if not isinstance(metric, Metric):
                raise DataError(f"metrics: wanted Metrics such as Accuracy(), got {metric!r:.60}")
        names = [metric.name for metric in self.metrics]
        if len(set(names)) < len(names):
            raise DataError(f"metrics: two have one name ({', '.join(names)}); give one another, name=...")
        self.reset()

    def include(self, more: list[Metric]) -> None:
        """Add further metrics."""
        Meters.__init__(self, [*self.metrics, *more], self.every, self.learns, self.cost)

    def reset(self) -> None:
        """Reset all sums."""
        self.total, self.weight, self.samples, self.last = 0.0, 0.0, 0, math.nan
        self.waiting: deque[Waiting] = deque()
        for metric in self.metrics:
            metric.reset()

    def add(self, cost: Any, outputs: list[Any], batch: Batch, location: str = "", step: int = 0) -> None:
        """Count a batch. A cost that is not finite raises a NotFiniteError that names the `location` and has the `step`
        as an attribute; without training, only if the data are not finite."""
        figures = [cost, countedIn(self.cost, batch.target[0] if batch.target else None, batch.size)]
        for metric in self.metrics:
            figures += metric.read(outputs, batch)
        self.samples += batch.size
        if not device.isDeviceArray(cost):
            self.count(figures, batch, location, step, batch.size)
            return
        self.waiting.append(Waiting(DeviceResults(figures), batch, location, step, batch.size))
        self.forgetData()
        if len(self.waiting) >= 2 * self.every:
            self.flush(self.every)
        while sum(entry.parcel.nbytes for entry in self.waiting) >= MAX_PENDING_BYTES:
            self.flush(1)

    def count(self, figures: list[Any], batch: Batch | None, location: str, step: int, size: int) -> None:
        """Add the cost of a batch, and update the metrics with their arrays."""
        self.last = float(figures[0])
        if not math.isfinite(self.last) and (self.learns or blamed(batch)):
            error = NotFiniteError(f"{location}: the cost is {self.last}; {remedy(batch)}")
            error.namesLocation = True
            if self.learns:
                error.step = step
            raise error from None  # replaces the GPU's report, which does not know the batch
        weight = float(figures[1])
        self.total += self.last * weight
        self.weight += weight
        for metric, output, target, weights in zip(self.metrics, figures[2::3], figures[3::3], figures[4::3]):
            metric.update(output, target, *([] if weights is None else [weights]))

    def addShares(self, shares: list[tuple[float, float]], samples: int) -> None:
        """Add the grains of a step of `samples` samples, each with its cost and its number of values. Metrics are added
        separately."""
        weight = sum(n for _, n in shares)
        self.last = float(sum(cost * n for cost, n in shares) / weight) if weight else 0.0
        self.total += self.last * weight
        self.weight += weight
        self.samples += samples

    def flush(self, most: int | None = None) -> None:
        """Read waiting results in order: of all batches, or of `most`."""
        for _ in range(len(self.waiting) if most is None else most):
            parcel, batch, location, step, size = self.waiting.popleft()
            self.count(parcel.read(), batch, location, step, size)

    def forgetData(self) -> None:
        """Drop the data of older waiting batches, beyond MAX_PENDING_BYTES."""
        held = 0
        for i in range(len(self.waiting) - 1, -1, -1):
            batch = self.waiting[i].batch
            if batch is None:
                return
            held += sum(x.nbytes for _, x in named(batch))
            if held > MAX_PENDING_BYTES:
                self.waiting[i] = self.waiting[i]._replace(batch=None)

    def row(self, prefix: str = "") -> dict[str, float]:
        """The mean cost as `loss`, and every metric that is one number; a warning says why one is nan."""
        self.flush()
        figures = self.known(prefix)
        if self.samples and not self.weight:
            warnUser(f"{prefix}loss is of no sample: all labels are ignored, or have weight 0", GraphWarning)
        for metric in self.metrics:
            if math.isnan(figures.get(prefix + metric.name, 0.0)) and (doubt := metric.doubt()):
                warnUser(f"{prefix}{metric.name} is nan: {doubt}", GraphWarning)
        return figures

    def known(self, prefix: str = "", isFinal: bool = True) -> dict[str, float]:
        """Return the mean cost and the metrics of the batches that have been read.

        Without `isFinal` metrics that sort all samples are left out.
        """
        values = {metric.name: metric.value() for metric in self.metrics if isFinal or not metric.gathered}
        nothing = math.nan if math.isnan(self.last) else 0.0  # 0 for batches without any counted value
        loss = self.total / self.weight if self.weight else nothing
        if hasattr(self.cost, "meanOf") and not math.isnan(self.last):
            mean = self.cost.meanOf(values)
            loss = loss if mean is None else mean + sum(values[m.name] for m in self.metrics if m.isAdded)
        return {prefix + name: float(v) for name, v in {"loss": loss, **values}.items() if np.ndim(v) == 0}

    def state(self) -> dict[str, Any]:
        """Return the running sums, to be saved."""
        self.flush()
        return {
            "total": self.total,
            "weight": self.weight,
            "samples": self.samples,
            "metrics": {metric.name: metric.state() for metric in self.metrics},
        }

    def check(self, state: dict[str, Any]) -> None:
        """Check that saved sums can be continued.

        Raises    DataError if the metrics differ from the saved ones
        """
        saved, current = list(state["metrics"]), [metric.name for metric in self.metrics]
        if sorted(saved) != sorted(current):
            begun, now = (", ".join(names) or "none" for names in (saved, current))
            raise DataError(f"metrics: an epoch was begun with {begun}, it cannot go on with {now}")

    def restore(self, state: dict[str, Any]) -> None:
        """Restore saved sums."""
        self.reset()
        self.total, self.weight = float(state["total"]), float(state["weight"])
        self.samples = int(state.get("samples", self.weight))
        for metric in self.metrics:
            metric.restore(state["metrics"][metric.name])
