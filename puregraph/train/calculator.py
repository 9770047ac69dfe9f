"""Calculator: the outputs of a network for any number of samples."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from puregraph.compile.gpu.runtime.d2h import DeviceResults
from puregraph.core.arguments import Flag, takes
from puregraph.core.base.attributes import Settable
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.keywords import ChecksKeywords
from puregraph.core.errors import ArgumentError, DataError
from puregraph.data.batches import Batch, batchesFrom
from puregraph.data.datadoubts import warnOfInputs
from puregraph.data.prefetch import ITEMS_AHEAD, ahead
from puregraph.graph.module import Module
from puregraph.train.modes import inMode
from puregraph.train.objective import Objective

MAX_COPIED_BATCHES = 4  # most batches whose outputs are being copied from a GPU
MAX_COPIED_BYTES = 1 << 26  # most bytes of these outputs


class Calculator(ChecksKeywords, Settable):
    """The outputs of `net` for given data, in `evalMode`, stacked along the first axis.

    Source    PuzzleLib's Calculator
    """

    @takes(compile=Flag)
    def __init__(self, net: Module, batchsize: int = 128, compile: bool = True):
        self.objective = Objective(net, compile=compile)
        self.batchsize = batchsize
        self.isLookedAt = False

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Raises    ArgumentError naming the method that was meant"""
        raise ArgumentError("Calculator: not a function: calculator.calculate(data) gives the outputs")

    @takes()
    def calculate(self, data: Any) -> Any:
        """Return an array with a row for each sample; a list of arrays if the network has several outputs.

        `data` is an array, a list of arrays for several inputs, or an iterable of batches of them.

        Raises    DataError if there is no sample, or an output does not have one row per sample
        """
        source = batchesFrom(data, None, self.batchsize, False, self.objective.names)
        parts: list[list[np.ndarray]] = []
        waiting: deque[DeviceResults] = deque()
        self.objective.renew()
        if not self.isLookedAt:
            self.isLookedAt = True
            warnOfInputs(self.objective.net, source)
        ready = ahead(self.objective.ready(source.batches(), not source.light), 0 if source.light else ITEMS_AHEAD)
        with inMode(False, self.objective.net), ready as batches:
            try:
                for batch in batches:
                    outputs = self.objective.run(batch)[1]
                    self.check(outputs, batch)
                    waiting.append(DeviceResults(outputs))
                    while (
                        len(waiting) > MAX_COPIED_BATCHES
                        or sum(results.nbytes for results in waiting) > MAX_COPIED_BYTES
                    ):
                        parts.append(waiting.popleft().read(copy=True))
                parts += [results.read(copy=True) for results in waiting]
            finally:
                self.objective.reset()
        source.checkUsed(len(parts))
        stacked = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return stacked[0] if len(stacked) == 1 else stacked

    def __repr__(self) -> str:
        return f"<Calculator of {self.objective.net.title()}>"

    def check(self, outputs: list[Any], batch: Batch) -> None:
        for name, y in zip(self.objective.net.outputNames, outputs, strict=True):
            if y.shape[:1] != (batch.size,):
                isLone = any(x.ndim == 1 and isFloating(x.dtype) for x in batch.data)
                hint = "; the first axis counts samples: give one sample as data[None], a batch of one" * isLone
                raise DataError(
                    f"output '{name}': wanted a row for each of {batch.size} samples, got shape {y.shape}{hint}"
                )
