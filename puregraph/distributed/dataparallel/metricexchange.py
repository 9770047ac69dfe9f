"""MetricExchange: what metrics count of the grains of a step, added up alike on all ranks."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from puregraph.core.errors import DataError
from puregraph.data.batches import Batch
from puregraph.distributed.worlds.world import World


class MetricExchange:
    """Metrics of a step's grains. Sums are columns of the grains' rows; arrays that grow with the samples are gathered.

    Grains are counted by copies of the metrics, so that a step that is retried counts once.
    """

    def __init__(self, metrics: list[Any]):
        self.metrics, self.counters = metrics, copy.deepcopy(metrics)
        for counter in self.counters:
            counter.reset()
        self.renew()

    def renew(self) -> None:
        """Drop the arrays of the last step."""
        self.arrays: dict[str, np.ndarray] = {}  # by name, grain and number of the batch

    def sums(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield each counter with the name and value of each of its running sums.

        Raises    DataError for a sum that cannot be added over grains
        """
        for counter in self.counters:
            for name, value in counter.state().items():
                if np.asarray(value).dtype.kind not in "biuf":
                    raise DataError(
                        f"{counter.name}: wanted sums of numbers, which grains can add to, got {value!r:.60}"
                    )
                if name not in counter.gathered:
                    yield counter, name, value

    def count(self, part: Batch, outputs: list[Any], grain: int, number: int) -> dict[str, Any]:
        """Return the sums of a grain of one batch, and keep its arrays."""
        for counter in self.counters:
            prediction, target, weights = counter.read(outputs, part)
            counter.reset()
            counter.update(prediction, target, *([] if weights is None else [weights]))
            for name in counter.gathered:
                self.arrays[keyOf(counter, name, grain, number)] = counter.state()[name]
        return {columnOf(counter, name): value for counter, name, value in self.sums()}

    def gather(self, world: World) -> None:
        """Gather the arrays of all ranks, if a metric has any."""
        if world.size == 1 or not any(counter.gathered for counter in self.counters):
            return
        file = io.BytesIO()
        np.savez(file, **self.arrays)  # type: ignore[arg-type]
        for data in world.gather(file.getvalue()):
            with np.load(io.BytesIO(data)) as arrays:
                self.arrays.update(arrays)

    def merge(self, column: Any, taken: list[tuple[int, int, int]]) -> None:
        """Add what was counted of all grains to the metrics, in the order of samples."""
        for metric, counter in zip(self.metrics, self.counters):
            dtypes = {name: np.asarray(value).dtype for name, value in counter.state().items()}
            for _, b, g in taken:
                state = {}
                for name, dtype in dtypes.items():
                    isGathered = name in counter.gathered
                    value = (
                        self.arrays[keyOf(counter, name, g, b)] if isGathered else column(columnOf(counter, name))[g, b]
                    )
                    state[name] = value.astype(dtype)
                metric.merge(state)
        self.renew()


def columnOf(metric: Any, name: str) -> str:
    """The name of the column in the rows of grains for a sum of a metric."""
    return f"metric {metric.name} {name}"


def keyOf(metric: Any, name: str, grain: int, number: int) -> str:
    """The key of an array of a metric, of a grain of one batch."""
    return f"{columnOf(metric, name)} {grain} {number}"
