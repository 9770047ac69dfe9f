"""SharedStep: one step of several processes, or of the fixed grains of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core import device
from puregraph.core.errors import DataError, NotFiniteError
from puregraph.core.param import Param
from puregraph.data.batches import Batch, sharedBatch
from puregraph.data.nonfinite import remedy
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.collectives.treenorm import treeNorm
from puregraph.distributed.dataparallel.deviceexchange import exchangeFor
from puregraph.distributed.dataparallel.lockstep import LockStep, isSynchronized
from puregraph.distributed.dataparallel.metricexchange import MetricExchange, columnOf
from puregraph.distributed.dataparallel.undividable import refuseUpdate
from puregraph.distributed.sharding.shardedupdate import ShardedUpdate
from puregraph.distributed.sharding.shardedweights import ShardedWeights, weightsFor
from puregraph.distributed.sharding.sharding import Sums, isOnDevice
from puregraph.distributed.worlds.mesh import meshFor
from puregraph.graph import Graph
from puregraph.modules.costs.counted import countedIn

GRAIN_COUNTER_BITS = 40  # the random counters of two grains are 2^40 apart: more numbers than a run ever draws


class SharedStep:
    """Forward and backward of this process's grains, the all-reduce, and the update, which is equal on all ranks.

    Every grain starts from the running statistics before the step; the new ones are the mean of the grains' results,
    weighted by their samples. Each grain has its own range of random counters. Costs, metrics and statistics of all
    grains are all-gathered as one array with a row for each grain, so that all ranks agree if a cost is not finite, or
    if one of them was asked to stop.

    `mesh`              the ranks; those of its data axis, `world`, divide the grains
    `net`, `objective`  the trainer's, or this rank's part of them
    `params`            the trained parameters of `net`, in the order of their gradients
    """

    def __init__(self, trainer: Any):
        self.trainer, self.mesh = trainer, meshFor(trainer.world, trainer.stages, trainer.tensor)
        self.world, self.shard = self.mesh.data.world, trainer.shard
        self.grains = Grains(trainer.grains or self.world.size, self.world)
        self.optimizer: Any = trainer.optimizer
        self.slots = slotsOf(self.optimizer)
        self.sharded: ShardedUpdate | None = None
        self.weights: ShardedWeights | None = None
        self.begin()

    def begin(self) -> None:
        """Prepare the step, as far as possible before the first batch."""
        self.setup(self.trainer.net, self.trainer.objective)

    def setup(self, net: Graph, objective: Any) -> None:
        """Prepare the passes of a network, and the exchange of their results."""
        trainer, self.net, self.objective = self.trainer, net, objective
        once = {id(s): path for path, s in reversed(net.states.items())}
        self.states = {path: s for path, s in net.states.items() if once[id(s)] == path}
        drawing: dict[int, Any] = {id(m): m for m in net.modules().values() if getattr(m, "draws", None)}
        self.counters = [m.states[m.draws] for m in drawing.values()]
        self.params = self.setupGradients()
        self.columns = Columns(size=(), counted=(), cost=(), stop=(), ignored=(2,), reached=(len(self.params),))
        for path, state in self.states.items():
            self.columns.add(f"state {path}", state.shape)
        self.metrics = MetricExchange(trainer.metrics)
        for metric, name, value in self.metrics.sums():
            self.columns.add(columnOf(metric, name), np.shape(value))
        self.lockstep: LockStep | None = None
        if any(isSynchronized(module) for module in net.modules().values()):
            isCompiled = objective.compile and not any(map(isOnDevice, self.params))
            self.lockstep = LockStep(self.world, self.grains, isCompiled, self.weights)
        self.blame = remedy(None)

    def collect(self, group: list[Batch], location: str) -> None:
        """Run forward, backward and the all-reduce on this rank's share of the batches. Safe to retry."""
        self.group = [batch if batch.whole else sharedBatch(batch, self.grains.share(batch.size)) for batch in group]
        self.size = sum(batch.whole or 0 for batch in self.group)
        self.before = {path: s.materialize().copy() for path, s in self.states.items()}
        self.mesh.world.label = location
        if self.weights is not None:
            self.weights.divide()
        self.compute()
        self.norm = self.measured() if self.optimizer.needsNorm and not self.asksAgain else None

    def compute(self) -> None:
        """Run this rank's grains at the weights as they are now, and exchange gradients and rows."""
        self.rows = np.zeros((self.grains.count, len(self.group), self.columns.length))
        self.metrics.renew()
        try:
            self.learnAll()
        finally:
            self.setStates()
        self.gatherRows()
        self.metrics.gather(self.mesh.world)
        whole = float(self.column("counted").sum())
        if whole not in (0.0, self.size):  # each gradient was divided by the size
            self.multiply(self.size / whole)

    @property
    def asksAgain(self) -> bool:
        """True if the optimizer asks for more than one gradient of a step."""
        return getattr(self.optimizer, "asksAgain", False)

    def costAgain(self) -> float:
        """Compute the gradients of the step again, at the weights as they are now. Returns the mean cost.

        All ranks get the same numbers, and so ask as often. States and random numbers are those of the first pass.
        """
        rows, states = self.rows, {path: s.materialize().copy() for path, s in self.states.items()}
        try:
            self.compute()
            self.gradients.share(self.column("reached").any((0, 1)))
            counted = self.column("counted")
            return float((self.column("cost") * counted).sum() / (counted.sum() or 1.0))
        finally:
            self.rows = rows
            for path, state in self.states.items():
                state.materialize()[...] = states[path]
                state.bumpVersion()

    def setupGradients(self) -> list[Any]:
        """Prepare the exchange of gradients. Returns the parameters in the order of their gradients."""
        self.gradients = exchangeFor(self, self.grains, [slot.param for slot in self.slots])
        if self.gradients.isPassing:
            refuseUpdate(self.optimizer, f"shard={self.shard!r}")
            sharding = self.gradients.sharding()
            self.weights = weightsFor(self.trainer, sharding) if self.shard == "parameters" else None
            self.sharded = ShardedUpdate(self, sharding, self.weights)
        return self.gradients.params

    def multiply(self, factor: float) -> None:
        """Multiply the sums of gradients."""
        self.gradients.tree.multiply(factor)

    def measured(self) -> float | None:
        """Return the norm of all gradients; None if each process computes it by itself."""
        if self.sharded is not None:
            return self.sharded.sharding.norm(self.rowSums())
        tree = self.gradients.tree
        return None if isOnDevice(self.params[0]) else treeNorm(self.world, tree.runs, tree.pieces)

    def source(self, param: Param) -> Param:
        """Return the trainer's parameter for one of `params`, which may be a part of it."""
        return param

    def rowSums(self) -> Sums:
        """Return the summed gradients of this rank's shards, by row."""
        return self.gradients.tree.pieces

    def gatherRows(self) -> None:
        """All-gather the rows of all grains."""
        rowSize = self.rows[0].size
        self.world.allGather(self.rows.reshape(-1), [rowSize * bound for bound in self.grains.bounds])

    def gatherWeights(self) -> None:
        """All-gather the weights before the network is read: nothing to do here, every rank has all of them."""

    # This process's grains ------------------------------------------------------------------------------------------

    def learnAll(self) -> None:
        """Sum the gradients of this process's grains, and exchange the sums."""
        if self.lockstep is not None:
            self.learnTogether(self.lockstep)
        self.gradients.add(self.learn if self.lockstep is None else self.learntTogether)

    def learn(self, grain: int) -> list[Any] | None:
        """Return the gradients of one grain, over all batches of the step; None if they were handed over in buckets."""
        parts = {n: part for n, batch in enumerate(self.group) if (part := self.partOf(batch, grain)).size}
        first, last = min(parts, default=0), max(parts, default=0)
        for number, part in parts.items():
            with self.gradients.leaving(grain, number == first, number == last):
                self.learnPart(part, grain, number, number == first)
        self.column("stop")[grain] = self.trainer.interrupt.asked
        return None if parts and self.gradients.isPassing else [param.grad if parts else None for param in self.params]

    def partOf(self, batch: Batch, grain: int) -> Batch:
        """The samples of a grain."""
        rows = self.grains.part(grain, batch.whole or 0)
        data, target = [x[rows] for x in batch.data], [x[rows] for x in batch.target]
        return batch._replace(data=data, target=target, size=rows.stop - rows.start, whole=None)

    def learnTogether(self, lockstep: LockStep) -> None:
        """Compute the gradients of all grains in lockstep, by grain and parameter."""
        objective = self.objective
        self.sums: dict[tuple[int, int], Any] = {}
        for number, batch in enumerate(self.group):
            parts = {grain: part for grain in self.grains.own if (part := self.partOf(batch, grain)).size}
            inputs = {grain: list(map(device.toDevice, (*part.data, *part.target))) for grain, part in parts.items()}
            states = {}
            for grain in parts:
                self.setStates(self.apartOf(grain, number))
                states[grain] = {id(state): state.materialize().copy() for state in self.states.values()}
            shares = {grain: self.shareOf(part) for grain, part in parts.items()}
            smallest = likeSmallest(batch, self.grains.count)
            for grain, (outputs, grads) in lockstep.run(objective.graph, smallest, inputs, states, shares).items():
                for param, new in grads:
                    old = self.sums.get((grain, id(param)))
                    self.sums[grain, id(param)] = old if new is None else new if old is None else old + new
                for state in self.states.values():
                    state.materialize()[...] = states[grain][id(state)]
                reached = [self.sums.get((grain, id(param))) is not None for param in self.params]
                cost, shown = objective.parted(outputs)
                self.addRow(parts[grain], grain, number, cost, shown, reached)

    def learntTogether(self, grain: int) -> list[Any]:
        """Return the gradients of one grain that was run in lockstep with the others."""
        self.column("stop")[grain] = self.trainer.interrupt.asked
        return [self.sums.pop((grain, id(param)), None) for param in self.params]

    def apartOf(self, grain: int, number: int) -> int:
        """Return the offset of random counters for a grain of one batch."""
        return number * self.grains.count + grain << GRAIN_COUNTER_BITS

    def learnPart(self, part: Batch, grain: int, number: int, isFirst: bool) -> None:
        """Run a grain of one batch forward and backward, which sets parameter gradients and the grain's row."""
        trainer, objective = self.trainer, self.objective
        self.setStates(self.apartOf(grain, number))
        slots = {metric.which for metric in trainer.metrics}
        isNew = isFirst or self.gradients.isPassing
        program = objective.learner(part, slots, trainer.optimizer, False, isNew, True)
        if program is None:
            cost, outputs = objective.run(part, False)
            objective.backward(self.shareOf(part), isNew)
        else:
            cost, *outputs = program.run(*part.data, *part.target, scale=self.shareOf(part))
        self.addRow(part, grain, number, cost, outputs, self.gradients.collect(isFirst))

    def shareOf(self, part: Batch) -> float:
        """Return the weight of a part in the mean over the step, up to a factor common to all parts."""
        return self.countedIn(part) / self.size

    def countedIn(self, part: Batch) -> float:
        """Return the number of values in the mean cost of a part."""
        return float(countedIn(self.trainer.cost, part.target[0] if part.target else None, part.size))

    def addRow(self, part: Batch, grain: int, number: int, cost: Any, outputs: list[Any], reached: list[bool]) -> None:
        """Fill the row of a grain of one batch, with the states that it has changed."""
        for counter in self.counters:
            counter.materialize()[...] -= self.apartOf(grain, number)
        row = {
            **costRow(self, part, cost, outputs, grain, number),
            **stateRow(self.states, self.before),
            "reached": reached,
        }
        self.fillRow(row, grain, number)

    def fillRow(self, row: dict[str, Any], grain: int, number: int) -> None:
        """Write named values to the row of a grain of one batch."""
        for name, value in row.items():
            self.column(name)[grain, number] = np.asarray(value, np.float64)

    def setStates(self, apart: int = 0) -> None:
        """Reset all states to those before the step, and offset the random counters by `apart`."""
        for path, state in self.states.items():
            state.materialize()[...] = self.before[path]
            state.bumpVersion()
        for counter in self.counters:
            counter.materialize()[...] += apart

    # All grains -----------------------------------------------------------------------------------------------------

    def column(self, name: str) -> np.ndarray:
        """Return a named column of the rows, by grain and batch."""
        span, shape = self.columns.spans[name]
        return self.rows[..., span].reshape(*self.rows.shape[:2], *shape)

    def finish(self, locations: list[str]) -> None:
        """Add costs and metrics, and set states, from the rows of all grains; then update.

        Raises    NotFiniteError, on all ranks, if the cost of any grain is not finite
        """
        trainer = self.trainer
        trainer.interrupt.agreed = bool(self.column("stop").any())
        sizes, costs = self.column("size"), self.column("cost")
        for grain, number in np.argwhere(~np.isfinite(costs)):
            where = f"{locations[number]}, grain {grain + 1} of {self.grains.count}"
            error = NotFiniteError(f"{where}: the cost is {costs[grain, number]}; {self.blame}")
            error.namesLocation, error.step = True, trainer.runState.step
            raise error
        nonempty = [(int(n), b, g) for b, g in np.ndindex(*sizes.T.shape) if (n := sizes[g, b])]
        counted = self.column("counted")
        trainer.meters.addShares([(costs[g, b], counted[g, b]) for _, b, g in nonempty], self.size)
        if trainer.runState.ignored is not None:
            trainer.runState.ignored += self.column("ignored").sum((0, 1)).astype(int)
        self.metrics.merge(self.column, nonempty)
        for path, state in self.states.items():
            self.setState(path, state, nonempty)
        self.update()

    def setState(self, path: str, state: Any, taken: list[tuple[int, int, int]]) -> None:
        """Set a state after the step: floats to the mean over all grains, integers by the change that all grains made.

        Raises    DataError if grains change an integer by different amounts
        """
        column, array = self.column(f"state {path}"), state.materialize()
        if state.dtype.kind == "f":
            mean = np.zeros(state.shape)
            for n, b, g in taken:
                mean += column[g, b] * (n / self.size)
            array[...] = device.toDevice(mean.astype(state.dtype)) if device.isDeviceArray(array) else mean
        else:
            _, b, g = taken[0]
            if any((column[at, number] != column[g, b]).any() for _, number, at in taken):
                raise DataError(f"state '{path}': grains of one batch change it in different ways, which have no mean")
            change = column[g, b].astype(np.int64).astype(state.dtype)
            array[...] += device.toDevice(change) if device.isDeviceArray(array) else change
        state.bumpVersion()

    def update(self) -> None:
        """Update with the sum of all grains' gradients, or with this rank's shard of it."""
        optimizer = self.optimizer
        reached: Any = self.column("reached").any((0, 1))
        optimizer.measured = self.norm
        try:
            if self.sharded is not None:
                optimizer.zeroGradParams()  # gradients of only this process's grains
                params = [self.source(param) for param, isReached in zip(self.params, reached) if isReached]
                self.sharded.run(self.rowSums(), set(map(id, params)))
            else:
                self.gradients.share(reached)
                if self.asksAgain:
                    optimizer.update(self.costAgain)
                else:
                    self.objective.update(optimizer)
        finally:
            optimizer.measured = None


def likeSmallest(batch: Batch, count: int) -> list[Any]:
    """Return arrays like the smallest grain with samples of a batch, for `count` grains."""
    least = max((batch.whole or 0) // count, 1)
    return [np.empty((least, *x.shape[1:]), x.dtype) for x in (*batch.data, *batch.target)]


def slotsOf(optimizer: Any) -> list[Any]:
    """Return the slots whose gradients are exchanged: trained parameters, and frozen ones that may have state."""
    return [slot for slot in optimizer.slots if slot.param.trainable or slot.step]


def costRow(step: SharedStep, part: Batch, cost: Any, outputs: list[Any], grain: int, number: int) -> dict[str, Any]:
    """Return the sums of cost and metrics of a grain."""
    trainer = step.trainer
    row: dict[str, Any] = {"size": part.size, "counted": step.countedIn(part), "cost": float(device.toHost(cost))}
    if trainer.runState.ignored is not None and part.target:
        row["ignored"] = int((part.target[0] == trainer.cost.ignoreIndex).sum()), part.target[0].size
    row |= step.metrics.count(part, outputs, grain, number)
    if not np.isfinite(row["cost"]):
        step.blame = remedy(part)
    return row


def stateRow(states: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return the states after a grain: floats as values, whole numbers as the change since `before`."""
    row = {}
    for path, state in states.items():
        after = device.toHost(state.materialize())
        isFloat = state.dtype.kind == "f"
        row[f"state {path}"] = (
            after if isFloat else after.astype(np.int64) - device.toHost(before[path]).astype(np.int64)
        )
    return row


class Columns:
    """The position of each named column in a row, and its shape."""

    def __init__(self, **shapes: tuple[int, ...]):
        self.spans: dict[str, tuple[slice, tuple[int, ...]]] = {}
        self.length = 0
        for name, shape in shapes.items():
            self.add(name, shape)

    def add(self, name: str, shape: tuple[int, ...]) -> None:
        """Append a named column of this shape."""
        begin, self.length = self.length, self.length + int(np.prod(shape))
        self.spans[name] = slice(begin, self.length), shape
