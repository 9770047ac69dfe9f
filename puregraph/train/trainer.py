"""Trainer: takes a network, a cost and an optimizer through data, epoch after epoch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import FileSource, Flag, Size, Text, takes
from puregraph.core.base.attributes import Settable
from puregraph.core.base.dtype import isFloating
from puregraph.core.base.keywords import ChecksKeywords
from puregraph.core.errors import ArgumentError, DataError, NotFiniteError
from puregraph.core.late import Late
from puregraph.data.batches import checkedSize
from puregraph.distributed import world
from puregraph.distributed.sharding.shardedstate import isSharded, saveSharded
from puregraph.distributed.worlds.mesh import checkStages, checkTensor
from puregraph.graph.module import Module
from puregraph.ops.native.threads.blas import oneThread, openBlas
from puregraph.optimizers.multioptimizer import optimizerFrom
from puregraph.serialize.checkpoint import save
from puregraph.serialize.opening import opened
from puregraph.serialize.savedoptimizer import checkOptimizer
from puregraph.serialize.staging import assign, stage
from puregraph.train import state
from puregraph.train.callbacks.callback import callbacksFrom
from puregraph.train.callbacks.progress import progressFrom
from puregraph.train.costsum import costFrom, partLosses
from puregraph.train.epochloop import EpochLoop
from puregraph.train.figures import Figures
from puregraph.train.history import History
from puregraph.train.interrupt import Interrupt, endQuietly
from puregraph.train.meters import EVERY, Meters
from puregraph.train.metrics.byoutput import metricsFrom
from puregraph.train.modes import inMode, leaveIn
from puregraph.train.objective import Objective, checkKind
from puregraph.train.prechecks import begin, checkRepeatable, checkShard, sourcesFrom
from puregraph.train.runstate import RunState
from puregraph.train.validator import Validator

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.graph import Graph
    from puregraph.optimizers.optimizer import Optimizer

FAST_RUN_BATCHES = 3  # batches of a fast run
SPOILED = 1e6  # size of weights above which a diverged network does not recover
ELSEWHERE = {
    **dict.fromkeys(("lr", "learnRate", "learning_rate", "rate"), "set trainer.optimizer.learnRate"),
    **dict.fromkeys(("epochs", "validation", "max_epochs"), "give it to train(...)"),
    **dict.fromkeys(("model", "network", "module"), "set net, or make another Trainer"),
    **dict.fromkeys(("loss_fn", "criterion"), "the cost is an argument of Trainer(...): make another one"),
}


class Trainer(ChecksKeywords, Figures, Settable):
    """Trains `net` to minimize `cost`:

        trainer = Trainer(net, CrossEntropy(), Adam(), metrics=[Accuracy()])
        trainer.train(data, target)                                    # one pass
        trainer.train(data, target, epochs=10, validation=(x, y))      # ten, each followed by a validation

    `net`         a Graph or another Module; with several outputs, the cost takes the first or all
    `cost`        a Module of predictions and targets that returns the batch mean; a dict by outputs: `CostSum`
    `optimizer`   updates the module that it was set up on, by default the network; a dict: see `MultiOptimizer`
    `batchsize`   samples of a batch of arrays; the last batch of an epoch may be smaller
    `dropLast`    skips that smaller batch; with `shuffle` it has other samples in every epoch
    `metrics`     metrics besides the cost, a list, or a dict by outputs; the validation uses copies,
                  `trainer.validator.metrics`
    `callbacks`   Callbacks, or functions that take the trainer and are called after every step
    `seed`        seed of the sample order; with `initial.seed` before the network is made, a run on the CPU repeats
                  bit for bit
    `accumulate`  batches per step (gradient accumulation). Gradients are weighted by batch sizes, so a step equals
                  that of one large batch (without BatchNorm)
    `shuffle`     shuffles the samples of arrays in every epoch
    `compile`     compiles steps, see `Graph.compile`
    `prefetch`    steps to prepare ahead in a thread, unless batches are tiny; 0: none
    `fastRun`     a trial run: three batches of data and of validation, one epoch, and no files of Checkpoint and
                  CsvLog
    `progress`    "bar", "lines", "none", or "auto": a bar in a terminal, else lines
    `grains`      the number of fixed microbatches of a batch, which processes share. Results then have the same bits on
                  any number of processes. None: a microbatch per process, which is as fast or faster
    `shard`       shards the optimizer's "state" (ZeRO-1), "gradients" too (ZeRO-2), or "parameters" too (ZeRO-3)
    `stages`      the number of pipeline stages that the network is cut into; grains are the microbatches
    `tensor`      the number of tensor-parallel parts of Linear, Embedder and attention heads
    `repeatable`  "threads": eager passes and float64 give the same bits for any number of threads, as compiled steps in
                  float32 always do; numpy's BLAS then has one thread
    `readEvery`   on a GPU, costs and metrics are read once in this many batches, with as much delay, so that the host
                  does not wait for a step

    `epoch` counts finished epochs, `step` all steps, `position` the steps of the current epoch. `history` has a row for
    each epoch; `loss` is the cost of the last batch, `rate` the learning rate.

    Source    PuzzleLib's Trainer
    Raises    DataError for an argument that cannot be used
    """

    elsewhere = ELSEWHERE

    _repr_html_ = Late("puregraph.draw.notebook", "trainerHtml")
    world = property(lambda self: world(), doc="The processes that train together, of which this is `world.rank`.")
    writes = property(lambda self: not (self.fastRun or self.world.rank), doc="Whether callbacks write their files.")

    @takes(seed=Size | None, shuffle=Flag, compile=Flag, fastRun=Flag, dropLast=Flag)
    def __init__(
        self,
        net: Module,
        cost: Module,
        optimizer: Optimizer,
        batchsize: int = 128,
        metrics: Iterable[object] = (),
        callbacks: Iterable[object] = (),
        seed: int = 0,
        accumulate: int = 1,
        shuffle: bool = True,
        prefetch: int = 2,
        progress: Any = "auto",
        compile: bool = True,
        readEvery: int = EVERY,
        fastRun: bool = False,
        grains: int | None = None,
        shard: str | None = None,
        stages: int | None = None,
        dropLast: bool = False,
        tensor: int | None = None,
        repeatable: str | None = None,
    ):
        self.batchsize, self.accumulate = checkedSize(batchsize), checkedSize(accumulate, "accumulate")
        self.shuffle, self.dropLast, self.prefetch = shuffle, dropLast, checkedSize(prefetch, "prefetch", 0)
        self.fastRun, self.grains = fastRun, None if grains is None else checkedSize(grains, "grains")
        self.shard, self.stages = checkShard(shard), checkStages(stages, grains)
        self.tensor, self.repeatable = checkTensor(tensor, shard, stages), checkRepeatable(repeatable)
        self.shared: Any = None  # the SharedStep, while it trains on several processes
        self.objective = Objective(net, costFrom(cost), compile)
        self.net, self.cost = self.objective.net, self.objective.cost
        self.optimizer = optimizerFrom(optimizer)
        checkKind("optimizer", self.optimizer, ("setupOn", "update", "rate"), "an Optimizer, such as Adam()")
        every = checkedSize(readEvery, "readEvery")
        self.meters = Meters(metricsFrom(metrics, self.net, self.cost), every, cost=self.cost)
        self.validator = Validator(self.net, self.cost, copy.deepcopy(self.meters.metrics), batchsize, compile)
        self.validator.meters.every, self.validator.isLookedAt = readEvery, True  # the trainer checks the first batch
        self.meters.include(partLosses(self.net, self.cost))
        self.splitSeed, self.rng = seed or 0, np.random.default_rng(seed)
        self.wantedProgress, self.progress = progress, progressFrom("none" if self.world.rank else progress)
        self.objective.say = self.progress.notice
        self.callbacks = callbacksFrom([*callbacksFrom(callbacks), self.progress])
        self.history, self.interrupt = History(), Interrupt()
        self.runState, self.inside = RunState(), False
        self.restart()

    # Use --------------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **named: object) -> Any:
        """Raises    ArgumentError naming the method that was meant"""
        raise ArgumentError("Trainer: not a function: train(data, target) trains, Calculator(net) predicts")

    @takes()
    def train(
        self,
        data: Any,
        target: AnyArray | None = None,
        epochs: int = 1,
        validation: Any = None,
        sampleWeight: Any = None,
    ) -> History:
        """Train for `epochs` passes over the data, and return the history of all epochs so far.

        `data` and `target` are arrays, or lists of arrays for several inputs or targets; tables and tensors become
        arrays, and files are read batch by batch. Floating data and labels are converted to the dtypes that network and
        cost compute in. Data alone is an iterable of (data, target) batches, or a function that returns one for each
        epoch. `validation` is (data, target), an iterable of batches, or a fraction of the arrays to hold out: with
        labels the same fraction of each class, and with one `seed` the same samples in every call; a resumed run keeps
        its seed.

        `sampleWeight` has a number of at least 0 for each sample, by which its cost is multiplied; the mean is still
        over all samples. In batches, and in a `validation`, it comes third: (data, target, sampleWeight).

        After `resume` or Ctrl-C, the interrupted run continues; `epochs` is then the number for the complete run, as in
        the first call.

        The network is in evalMode afterwards, so that `net(x)` returns the same as a Calculator. Call `net.trainMode()`
        before a training loop of your own; `train` sets the mode itself.

        Raises    DataError if data and target do not fit each other, ShapeError if they do not fit the network;
                  PuregraphError, naming epoch and batch, if the cost is not finite, which abandons the current epoch
        """
        source, checks = sourcesFrom(self, data, target, validation, sampleWeight)
        if self.fastRun:
            source, checks, epochs = (
                source.few(FAST_RUN_BATCHES),
                None if checks is None else checks.few(FAST_RUN_BATCHES),
                1,
            )
            self.progress.say(f"fast run: {FAST_RUN_BATCHES} batches of everything, one epoch, no files")
        with alone(self), Interrupt(self.world.size > 1) as self.interrupt, inMode(True, self.net, self.cost):
            begin(self, source, checks, epochs)
            loop = EpochLoop(self, source, checks)
            leaveIn(False, self.net)
            try:
                loop.call("onTrainBegin")
                while self.runState.epoch < self.runState.until and not self.runState.stopped:
                    loop.runEpoch()
                if self.runState.stopsHere and (self.runState.begun or self.runState.epoch < self.runState.until):
                    loop.interrupted()
                    return self.history
                self.runState.running = False
                if self.runState.stopped and self.runState.reason:
                    self.progress.say(f"stopped after epoch {self.runState.epoch}: {self.runState.reason}")
            except KeyboardInterrupt as error:
                line = loop.interrupted()
                endQuietly(error, "" if self.world.rank or self.progress.isShown else line)
                raise
            except BaseException as error:
                self.runState.step = getattr(error, "step", self.runState.step)  # a GPU reports errors some steps later
                with suppress(Exception):  # errors of later steps are consequences
                    self.sync()
                if isinstance(error, NotFiniteError) and self.shared is None:
                    error.args = (f"{error}{spoiledIn(self.net)}",)
                self.restart()
                raise
            finally:
                self.shared = None
                self.objective.reset()
                loop.end()
        return self.history

    def sync(self) -> None:
        """Wait for the optimizer's updates on a GPU."""
        sync = getattr(self.optimizer, "sync", None)
        if sync is not None:
            sync()

    @takes(reason=Text, now=Flag)
    def stop(self, reason: str = "", now: bool = False) -> None:
        """End the run after this epoch; a reason is shown.

        `now`  end after this step, as Ctrl-C does: a Checkpoint saves, and the next `train` continues from there
        """
        self.runState.stopped, self.runState.reason, self.runState.stopsNow = True, reason, now

    def restart(self) -> None:
        """Abandon the current epoch and run; the next `train` begins both anew, with the current weights."""
        self.runState.running = False
        self.meters.reset()
        self.runState.closeEpoch()

    @takes(path=FileSource | None)
    def save(self, path: Any) -> Any:
        """Save network, optimizer and progress, so that `resume` continues from there; path `None` returns bytes.

        With several processes, the first one writes the file; with `shard`, all processes must call this.

        Raises    CheckpointError if it cannot be written, or a module or callback holds a value that cannot be saved
        """
        if self.shared is not None:
            self.shared.gatherWeights()
        optimizer, extra = self.setupOptimizer(), {"trainer": state.stateFrom(self)}
        if isSharded(optimizer):
            return saveSharded(self.world, path, self.net, optimizer, extra)
        return None if self.world.rank and path is not None else save(path, self.net, optimizer, extra)

    @takes(path=FileSource)
    def resume(self, path: Any) -> Trainer:
        """Restore a state that `save` wrote: the next `train` continues the run, bit for bit as without interruption.

        Make network, optimizer, cost, metrics and callbacks as before; their values come from the file. So do optimizer
        settings that were changed during training, such as learnRate; a setting that is passed differently here is
        kept, and a line reports it. After an interrupted run, `epochs` of the next `train` counts the complete run;
        after a complete run, it counts additional epochs.

        It is all or nothing: after any exception, including Ctrl-C, the trainer is unchanged.

        Raises    CheckpointError if the file cannot be loaded into them; DataError if it is of another kind of training
        """
        refusal = None
        self.world.barrier()  # the first process may be writing it
        with opened(path) as source:
            extra = source.extra()
            saved: Any = extra.get("trainer") if isinstance(extra, dict) else None
            try:
                state.check(self, saved)
            except DataError as error:
                refusal = error
            else:
                optimizer = self.setupOptimizer()
                checkOptimizer(source.optimizer, optimizer, self.net)
                staged = stage(source, self.net, optimizer, True)
                lines = [*staged.kept, *state.otherCost(self, saved), *state.otherFreezing(self, saved)]
                with state.restoring(self, saved) as steps:
                    assign([*staged.steps, *steps])
                for line in lines:
                    self.progress.say(line)
        if refusal is not None:
            label = "the given bytes" if isinstance(path, (bytes, bytearray, memoryview)) else f"'{path}'"
            raise DataError(f"cannot resume from {label}: {refusal}")
        return self

    def __repr__(self) -> str:
        names = f"{self.net.title()}, {type(self.cost).__name__}, {type(self.optimizer).__name__}"
        return f"<Trainer of {names}: epoch {self.runState.epoch}, step {self.runState.step}>"

    def setupOptimizer(self) -> Optimizer:
        """Return the optimizer, set up on its part of the network, or else on all of it."""
        return getattr(self.optimizer, "setupFor", self.optimizer.setupOn)(self.net)


def spoiledIn(net: Graph) -> str:
    """Describe a parameter that has become too large to recover at any learning rate; empty if there is none."""
    for path, param in net.params.items():
        if isFloating(param.dtype) and param.size:
            largest = float(device.toHost(np.abs(param.data).max()))
            if not largest < SPOILED:
                return f"; {path} has reached {largest:.2g} by now: resume from a checkpoint, or make the network anew"
    return ""


@contextmanager
def alone(trainer: Trainer) -> Iterator[None]:
    """Permit one `train` at a time; use one BLAS thread, if results must not depend on the number of threads."""
    if trainer.inside:
        raise DataError("train: this trainer is training already; a callback or another thread called it again")
    trainer.inside = True
    try:
        with oneThread(openBlas() if trainer.repeatable else None):
            yield
    finally:
        trainer.inside = False
