"""Data doubts: warnings about data that trains without an error, but is probably a mistake."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.base.dtype import isByte
from puregraph.core.errors import GraphWarning
from puregraph.core.errors.userwarning import warnUser
from puregraph.data.batches import Arrays, Stream
from puregraph.data.trainedsamples import earlierKeys, keysOf
from puregraph.graph.lookup import few

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.graph import Graph
    from puregraph.graph.module import Module
    from puregraph.train.trainer import Trainer

CHECKED_SAMPLES = 500  # samples that are checked, evenly spaced in an array
MAX_COUNTED_LABELS = 1 << 20  # most labels that are counted
RARE = 0.05  # share of the validation samples that may have new classes by chance
MAX_REPEATED_SAMPLES = 100  # validation samples above which training on them is not intended
UNSCALED_MEAN = 1000.0  # mean above which inputs are probably not scaled
WIDER = 20.0  # largest ratio of the standard deviations of training and validation


def warnOfData(trainer: Trainer, source: Arrays | Stream, checks: Arrays | Stream | None) -> None:
    """Give all warnings about the data of a run in one."""
    doubts = list(streamDoubts(source))
    if isinstance(source, Arrays):
        doubts += [*byteDoubts(trainer.net, source), *scaleDoubts(trainer.net, source)]
        doubts += maskDoubts(trainer.net, source)
        isLabels = getattr(trainer.cost, "takes", "") == "scores"
        if isLabels and not trainer.shuffle:
            doubts += orderDoubts(source)
        if isinstance(checks, Arrays):
            doubts += unseenDoubts(source, checks) if isLabels else []
            doubts += spreadDoubts(trainer.net, source, checks)
            doubts += seenDoubts(trainer.net, source, checks)
    if doubts:
        warnUser("; ".join(doubts), GraphWarning)


def warnOfInputs(net: Graph, source: Arrays | Stream) -> None:
    """Warn of inputs to a network that are probably a mistake."""
    doubts = []
    if isinstance(source, Arrays):
        doubts = [*byteDoubts(net, source), *scaleDoubts(net, source), *maskDoubts(net, source)]
    if doubts:
        warnUser("; ".join(doubts), GraphWarning)


def streamDoubts(source: Arrays | Stream) -> Iterator[str]:
    """Warn of a list of batches that are all the same array, refilled for each."""
    batches = source.source if isinstance(source, Stream) and isinstance(source.source, list) else []
    pairs = [(b[0], b[1]) for b in batches if isinstance(b, (tuple, list)) and len(b) > 1]
    again = sum(x is y and isinstance(x, np.ndarray) and s is not t for (x, s), (y, t) in pairwise(pairs))
    if again:
        yield f"{again + 1} batches have one array of data with different targets, filled again for each: copy it"


def byteDoubts(net: Graph, source: Arrays) -> Iterator[str]:
    """Warn of pixels from 0 to 255 that are multiplied by weights without scaling."""
    for x, step in multiplied(net, source):
        if isByte(x.dtype) and some(x).max(initial=0) > 1:
            yield (
                f"bytes from 0 to {some(x).max()} go into '{step.path}' ({step.label}) as they are: give data / 255, "
                "or put MulAddConst(1 / 255) in front"
            )


def scaleDoubts(net: Graph, source: Arrays) -> Iterator[str]:
    """Warn of numbers in thousands that are multiplied by weights without scaling."""
    for x, step in multiplied(net, source):
        looked = np.abs(some(x)[np.isfinite(some(x))]) if x.dtype.kind == "f" else np.zeros(0)
        size = float(looked.mean(dtype=np.float64)) if looked.size else 0.0
        if size >= UNSCALED_MEAN:
            yield (
                f"data of {size:.2g} in the mean goes into '{step.path}' ({step.label}) as it is, whose weights are "
                "made for numbers near 1: subtract the mean and divide by the standard deviation, or put BatchNorm in "
                "front"
            )


def maskDoubts(net: Graph, source: Arrays) -> Iterator[str]:
    """Warn of float masks of 0 and 1, which Attention adds to its scores."""
    steps = net.steps(len(source.data))
    for number, x in zip(steps.inputs, source.data):
        same = {number}
        for step in steps.items:
            if step.module.views and step.args[0] in same:
                same.update(step.outs)
            doubt = getattr(step.module, "maskDoubt", None)
            if doubt is not None and step.args[3] in same and doubt(some(x)):
                yield f"'{step.path}' ({step.label}): {doubt(some(x))}"


def multiplied(net: Graph, source: Arrays) -> Iterator[tuple[Any, Any]]:
    """Yield each input that is multiplied by weights directly, with the first such node."""
    steps = net.steps(len(source.data))
    for number, x in zip(steps.inputs, source.data):
        for step in steps.items:
            if number in step.args[: step.inputs] and not step.module.indices and hasMatrix(step.module):
                yield x, step
                break


def orderDoubts(source: Arrays) -> Iterator[str]:
    """Warn of samples that are sorted by class."""
    labels = labelsOf(source)
    if labels is None or len(labels) <= source.batchsize:
        return
    changes = int(np.count_nonzero(labels[1:] != labels[:-1]))
    if 0 < changes < 2 * len(np.unique(labels)) and changes < source.count:
        yield "shuffle=False, and the samples come class by class: a step sees one class alone; shuffle them"


def unseenDoubts(source: Arrays, checks: Arrays) -> Iterator[str]:
    """Warn of classes that only the validation has."""
    labels, others = labelsOf(source), labelsOf(checks)
    if labels is None or others is None:
        return
    isNew = ~np.isin(others, labels)
    if isNew.mean() > RARE:
        names = few([str(label) for label in np.unique(others[isNew]).tolist()])
        yield (
            f"{isNew.sum()} of {len(others)} samples of the validation are of classes ({names}) that the training has "
            "no sample of: are both counted alike, and were sorted samples cut? validation=0.2 takes some of each class"
        )


def spreadDoubts(net: Graph, source: Arrays, checks: Arrays) -> Iterator[str]:
    """Warn of inputs that are scaled differently in training and validation."""
    for i, pair in enumerate(zip(source.data, checks.data)):
        looked = [some(x) for x in pair if x.dtype.kind == "f" or isByte(x.dtype)]
        if len(looked) < 2 or not all(x.size for x in looked):
            continue
        one, other = (float(np.std(x, dtype=np.float64)) for x in looked)
        if one and other and (other / one >= WIDER or one / other >= WIDER):
            name = f"'{net.arguments[i]}'" if len(source.data) > 1 and i < len(net.arguments) else "the data"
            yield (
                f"{name} has a standard deviation of {one:.3g} in the training and {other:.3g} in the validation: "
                "scale both alike, by the numbers of the training"
            )


def seenDoubts(net: Graph, source: Arrays, checks: Arrays) -> Iterator[str]:
    """Warn of validation samples that are training samples of this or an earlier run."""
    keys = keysOf(checks) if checks.samples >= MAX_REPEATED_SAMPLES else None
    if keys is None or 2 * len(np.unique(keys)) <= len(keys):  # with few distinct samples, some are equal by chance
        return
    own, earlier = keysOf(source), earlierKeys(net)
    isTraining = np.isin(keys, own) if own is not None else np.zeros(len(keys), bool)
    isBefore = np.isin(keys, earlier) & ~isTraining
    useless = "its figures say nothing about new samples"
    if 2 * isTraining.sum() >= len(keys):
        yield (
            f"{isTraining.sum()} of {len(keys)} samples of the validation are among those that train: {useless}; "
            "validation=0.2 holds some out"
        )
    elif 2 * isBefore.sum() >= len(keys):
        yield (
            f"{isBefore.sum()} of {len(keys)} samples of the validation have trained this network in an earlier "
            f"train(): {useless}; each part of a k-fold takes a new network"
        )


def hasMatrix(module: Module) -> bool:
    """True if a module multiplies by weights."""
    return any(len(param.shape) > 1 for param in module.params.values())


def labelsOf(source: Arrays) -> np.ndarray | None:
    """Return the labels as an array on the host; None if the target is not labels, or if there are too many."""
    labels: Any = source.target[0] if source.target else None
    isPlain = type(labels) is np.ndarray and labels.ndim == 1 and labels.dtype.kind in "iub"
    return labels if isPlain and len(labels) <= MAX_COUNTED_LABELS else None


def some(x: AnyArray) -> np.ndarray:
    """Return evenly spaced samples of a numpy array; an empty array for one on a GPU or in a file."""
    return x[:: -(-len(x) // CHECKED_SAMPLES)] if type(x) is np.ndarray else np.zeros(0)
