"""Validator: cost and metrics of a network on validation data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from puregraph.core.arguments import Flag, takes
from puregraph.core.base.attributes import Settable
from puregraph.core.base.keywords import ChecksKeywords
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import ArgumentError, DataError, addLocation
from puregraph.data.batches import Arrays, Stream, batchesFrom
from puregraph.data.datadoubts import warnOfInputs
from puregraph.data.prefetch import ITEMS_AHEAD, ahead
from puregraph.graph.module import Module
from puregraph.train.costsum import costFrom, partLosses
from puregraph.train.meters import Meters
from puregraph.train.metrics import Metric
from puregraph.train.metrics.byoutput import metricsFrom
from puregraph.train.modes import inMode
from puregraph.train.objective import Objective, checkKind
from puregraph.train.prechecks import weighed

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Validator(ChecksKeywords, Settable):
    """The mean cost and the metrics of `net` on given data, in `evalMode`.

    Source    PuzzleLib's Validator
    """

    @takes(compile=Flag)
    def __init__(
        self, net: Module, cost: Module, metrics: Iterable[object] = (), batchsize: int = 128, compile: bool = True
    ):
        cost = costFrom(cost)
        checkKind("cost", cost, ("node", "trainMode"), "a Module, such as MSE()")
        self.objective = Objective(net, cost, compile)
        self.cost = self.objective.cost
        self.meters = Meters(metricsFrom(metrics, self.objective.net, self.cost), learns=False, cost=self.cost)
        self.meters.include(partLosses(self.objective.net, self.cost))
        self.batchsize = batchsize
        self.mutex = Mutex()
        self.isLookedAt = False

    @property
    def metrics(self) -> list[Metric]:
        """The metrics, with the values of the last validation."""
        return self.meters.metrics

    def __call__(self, *args: Any, **named: object) -> Any:
        """Raises    ArgumentError naming the method that was meant"""
        raise ArgumentError("Validator: not a function: validator.validate(data, target) gives cost and metrics")

    @takes()
    def validate(self, data: Any, target: AnyArray | None = None, sampleWeight: Any = None) -> dict[str, float]:
        """Return `{"loss": ..., "accuracy": ...}`: the mean cost over all samples, however they are batched, and each
        metric that is one number.

        `data` and `target` are arrays or lists of arrays; data alone is an iterable of (data, target). The cost of each
        sample is multiplied by its `sampleWeight`.

        Raises    DataError if they do not fit each other or are empty; PuregraphError, naming batch and sample, if the
                  cost is not finite because they are not
        """
        data, target = self.objective.names.inOrder(data, target)
        target, isWeighed = weighed(target, sampleWeight, self.cost), sampleWeight is not None
        return self.run(batchesFrom(data, target, self.batchsize, isWeighed=isWeighed))

    def run(self, source: Arrays | Stream) -> dict[str, float]:
        """Validate batches. The metrics belong to this validator, so threads wait for one another here."""
        with self.mutex.lock:
            if self.mutex.isHeld:
                raise DataError("validate: this validator is validating in this very thread; make another one for that")
            self.mutex.isHeld = True
            try:
                return self.runAlone(source)
            finally:
                self.mutex.isHeld = False

    def __repr__(self) -> str:
        names = ", ".join(["loss", *(metric.name for metric in self.metrics)])
        return f"<Validator of {self.objective.net.title()}, {type(self.cost).__name__}: {names}>"

    def runAlone(self, source: Arrays | Stream) -> dict[str, float]:
        """Run a validation."""
        self.meters.reset()
        self.objective.renew()
        isFirst, self.isLookedAt = not self.isLookedAt, True
        if isFirst:
            warnOfInputs(self.objective.net, source)
        ready = ahead(self.objective.ready(source.batches(), not source.light), 0 if source.light else ITEMS_AHEAD)
        location = ""
        with inMode(False, self.objective.net, self.cost), ready as batches:
            try:
                for number, batch in enumerate(batches, 1):
                    location = f"validation, batch {number}"
                    if isFirst and number == 1:
                        self.objective.warn(batch, self.metrics)
                    cost, outputs = self.objective.run(batch)
                    self.meters.add(cost, outputs, batch, location)
            except Exception as error:
                if location and location not in str(error):
                    addLocation(error, f"in {location}")
                raise
            finally:
                self.objective.reset()
        source.checkUsed(self.meters.samples)
        return self.meters.row()
