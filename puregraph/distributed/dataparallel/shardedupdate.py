"""ShardedUpdate: an update of this rank's shard of the parameters, with a shard of the optimizer's state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from puregraph.compile import Updater
from puregraph.compile.trace.updaterule import isDivisible
from puregraph.core import device
from puregraph.core.base.align import aligned
from puregraph.core.errors import DataError, NotFiniteError, PuregraphError
from puregraph.core.initial import SEED
from puregraph.core.param import Param
from puregraph.distributed.collectives.treesum import cutsOf
from puregraph.distributed.dataparallel.gradientexchange import GradientExchange, isOnDevice
from puregraph.distributed.worlds.world import World
from puregraph.optimizers.slot import Slot

BUCKET = 1 << 20  # elements of weights that are exchanged at once
OWN = {"slots", "net", "later"}  # attributes that a part of an optimizer has for itself


class ParamPiece(Param):
    """A shard of a parameter, with its own memory and the parameter's settings.

    `spanIn`  the range of elements of the parameter; `begin` is its beginning in the row of all gradients, and `run`
              the number of its bucket
    """

    def __init__(self, slot: Slot, spanIn: slice, begin: int, run: int, array: np.ndarray):
        super().__init__((spanIn.stop - spanIn.start,), dtype=slot.param.dtype)
        self.slot, self.spanIn, self.begin, self.run, self.array = slot, spanIn, begin, run, array

    def refresh(self, grad: Any) -> None:
        """Take the parameter's settings as they are now, and a gradient, if there is one; the values may be others."""
        whole = self.slot.param
        self.bumpVersion()
        for name in ("rate", "decay", "trainable"):
            if getattr(self, name) != getattr(whole, name):
                setattr(self, name, getattr(whole, name))
        self.grad = grad


class ShardedUpdate:
    """Update this rank's shard of every gradient bucket.

    The optimizer's slots keep the state of these elements, see `Slot.part`. The new weights are gathered a bucket at a
    time.
    """

    def __init__(self, trainer: Any, slots: list[Slot], gradients: GradientExchange):
        self.world, self.optimizer, self.objective = trainer.world, trainer.optimizer, trainer.objective
        spans, tree = gradients.spans, gradients.tree
        self.slots, self.spans, self.bounds, self.dtype = slots, spans, tree.bounds, tree.dtype
        self.runs = tree.runs[self.world.rank]
        if not isDivisible(self.optimizer):
            raise DataError(
                f"shard={trainer.shard!r}: {type(self.optimizer).__name__} updates in a way of its own, of which no "
                "part can be done alone; train without shard"
            )
        numbers = {index: n for n, group in enumerate(gradients.buckets.groups) for index in group}
        localRuns = [self.runs[numbers[index]] for index in range(len(spans))]
        parts = [(min(max(begin, a), b) - a, min(max(end, a), b) - a) for (a, b), (begin, end) in zip(spans, localRuns)]
        divide(self.world, self.optimizer, slots, parts)
        self.pieces = []
        for index, (slot, (a, _), (first, last)) in enumerate(zip(slots, spans, parts)):
            if slot.hasState:
                with SEED.undisturbed():  # other processes have more pieces, or fewer
                    array = self.weightsOf(slot, slice(first, last))
                    self.pieces.append(ParamPiece(slot, slice(first, last), a + first, numbers[index], array))
        self.part = copy.copy(self.optimizer)
        self.part.slots = [Slot(piece.slot.path, piece) for piece in self.pieces]
        for slot in self.part.slots:
            slot.arrays, slot.rule = slot.param.slot.arrays, slot.param.slot.rule
        self.updater: Updater | None = None

    def weightsOf(self, slot: Slot, span: slice) -> Any:
        """Memory with some weights of a parameter, for a piece."""
        return aligned(slot.param.materialize().reshape(-1)[span].copy())

    def follow(self, piece: ParamPiece) -> None:
        """Give a piece the weights as they are now."""
        piece.array[...] = piece.slot.param.materialize().reshape(-1)[piece.spanIn]

    def run(self, sums: list[np.ndarray], reached: Any) -> None:
        """Update with this process's pieces of the gradients; `reached` says for each parameter whether it has one.

        Raises    PuregraphError if no parameter has a gradient; NotFiniteError for one that is not finite
        """
        optimizer, part = self.optimizer, self.part
        ready = [slot for slot, isReached in zip(self.slots, reached) if isReached and slot.param.trainable]
        if not ready:
            raise PuregraphError(f"{type(optimizer).__name__}: none of {len(self.slots)} parameters has a gradient")
        takeSettings(part, optimizer)
        if optimizer.measured is not None:
            optimizer.norm = optimizer.measured
        if optimizer.measured is not None and not np.isfinite(optimizer.measured):
            if optimizer.onNonFinite == "skip":
                return
            raise NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, self.notFinite(sums))
        for piece in self.pieces:
            grad = self.within(sums, piece).astype(piece.dtype, copy=False)
            self.follow(piece)
            piece.refresh((device.toDevice(grad) if isOnDevice(piece) else grad) if piece.slot in ready else None)
        for slot in part.slots:
            slot.step = slot.param.slot.step
        if any(piece.grad is not None for piece in self.pieces):
            self.update()
        optimizer.step += 1
        for slot in ready:
            slot.step += 1
        self.gather(ready)

    def update(self) -> None:
        """Update the pieces, in a compiled step if there is to be one."""
        if not self.objective.compile or isOnDevice(self.pieces[0]):
            self.part.update()
            return
        if self.updater is None:
            self.updater = Updater(self.objective.graph, self.part)
        self.updater.run()

    def within(self, sums: list[np.ndarray], piece: ParamPiece) -> np.ndarray:
        """The gradient of a piece."""
        first = piece.begin - self.runs[piece.run][0]
        return sums[piece.run][first : first + piece.size]

    def notFinite(self, sums: list[np.ndarray]) -> str:
        """Name the parameters whose gradients are not finite on any rank."""
        wrong = [shard.slot.path for shard in self.pieces if not np.isfinite(self.within(sums, shard)).all()]
        paths = {path for text in self.world.gather("\n".join(wrong).encode()) for path in text.decode().split("\n")}
        return "the gradient of " + ", ".join(f"'{slot.path}'" for slot in self.slots if slot.path in paths)

    def gather(self, changed: list[Slot]) -> None:
        """Give all processes the new weights."""
        for spans in self.chunks():
            ends = np.cumsum([0, *[end - begin for begin, end in spans]]).tolist()
            bucket = np.zeros(ends[-1], self.dtype)
            begin, end = spans[self.world.rank]
            mine = bucket[ends[self.world.rank] :]
            for piece in self.pieces:
                first = piece.begin
                a, b = max(first, begin), min(first + piece.size, end)
                if a < b:
                    mine[a - begin : b - begin] = device.toHost(piece.array[a - first : b - first])
            self.world.allGather(bucket, ends)
            for (begin, end), at in zip(spans, ends):
                self.take(bucket[at:], begin, end, changed)
        for slot in changed:
            slot.param.bumpVersion()

    def chunks(self) -> Iterator[list[tuple[int, int]]]:
        """The spans of elements that the processes give at once, of each as many: MPI is slow where one gives all."""
        for begin, end in pairwise(self.bounds):
            for spans in chunksOf(end - begin, self.world.size):
                yield [(begin + a, begin + b) for a, b in spans]

    def take(self, bucket: np.ndarray, begin: int, end: int, changed: list[Slot]) -> None:
        """Write new weights, of the elements from `begin` to `end`, to the parameters."""
        for slot, (first, last) in zip(self.slots, self.spans):
            a, b = max(first, begin), min(last, end)
            if a < b and slot in changed:
                into = slot.param.materialize().reshape(-1)[a - first : b - first]
                new = bucket[a - begin : b - begin].astype(into.dtype, copy=False)
                into[...] = device.toDevice(new) if device.isDeviceArray(into) else new


def takeSettings(part: Any, optimizer: Any) -> None:
    """Give a part of an optimizer the settings of the whole as they are now."""
    for name, value in vars(optimizer).items():
        if name not in OWN and vars(part).get(name) is not value:
            setattr(part, name, value)


def chunksOf(size: int, count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the ranges of a sharded bucket that `count` ranks all-gather at once."""
    pieces, chunk = list(pairwise(cutsOf(size, count))), chunkOf(count)
    for at in range(0, max(end - begin for begin, end in pieces), chunk):
        yield [(min(begin + at, end), min(begin + at + chunk, end)) for begin, end in pieces]


def chunkOf(count: int) -> int:
    """The most elements that each of `count` processes gives at once."""
    return max(BUCKET // count, 1)


def divide(world: World, optimizer: Any, slots: list[Slot], parts: list[tuple[int, int]]) -> None:
    """Keep of the state of each slot only a part; where it is divided in another way already, it is made whole before.

    All processes call it.
    """
    differs = np.array([any(slot.part not in (None, part) for slot, part in zip(slots, parts))], np.int64)
    world.allReduce(differs)
    whole = wholeState(world, optimizer) if differs[0] else {}
    for slot, (first, last) in zip(slots, parts):
        if slot.part is not None and whole:
            slot.arrays = {
                name: whole[f"{name}/{slot.path}"] for name in optimizer.ruleOf(slot).stateNames(slot) if slot.step
            }
            slot.part = None
        if slot.part is None:
            kept = {name: aligned(array.reshape(-1)[first:last].copy()) for name, array in slot.arrays.items()}
            slot.arrays, slot.part = kept if first < last else {}, (first, last)


def isDivided(optimizer: Any) -> bool:
    """True if this rank has only a shard of the state."""
    return any(slot.part is not None or slot.split is not None for slot in getattr(optimizer, "slots", ()))


def wholeState(world: World, optimizer: Any) -> dict[str, Any]:
    """Gather the full `optimizer.state`; all ranks call it."""
    slots = [slot for slot in optimizer.slots if slot.step]
    bounds = np.array([slot.part or (0, slot.param.size) for slot in slots], np.int64).reshape(-1, 2)
    begins = np.stack([np.frombuffer(data, np.int64).reshape(-1, 2)[:, 0] for data in world.gather(bounds.tobytes())])
    gathered = {}
    for slot, firsts, (first, last) in zip(slots, begins.T.tolist(), bounds.tolist()):
        for name in optimizer.ruleOf(slot).storedNames(slot):
            if name == "step":
                array = np.array(slot.step)
            elif slot.split is not None:
                array = slot.split.whole(name)
            elif slot.part is None:
                array = slot.arrays[name]
            else:
                array = np.empty(slot.param.size, np.promote_types(slot.param.dtype, np.float32))
                array[first:last] = device.toHost(slot.arrays[name]).reshape(-1) if slot.hasState else 0
                world.allGather(array, [*firsts, slot.param.size])
                array = array.reshape(slot.param.shape)
            gathered[f"{name}/{slot.path}"] = array
    return gathered
