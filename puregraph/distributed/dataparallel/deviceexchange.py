"""DeviceExchange: sum and exchange the gradients of all grains on GPUs, within the captured graph of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from puregraph.compile.gradientbuckets import GradientBuckets, backwardOrder
from puregraph.core.param import Param
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treesum import UNCUT_ELEMENTS
from puregraph.distributed.dataparallel.gradientexchange import GradientExchange, predicted
from puregraph.distributed.nccl.agreedcall import REFUSED, STEP
from puregraph.distributed.nccl.devicetreesum import DeviceTreeSum
from puregraph.distributed.sharding.sharding import isOnDevice


class DeviceExchange:
    """The all-reduce of a GradientExchange, with gradients that stay on the GPU.

    The program of this rank's last grain differs from the programs of earlier grains: it starts the reduction of
    buckets between its kernel launches. A start reduces a bucket on the side stream, which is joined after the last
    launch, all in one captured graph. NCCL needs a graph to be launched by all ranks or by none, so all ranks compare
    the versions of their graphs before each step.

    `params`, `spans`  the parameters in the order of the row, and the range of elements of each
    """

    isPassing = False

    def __init__(self, trainer: Any, grains: Grains, params: list[Param]):
        self.grains, self.world, self.objective = grains, trainer.world, ref(trainer.objective)
        self.params = backwardOrder(trainer.net, params)
        dtype = np.result_type(np.float32, *[p.dtype for p in params])
        self.buckets = GradientBuckets(self.params, dtype.itemsize, UNCUT_ELEMENTS)
        self.spans = self.buckets.spans
        self.tree = DeviceTreeSum(self.world, grains, dtype, self.buckets.cuts)
        self.buckets.predict = partial(predicted, self.world.size, len(self.tree.spans[self.world.rank]), True)
        self.buckets.start, self.buckets.device = self.start, self
        shapes = list(zip(self.spans, [param.shape for param in self.params]))
        self.views = [[row[a:b].reshape(shape) for (a, b), shape in shapes] for row in self.tree.rows]
        self.started, self.version = 0, 0

    def serves(self, trainer: Any, grains: Grains, params: list[Param]) -> bool:
        """True if this exchange reduces the gradients of these parameters, so that its programs can be kept."""
        order = backwardOrder(trainer.net, params)
        isSame = self.world is trainer.world and self.grains.bounds == grains.bounds
        return isSame and list(map(id, order)) == list(map(id, self.params))

    def add(self, learn: Callable[[int], list[Any]]) -> None:
        """Sum the gradients that `learn(grain)` returns for this process's grains, in the order of `params`."""
        self.started, last = 0, self.grains.own[-1]
        for grain in self.grains.own:
            grads = learn(grain)
            if grain != last:
                self.fill(grain, dict(enumerate(grads)), range(len(grads)))
                self.tree.merge(grain, 0, self.buckets.cuts[-1])
        if not self.started:  # no program has started the buckets
            self.agreed(REFUSED)
            for number, group in enumerate(self.buckets.groups):
                self.start(number, {index: grads[index] for index in group})
            self.join()

    def fill(self, grain: int, grads: dict[int, Any], group: Any) -> None:
        """Copy gradients to the row of a grain, on the current stream; missing gradients are 0."""
        views = self.views[self.tree.positions[grain]]
        for index in group:
            grad = grads.get(index)
            views[index][...] = 0 if grad is None else grad

    @contextmanager
    def leaving(self, grain: int, isFirst: bool, isLast: bool) -> Iterator[None]:
        """Let programs start buckets inside the block, if it computes the last gradients of this process's step."""
        objective: Any = self.objective()
        isLeaving = isLast and grain == self.grains.own[-1] and self.world.size > 1
        objective.buckets = self.buckets if isLeaving else None
        try:
            yield
        finally:
            objective.buckets = None

    def collect(self, isFirst: bool) -> list[bool]:
        """Return, for each parameter, True if it has a gradient of this grain."""
        return [param.grad is not None for param in self.params]

    def start(self, number: int, grads: dict[int, Any]) -> None:
        """Copy a bucket of the last grain to its row, so that its memory is free, and reduce it on the side stream."""
        last, (a, b) = self.grains.own[-1], self.buckets.cuts[number : number + 2]
        self.fill(last, grads, self.buckets.groups[number])
        with self.beside():
            self.tree.merge(last, a, b)
            self.tree.exchange(number)
        self.started += 1

    def beside(self) -> Any:
        """Return the side stream as a context, forked from the current stream; a single process stays on its stream."""
        if self.world.size == 1:
            return nullcontext()
        self.world.side.fork()
        return self.world.side.stream

    def join(self) -> None:
        """Have the current stream wait for all buckets."""
        if self.world.size > 1:
            self.world.side.join()

    # Captured graphs --------------------------------------------------------------------------------------------------

    def run(self, section: Any) -> None:
        """Launch the graph of a section, if all ranks have captured it together; otherwise run its calls, and capture
        them again."""
        has = REFUSED if section.why else section.version if section.graph is not None else 0
        versions = self.agreed(has)
        if has > 0 and set(versions) == {has}:
            with self.world.underway():
                section.graph.launch()
            self.started = len(self.buckets.groups)
            return
        section.drop()
        section.start()
        if REFUSED not in versions:
            self.capture(section)

    def capture(self, section: Any) -> None:
        """Capture a section together with all ranks; if one of them cannot, no rank keeps a graph."""
        started = self.started
        with self.world.capturing(section) as capture:
            section.capture()
            capture.why = section.why
        self.started, section.why = started, capture.why
        self.version += 1
        section.version = self.version

    def agreed(self, number: int) -> list[int]:
        """Return the numbers that all ranks pass."""
        return [number] if self.world.size == 1 else self.world.agree(STEP, number)

    def share(self, reached: Any) -> None:
        """Set the gradients of the reached parameters to the sum over all grains, all others to None."""
        for param, view, isReached in zip(self.params, self.views[0], reached):
            if not isReached:
                param.grad = None
            elif param.grad is None:
                param.grad = view.astype(param.dtype)
            else:
                param.grad[...] = view
                param.grad = param.grad  # increments the version


def exchangeFor(trainer: Any, grains: Grains, params: list[Param]) -> Any:
    """Return the exchange of gradients: on the GPU if they are there, and NCCL connects the ranks."""
    objective, isNear = trainer.objective, trainer.world.size == 1 or hasattr(trainer.world, "startExchange")
    if not isNear or trainer.shard is not None or not all(map(isOnDevice, params)):
        return GradientExchange(trainer, grains, params)
    objective.buckets = None
    before = objective.deviceExchange
    if before is None or not before.serves(trainer, grains, params):
        objective.deviceExchange = DeviceExchange(trainer, grains, params)
    return objective.deviceExchange
