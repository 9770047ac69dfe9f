"""Prechecks: begin a run of a Trainer, with the checks before its first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.compile.trace.withcost import needWeighable
from puregraph.core import device
from puregraph.core.errors import DataError, GraphWarning, PuregraphError, addLocation
from puregraph.core.errors.userwarning import warnUser
from puregraph.data.arrays import arraysFrom, checkRows, pairFrom, weightFrom
from puregraph.data.batches import Arrays, Names, Stream, batchesFrom, checkedSize
from puregraph.data.datadoubts import warnOfData
from puregraph.data.split import split
from puregraph.distributed.collectives.grains import Grains
from puregraph.distributed.dataparallel.agreement import agree
from puregraph.distributed.dataparallel.lockstep import isSynchronized
from puregraph.distributed.nccl.ncclchoice import chooseNccl
from puregraph.distributed.worlds.mesh import replicasIn
from puregraph.distributed.worlds.world import World
from puregraph.graph.lookup import few
from puregraph.modules.batchnorm import BatchNorm
from puregraph.ops.native.threads.blas import openBlas
from puregraph.optimizers.schedules import factorAt
from puregraph.train.announcing import NATIVE
from puregraph.train.modes import inMode

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.module import Module
    from puregraph.train.trainer import Trainer

LOOKERS: list[Callable[[Any, Any], None]] = []  # called with a trainer and its data after all checks
MIN_RATE_RATIO = 1e-6  # learning rate, relative to the highest, below which nothing is learnt


def heldOutFrom(
    data: Any, target: AnyArray | None, validation: Any, isWeighed: bool = False, seed: int = 0
) -> tuple[tuple[Any, Any], Any]:
    """Return ((data, target), validation); a fraction becomes the samples that `seed` holds out.

    With `isWeighed` the last target has the weights of the samples.

    Raises    DataError for a fraction of batches, or one that leaves no sample on either side
    """
    if not isinstance(validation, (float, np.floating)):
        return (data, target), validation
    if target is None:
        raise DataError("validation: a fraction is held out of arrays, got batches: give (data, target) or batches")
    targets = pairFrom(data, target)[1]
    isLabels = targets[0].ndim == 1 and targets[0].dtype.kind in "iub"
    try:
        rest, (x, t) = split(data, target, float(validation), seed, stratify=isLabels)
    except PuregraphError:
        raise DataError(
            f"validation: wanted a fraction of {len(targets[0])} samples that leaves some on each side, such as 0.2, "
            f"got {validation}"
        ) from None
    return rest, (x, t[:-1], t[-1]) if isWeighed else (x, t)


def weighed(target: AnyArray | None, weight: Any, cost: Module) -> Any:
    """Return the targets followed by the sample weights; without weights, the targets unchanged.

    Raises    DataError for weights that are not one finite number from 0 on for each sample, or a cost without them
    """
    if weight is None:
        return target
    needWeighable(cost)
    if target is None:
        raise DataError("sampleWeight: goes with arrays; of batches each is (data, target, sampleWeight)")
    targets = arraysFrom(target, "target")
    weights = weightFrom(weight, len(targets[0]))
    if len(weights) and not weights[:].any():
        raise DataError(f"sampleWeight: wanted a number above 0 for some sample, got 0 for all {len(weights)}")
    return [*targets, weights]


def validationFrom(validation: Any, batchsize: int, names: Names, cost: Module) -> Arrays | Stream | None:
    """Return the validation source of (data, target), (data, target, sampleWeight), or batches."""
    if validation is None:
        return None
    if isinstance(validation, (int, np.integer)):
        raise DataError(f"validation: wanted (data, target), or a fraction such as 0.2, got {validation}")
    isPair = isinstance(validation, (list, tuple)) and len(validation) == 2
    isBatches = isinstance(validation, list) and all(isinstance(batch, tuple) for batch in validation)
    isWeighed = isinstance(validation, tuple) and len(validation) == 3 and not isinstance(validation[2], (tuple, list))
    isArrays = isWeighed or isPair and not isBatches
    data, target, *weights = validation if isArrays else (validation, None)
    try:
        if weights:
            data, target = names.inOrder(data, target)
            target = weighed(target, weights[0], cost)
        return batchesFrom(data, target, batchsize, names=names, isWeighed=isWeighed)
    except DataError as error:
        raise DataError(f"validation: {error}") from None


def sourcesFrom(
    trainer: Trainer, data: Any, target: AnyArray | None, validation: Any, weight: Any
) -> tuple[Arrays | Stream, Arrays | Stream | None]:
    """Return the sources of training and validation data, from the arguments of `Trainer.train`."""
    names, cost, isWeighed = trainer.objective.names, trainer.cost, weight is not None
    checkRows(data=data, target=target, sampleWeight=weight)
    data, target = names.inOrder(data, target)
    isFraction, seed = isinstance(validation, (float, np.floating)), trainer.splitSeed
    (data, target), validation = heldOutFrom(data, weighed(target, weight, cost), validation, isWeighed, seed)
    source = batchesFrom(data, target, trainer.batchsize, names=names, isWeighed=isWeighed, dropLast=trainer.dropLast)
    checks = validationFrom(validation, trainer.batchsize, names, cost)
    if isFraction:
        trains, validates = (len(pairFrom(*pair)[0][0]) for pair in ((data, target), validation[:2]))
        trainer.progress.say(f"{trains} samples train, {validates} validate: held out with seed={seed}")
    return source, checks


def begin(trainer: Trainer, source: Arrays | Stream, checks: Arrays | Stream | None, epochs: int) -> None:
    """Begin a run, or continue one, after all possible checks before the first step."""
    checkedSize(epochs, "epochs")
    run = trainer.runState
    if not run.running:
        trainer.restart()
        run.first, run.stopped = run.epoch, False
        run.total = None
        run.ignored = None if getattr(trainer.cost, "ignoreIndex", None) is None else np.zeros(2, int)
    elif run.begun and source.samples != run.samples:
        raise DataError(
            f"epoch {run.epoch + 1} was begun with {run.samples} samples, it cannot go on with "
            f"{source.samples}; give the same data, or begin a new epoch with trainer.restart()"
        )
    count = None if source.count is None else -(-source.count // trainer.accumulate)
    if (run.until, run.count) != (run.first + epochs, count):
        run.total = None  # computed again, as the length of the run has changed
    run.until, run.count = run.first + epochs, count
    if run.position > (run.position if count is None else count):
        raise DataError(
            f"epoch {run.epoch + 1} was begun with {run.position} steps, of which it has {count}; give the "
            "same data, or begin a new epoch with trainer.restart()"
        )
    if run.running and not run.begun and (run.stopped or run.epoch >= run.until):
        done, ended = run.epoch - run.first, " and was stopped" if run.stopped else ""
        trainer.progress.say(
            f"nothing to train: the run has made {done} epoch{'s' * (done != 1)}{ended}; epochs={epochs} counts all of "
            "that run, and trainer.restart() begins another one"
        )
    for checked, passes in ((source, run.until - run.epoch), (checks, 0 if checks is None else epochs)):
        if checked is not None and checked.oneshot and passes > 1:
            raise DataError(
                f"wanted batches for {passes} epochs, got an iterator that can be used once: give a function that "
                "returns one for each epoch, or a list"
            )
    run.validates = checks is not None
    if trainer.objective.compile:
        NATIVE(trainer.progress.say)
    trainer.setupOptimizer()
    checkParams(trainer)
    fitSchedule(trainer)
    trainer.objective.renew()
    if trainer.grains is not None and isinstance(source, Arrays) and trainer.batchsize < trainer.grains:
        wanted = f"grains={trainer.grains}: wanted batches of at least as many samples"
        raise DataError(f"{wanted}, got batchsize {trainer.batchsize}")
    replicas = replicasIn(trainer.world, trainer.tensor)
    isDivided = trainer.stages is None and trainer.tensor is None
    parts = Grains(trainer.grains or replicas, trainer.world if isDivided else World()).sizes
    isWhole = any(isSynchronized(module) for module in trainer.net.modules().values())
    checkShapes(trainer, source, "", (lambda size: [size]) if isWhole else parts)
    with inMode(False, trainer.net, trainer.cost):
        checkShapes(trainer, checks, "the validation")
    warnOfData(trainer, source, checks)
    chooseNccl(trainer.progress.say)
    trainer.world.isEnding = False
    agree(trainer, source, checks)
    for look in LOOKERS:
        look(trainer, source)
    run.running = True


def checkShard(shard: Any) -> str | None:
    """Check the `shard` argument: the part of training state to shard over processes.

    Raises    DataError for any other value
    """
    if shard not in (None, "state", "gradients", "parameters"):
        raise DataError(f'shard: wanted None, "state", "gradients" or "parameters", got {shard!r:.60}')
    return shard


def checkRepeatable(repeatable: Any) -> str | None:
    """Check the `repeatable` argument: the number that results must not depend on.

    Raises    DataError unless it is None or "threads"; "threads" needs the CPU and numpy with OpenBLAS
    """
    if repeatable not in (None, "threads"):
        raise DataError(f'repeatable: expected None or "threads", got {repeatable!r:.60}')
    if repeatable is not None and device.name() == "cuda":
        raise DataError('repeatable="threads": expected the CPU, got a GPU; set PUREGRAPH_DEVICE=cpu')
    if repeatable is not None and openBlas() is None:
        raise DataError(
            'repeatable="threads": expected numpy with OpenBLAS, got another BLAS, whose threads cannot be set here; '
            "set its own variable to 1 (MKL_NUM_THREADS, VECLIB_MAXIMUM_THREADS) and leave repeatable out"
        )
    return repeatable


def checkShapes(
    trainer: Trainer,
    source: Arrays | Stream | None,
    owner: str,
    parts: Callable[[int], list[int]] = lambda size: [size],
) -> None:
    """Check the shapes of all batches that arrays will make, or of their `parts`."""
    if isinstance(source, Arrays):
        for number, size in enumerate(source.sizes()):
            try:
                for part in parts(size):
                    trainer.objective.shapesFor(trainer.objective.prepare(source.first(part)))
            except (PuregraphError, TypeError) as error:
                if number:
                    cut = f"{source.samples} samples in batches of {source.batchsize} leave {size}"
                    hint = "" if owner else "; Trainer(..., dropLast=True) leaves that batch out"
                    addLocation(error, f"in the last batch{owner and f' of {owner}'}: {cut}{hint}")
                elif owner:
                    addLocation(error, f"in {owner}")
                raise


def checkParams(trainer: Trainer) -> None:
    """Check that there is a trainable parameter, and that BatchNorm sees all samples of a step."""
    net, optimizer = trainer.net, trainer.optimizer
    count = len(net.params)
    if not any(param.trainable for param in net.params.values()):
        why = f"all {count} parameters are frozen (trainable = False)" if count else "it has no parameters"
        raise DataError(f"nothing of {net.title()} can be trained: {why}")
    slots = getattr(optimizer, "slots", None)
    if slots is not None and not any(slot.param.trainable for slot in slots):
        raise DataError(f"nothing can be trained of what {type(optimizer).__name__} is set up on: all of it is frozen")
    parts = getattr(trainer.cost, "costs", {})
    counting = [name for name, cost in parts.items() if not getattr(cost, "isPlainMean", True)]
    cut = [f"{name}={n}" for name in ("accumulate", "grains") if (n := getattr(trainer, name) or 1) > 1]
    summed = [cost for cost in parts.values() or [trainer.cost] if getattr(cost, "reduction", "mean") == "sum"]
    if summed and cut:
        warnUser(
            f'{cut[0]}: {type(summed[0]).__name__} has reduction="sum", but a step takes the mean of the sums of its '
            "parts, and so is not that of one large batch",
            GraphWarning,
        )
    if counting and cut:
        warnUser(
            f"{cut[0]}: the cost of {few(counting)} is a mean over the positions that count in each part: if "
            "several costs are added up, a step is not that of one large batch",
            GraphWarning,
        )
    norms = [path for path, module in net.modules().items() if isinstance(module, BatchNorm)]
    if norms and trainer.accumulate > 1:
        warnUser(
            f"accumulate={trainer.accumulate}: {few(norms)} (BatchNorm) takes the statistics of each batch by itself, "
            "so a step is not that of one large batch; LayerNorm and GroupNorm take none of a batch",
            GraphWarning,
        )


def fitSchedule(trainer: Trainer) -> None:
    """Set the length of schedules to the updates of this run, and warn of a schedule that ends earlier."""
    optimizer = trainer.optimizer
    members = {id(member): member for member in (optimizer, *getattr(optimizer, "members", ()))}.values()
    schedules = [getattr(member, "schedule", None) for member in members]
    for schedule in {id(schedule): schedule for schedule in schedules if schedule is not None}.values():
        fit(trainer, schedule)
    options = [option for member in members for option in getattr(member, "optionSchedules", ())]
    for option in (*options, *getattr(trainer.cost, "schedules", ())):
        fit(trainer, option, isRate=False)


def fit(trainer: Trainer, schedule: Any, isRate: bool = True) -> None:
    """Set the length of one schedule, and warn if a learning rate schedule ends before the run."""
    run = trainer.runState
    if hasattr(schedule, "fitEpoch") and run.count is not None:
        schedule.fitEpoch(run.count)
    if run.total is None and run.count is not None:
        left = (run.until - run.epoch) * run.count - run.position
        run.total = trainer.optimizer.step + left
    total = run.total
    if total is None:
        return
    if hasattr(schedule, "fit"):
        schedule.fit(total)
    if not isRate:
        return
    end = endOf(schedule, trainer.optimizer.step, total)
    if end is not None and end < total:
        factor = f"the factor of the learning rate is then {factorAt(schedule, total - 1):.3g} until the end"
        hint = f"lengths are counted in updates, of which an epoch has {run.count}"
        warnUser(
            f"schedule: {schedule!r:.60} is over after {end} updates, this run after {total}: {factor}; {hint}",
            GraphWarning,
        )


def endOf(schedule: Any, first: int, total: int) -> int | None:
    """Return the update at which a schedule ends: its `end`, or the update from which its factor stays near zero."""
    if getattr(schedule, "end", None) is not None:
        return int(schedule.end)
    steps = [first + (total - 1 - first) * k // 64 for k in range(65)]
    factors = [factorAt(schedule, step) for step in steps]
    little = MIN_RATE_RATIO * max(factors)
    index = next((k for k in range(58) if max(factors[k:]) < little), None)  # near zero is normal in the last tenth
    return None if index is None else steps[index]
