"""EpochLoop: the epochs, steps and batches of one call of `Trainer.train`."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from puregraph.compile.trace.updaterule import isPlain
from puregraph.core.device import toHost
from puregraph.core.errors import NotFiniteError, PuregraphError, addLocation
from puregraph.data.batches import Arrays, Batch, Stream, groups
from puregraph.data.prefetch import ahead
from puregraph.data.trainedsamples import remember
from puregraph.distributed.dataparallel.agreement import together
from puregraph.distributed.dataparallel.lockstep import isSynchronized
from puregraph.distributed.dataparallel.sharedstep import SharedStep, slotsOf
from puregraph.distributed.pipeline.lockedpipelinestep import LockedPipelineStep
from puregraph.distributed.pipeline.pipelinestep import PipelineStep
from puregraph.distributed.tensor.tensorstep import TensorStep
from puregraph.modules.costs.counted import countedIn
from puregraph.train.callbacks.callback import Callback, callbacksFrom
from puregraph.train.callbacks.checkpointing import Checkpoint
from puregraph.train.callbacks.progress import Progress, progressFrom

if TYPE_CHECKING:
    from puregraph.train.trainer import Trainer

UNSAVED = "not saved: train(...) goes on from here; with a Checkpoint among the callbacks, another process could too"


class EpochLoop:
    """Runs a trainer through its data; errors name the batch in which they were raised."""

    def __init__(self, trainer: Trainer, source: Arrays | Stream, checks: Arrays | Stream | None):
        self.trainer, self.run, self.source, self.checks = trainer, trainer.runState, source, checks
        count = trainer.grains or trainer.world.size
        self.shared = self.dividedStep() if count > 1 or trainer.stages or trainer.tensor else None
        trainer.callbacks = callbacksFrom(trainer.callbacks)  # the user may have appended callbacks
        self.isWatched = any(map(looksAtSteps, trainer.callbacks))
        self.isFirst = not trainer.world.rank
        self.asks = not isPlain(trainer.optimizer)  # custom updates are not guarded: read each cost before the update

    def runEpoch(self) -> None:
        """Run the remaining steps of an epoch, its validation, and append its row; after an immediate stop, only the
        steps."""
        trainer, run = self.trainer, self.run
        run.clock = time.perf_counter()
        if not run.begun:
            with trainer.interrupt.whole():
                trainer.meters.reset()
                run.begun = True
                run.order = self.source.order(trainer.rng) if trainer.shuffle else None
                run.samples = self.source.samples
                self.call("onEpochBegin")
        with self.feed() as steps:
            for group in together(trainer.world, self.source, steps):
                with trainer.interrupt.whole():
                    self.runStep(group)
                    self.gatherWeights(self.isWatched)
                    self.call("onBatchEnd")
                if run.stopsHere:
                    return
        self.source.checkUsed(run.position)
        try:
            trainer.sync()
        except NotFiniteError as error:
            self.locate(error, "", 0)
            raise
        self.reportIgnored()
        self.gatherWeights()
        if self.shared is not None and trainer.world.survives:
            trainer.world.survive(trainer.world.barrier)  # ensures that a first rank exists, which writes files
            self.sharedStep(self.shared)
        row = {"epoch": run.epoch + 1, "step": run.step, **trainer.meters.row()}
        if self.checks is not None:
            trainer.objective.reset()
            with trainer.interrupt.whole():
                self.call("onValidationBegin")
            if run.stopsHere:
                return
            with averagedBy(trainer.optimizer):
                figures = trainer.validator.run(self.checks)
            row |= {f"val {name}": value for name, value in figures.items()}
        with trainer.interrupt.whole():
            trainer.history.append({**row, "rate": run.lastRate, "seconds": run.passed()})
            run.epoch += 1
            run.closeEpoch()
            self.call("onEpochEnd")

    def feed(self) -> AbstractContextManager:
        """Return a context with the groups of prepared batches of the epoch's remaining steps."""
        trainer, run = self.trainer, self.run
        start = run.position * trainer.accumulate
        isWhole = trainer.world.survives  # the remaining processes take over the samples of a lost one
        share = None if self.shared is None or isWhole else self.shared.grains.share
        batches = self.source.batches(run.order, start, run.epoch, share)
        depth = 0 if self.source.light else trainer.prefetch
        return ahead(groups(trainer.objective.ready(batches, depth > 0), trainer.accumulate), depth)

    def runStep(self, group: list[Batch]) -> None:
        """Run forward, backward, and the update; `torn` is set while the step is incomplete."""
        trainer, run = self.trainer, self.run
        trainer.interrupt.torn = True
        trainer.optimizer.zeroGradParams()
        run.lastRate = trainer.rate
        if getattr(trainer.cost, "schedules", ()):
            trainer.cost.setStep(run.step)
        if self.shared is not None:
            self.learnShared(self.shared, group)
        else:
            self.learn(group)
        run.position += 1
        run.step += 1
        trainer.interrupt.torn = False

    def learnShared(self, known: SharedStep, group: list[Batch]) -> None:
        """Run a step whose grains are on several processes, or run one by one."""
        world, locations = self.trainer.world, [self.locationOf(number) for number in range(len(group))]

        def attempt() -> SharedStep:
            shared = self.sharedStep(known)
            shared.collect(group, locations[0])
            if shared.sharded is not None:  # the update exchanges weights as well
                shared.finish(locations)
            return shared

        shared = world.survive(attempt)
        if shared.sharded is None:
            shared.finish(locations)

    def sharedStep(self, shared: SharedStep) -> SharedStep:
        """Return the current SharedStep, or a new one if processes were lost, or parameters frozen or unfrozen.

        Raises    PuregraphError if a lost process held a part of the optimizer's state
        """
        trainer = self.trainer
        size = trainer.world.size
        isWhole = trainer.stages is None and trainer.tensor is None
        isLess = isWhole and len(shared.grains.bounds) != size + 1
        if isLess and shared.sharded is not None:
            raise PuregraphError(
                f"shard={trainer.shard!r}: a lost process held a part of the optimizer's state that no other has; "
                "resume from the last checkpoint, with any number of processes"
            )
        if isLess and trainer.world.rank == 0 and not self.isFirst:
            self.isFirst = True
            self.showProgress()
        if isLess or slotsOf(trainer.optimizer) != shared.slots:
            trainer.optimizer.zeroGradParams()
            shared.gatherWeights()
            self.shared = shared = self.dividedStep()
        return shared

    def dividedStep(self) -> SharedStep:
        """Make the SharedStep for the trainer's data, pipeline or tensor parallelism."""
        trainer = self.trainer
        kind: Any = SharedStep if trainer.tensor is None else TensorStep
        if trainer.stages is not None:
            isLocked = any(map(isSynchronized, trainer.net.modules().values()))
            kind = LockedPipelineStep if isLocked else PipelineStep
        trainer.shared = kind(trainer)
        return trainer.shared

    def gatherWeights(self, isWanted: bool = True) -> None:
        """All-gather the weights, if the network will be read."""
        if self.shared is not None and isWanted:
            self.shared.gatherWeights()

    def showProgress(self) -> None:
        """Show progress, in place of another process that is lost."""
        trainer = self.trainer
        before, trainer.progress = trainer.progress, progressFrom(trainer.wantedProgress)
        trainer.callbacks = [trainer.progress if callback is before else callback for callback in trainer.callbacks]
        trainer.objective.say = trainer.progress.notice
        trainer.progress.onTrainBegin(trainer)

    def learn(self, group: list[Batch]) -> None:
        """Run a step on a single process."""
        trainer, run = self.trainer, self.run
        isDone, counts, asksAgain = False, [1.0], getattr(trainer.optimizer, "asksAgain", False)
        if len(group) > 1:  # each cost is the mean over its batch
            targets = [batch.target[0] if batch.target else None for batch in group]
            counts = [float(countedIn(trainer.cost, t, batch.size)) for t, batch in zip(targets, group)]
        for number, batch in enumerate(group):
            location, share = self.locationOf(number), counts[number] / (sum(counts) or 1.0)
            try:
                isDone = self.takeBatch(batch, location, share, len(group) == 1 and not asksAgain, number == 0)
            except Exception as error:
                self.locate(error, location, number)
                raise
        if not isDone:
            try:
                if asksAgain:
                    trainer.optimizer.update(lambda: self.costAgain(group, counts))
                else:
                    trainer.objective.update(trainer.optimizer)
            except Exception as error:
                self.locate(error, self.locationOf(len(group) - 1), len(group))
                raise
        if run.ignored is not None:
            for label in [batch.target[0] for batch in group if batch.target]:
                run.ignored += int((label == trainer.cost.ignoreIndex).sum()), label.size

    def costAgain(self, group: list[Batch], counts: list[float]) -> float:
        """Run forward and backward again for the batches of a step, for the optimizer. Returns the cost."""
        total, objective = 0.0, self.trainer.objective
        for number, batch in enumerate(group):
            share = counts[number] / (sum(counts) or 1.0)
            program = objective.learner(batch, set(), self.trainer.optimizer, False, number == 0)
            if program is None:
                cost, _ = objective.run(batch, False)
                objective.backward(share, number == 0)
            else:
                cost = program.run(*batch.data, *batch.target, scale=share)[0]
            total += share * float(toHost(cost))
        return total

    def reportIgnored(self) -> None:
        """Report once the number of labels in the first epoch that the cost ignores."""
        trainer, run = self.trainer, self.run
        if run.ignored is not None:
            left, count = run.ignored.tolist()
            run.ignored = None
            if left:
                label, cost = trainer.cost.ignoreIndex, type(trainer.cost).__name__
                trainer.progress.say(f"{100 * left / count:.3g} % of the labels are {label}, which {cost} leaves out")

    def takeBatch(self, batch: Batch, location: str, share: float, isLone: bool, isFirst: bool) -> bool:
        """Run forward and backward, and the update if the step has one batch. Returns True if it was updated."""
        trainer, run = self.trainer, self.run
        slots = {metric.which for metric in trainer.meters.metrics}
        if not run.isLookedAt:
            run.isLookedAt = True
            trainer.objective.warn(batch, trainer.meters.metrics)
        program = trainer.objective.learner(batch, slots, trainer.optimizer, isLone, isFirst)
        if program is None:
            cost, outputs = trainer.objective.run(batch, False)
            trainer.meters.add(cost, outputs, batch, location, run.step)
            trainer.meters.flush()  # raises an error before a cost that is not finite changes the weights
            trainer.objective.backward(share, isFirst)
            return False
        cost, *outputs = program.run(*batch.data, *batch.target, scale=share, copy=not program.isAhead)
        trainer.meters.add(cost, outputs, batch, location, run.step)
        if self.asks:
            trainer.meters.flush()
        return isLone

    def locationOf(self, number: int, back: int = 0) -> str:
        """Return the location of a batch of this step, or of the step `back` steps before."""
        trainer, run = self.trainer, self.run
        return f"epoch {run.epoch + 1}, batch {(run.position - back) * trainer.accumulate + number + 1}"

    def locate(self, error: Exception, location: str, runs: int) -> None:
        """Add the location to an error; a GPU may report an error some steps late.

        `runs` is the number of runs that this step has started before.
        """
        trainer, run = self.trainer, self.run
        if isinstance(error, NotFiniteError) and error.behind is not None:
            trainer.meters.flush()  # raises an error that names the batch, if its cost is not finite
            runsPerStep = 1 if trainer.accumulate == 1 else trainer.accumulate + 1
            back = -(-(error.behind + 1 - runs) // runsPerStep)
            location, error.step = self.locationOf(trainer.accumulate - 1, back), run.step - back
        if location not in str(error):
            addLocation(error, f"in {location}")

    def call(self, event: str) -> None:
        """Call a method of every callback."""
        for callback in self.trainer.callbacks:
            getattr(callback, event)(self.trainer)

    def end(self) -> None:
        """Call `onTrainEnd` of every callback, even if one of them fails: a bar must give the terminal back."""
        with ExitStack() as calls:
            for callback in reversed(self.trainer.callbacks):
                calls.callback(callback.onTrainEnd, self.trainer)
        if self.trainer.world.size == 1:  # with several processes, others may hold a part of the weights
            remember(self.trainer.net, self.source, self.checks)

    def interrupted(self) -> str:
        """After Ctrl-C or `stop(now=True)`: call `onInterrupt`, which saves a Checkpoint; print, return a message."""
        trainer, run = self.trainer, self.run
        why = f": {run.reason}" if run.stopped and run.reason else ""
        wasAsked = run.stopsHere
        run.stopped = run.stopsNow = False
        count = f" of {run.count}" if run.count else ""
        line = f"stopped in epoch {run.epoch + 1}, after step {run.position}{count}"
        if trainer.interrupt.torn:
            line += ", in the middle of the next one: go on from a file that was saved before"
            trainer.restart()
        else:
            run.elapsed, run.clock = run.passed(), time.perf_counter()
            self.gatherWeights()
            trainer.world.isEnding = trainer.interrupt.agreed
            saved = [path for callback in trainer.callbacks if (path := callback.onInterrupt(trainer))]
            known = UNSAVED * (not wasAsked)
            if saved:
                known = f"saved in {saved[0]}: trainer.resume({str(saved[0])!r}) goes on from there"
            line += f"{why}{known and (why and '; ' or ', ')}{known}"
        trainer.progress.say(line)
        return line


def averagedBy(optimizer: Any) -> AbstractContextManager[None]:
    """Return a context in which the network has the optimizer's averages, if there are any."""
    averaged = getattr(optimizer, "averaged", nullcontext)
    return averaged()


def looksAtSteps(callback: Any) -> bool:
    """True for a callback that may read the network after a step: any but Progress and Checkpoint."""
    isKnown = isinstance(callback, (Progress, Checkpoint))
    return not isKnown and type(callback).onBatchEnd is not Callback.onBatchEnd
