"""ShardedUpdate: an update of this rank's shards of the parameters, with its shards of the optimizer's state."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core import device
from puregraph.core.base.align import aligned
from puregraph.core.device import Array
from puregraph.core.errors import NotFiniteError, PuregraphError
from puregraph.core.initial import SEED
from puregraph.core.param import Param
from puregraph.distributed.collectives.treesum import Span
from puregraph.distributed.sharding.shardedstate import keepShards
from puregraph.distributed.sharding.shardedweights import ShardedWeights
from puregraph.distributed.sharding.sharding import Sharding, ShardRow, Sums, isOnDevice
from puregraph.optimizers.optimizer import Optimizer
from puregraph.optimizers.slot import Slot

if TYPE_CHECKING:
    from puregraph.distributed.dataparallel.sharedstep import SharedStep

BUCKET = 1 << 20  # elements of weights that are all-gathered at once
LOCAL = {"slots", "net", "later"}  # attributes that the shards' optimizer does not share with the original


class ParamShard(Param):
    """A shard of a parameter, with its own memory and the parameter's settings; `span` is its range of elements."""

    def __init__(self, param: Param, span: Span, array: Array):
        super().__init__(array.shape, dtype=param.dtype)
        self.of, self.span, self.array = param, span, array

    def refresh(self) -> None:
        """Copy the current settings of the parameter, and increment the version, as its values may have changed."""
        self.bumpVersion()
        for name in ("rate", "decay", "trainable"):
            if getattr(self, name) != getattr(self.of, name):
                setattr(self, name, getattr(self.of, name))


class ShardedUpdate:
    """Update the elements that a Sharding gives this rank.

    The optimizer's slots keep the state of these elements, see `Slot.part`. The new weights of a row are all-gathered
    among the data parallel ranks, unless they are in `weights`, which all ranks read.
    """

    def __init__(self, step: SharedStep, sharding: Sharding, weights: ShardedWeights | None = None):
        self.mesh, self.objective, self.slots = step.mesh, step.objective, step.slots
        self.optimizer: Optimizer = step.optimizer
        self.sharding, self.weights = sharding, weights
        keepShards(sharding, self.optimizer, self.slots)
        self.local = [slot for slot in self.slots if len(range(*sharding.updated(slot.param)))]
        self.part = copy.copy(self.optimizer)
        with SEED.undisturbed():  # other ranks have more shards, or fewer
            self.part.slots = [Slot(slot.path, self.shardOf(slot.param)) for slot in self.local]
        for slot, shardSlot in zip(self.local, self.part.slots):
            shardSlot.arrays, shardSlot.rule = slot.arrays, slot.rule

    def shardOf(self, param: Param) -> Param:
        """Return the parameter, or the shard of it that this rank updates."""
        if self.sharding.rowOf(param).isCopied:
            return param
        if self.weights is None:
            array = aligned(self.sharding.shard(param, param.materialize()).copy())
        else:
            array = self.weights.shard(param)
        if self.sharding.isWhole(param):
            array = array.reshape(param.shape)  # as rules of arrays see it
        return ParamShard(param, self.sharding.updated(param), array)

    def run(self, sums: Sums, reached: set[int]) -> None:
        """Update with this rank's parts of the gradients; `reached` has the ids of the parameters that have one.

        Raises    PuregraphError if no parameter has a gradient; NotFiniteError for one that is not finite
        """
        optimizer, part = self.optimizer, self.part
        ready = [slot for slot in self.slots if id(slot.param) in reached and slot.param.trainable]
        if not ready:
            raise PuregraphError(f"{type(optimizer).__name__}: none of {len(self.slots)} parameters has a gradient")
        for name, value in vars(optimizer).items():
            if name not in LOCAL and vars(part).get(name) is not value:
                setattr(part, name, value)
        if optimizer.measured is not None:
            optimizer.norm = optimizer.measured
            if not np.isfinite(optimizer.measured):
                if optimizer.onNonFinite == "skip":
                    return
                raise NotFiniteError.atUpdate(type(optimizer).__name__, optimizer.step, self.notFinite(sums))
        changed = {id(slot.param) for slot in ready}
        for slot, shardSlot in zip(self.local, part.slots):
            self.prepare(shardSlot.param, slot.param, sums if id(slot.param) in changed else None)
            shardSlot.step = slot.step
        if any(slot.param.grad is not None for slot in part.slots):
            if isOnDevice(part.slots[0].param):
                part.update()
            else:
                self.objective.update(part)
        optimizer.step += 1
        for slot in ready:
            slot.step += 1
        self.share(changed)

    def prepare(self, shard: Param, param: Param, sums: Sums | None) -> None:
        """Give a shard its gradient, None without sums, and the weights as they are now."""
        grad: Any = None
        if sums is not None:
            grad = self.sharding.gradient(sums, param).astype(param.dtype, copy=shard is param).reshape(shard.shape)
            grad = device.toDevice(grad) if isOnDevice(shard) else grad
        if isinstance(shard, ParamShard):
            if self.weights is None:
                first, last = shard.span
                shard.array[...] = param.materialize().reshape(-1)[first:last].reshape(shard.shape)
            shard.refresh()
        shard.grad = grad

    def notFinite(self, sums: Sums) -> str:
        """Name the parameters whose gradients are not finite on any rank."""
        grads = {slot.path: self.sharding.gradient(sums, slot.param) for slot in self.local}
        wrong = [path for path, grad in grads.items() if not np.isfinite(grad).all()]
        texts = self.mesh.world.gather("\n".join(wrong).encode())
        paths = {path for text in texts for path in text.decode().split("\n")}
        return "the gradient of " + ", ".join(f"'{slot.path}'" for slot in self.slots if slot.path in paths)

    # New weights ------------------------------------------------------------------------------------------------------

    def share(self, changed: set[int]) -> None:
        """Give all ranks the new weights of the parameters with these ids."""
        if self.weights is not None:
            self.weights.drop()
        else:
            for number in self.sharding.local:
                row = self.sharding.rows[number]
                for spans in [] if row.isCopied else chunksOf(row.cuts):
                    self.gather(row, spans, changed)
        for param in self.sharding.params:
            if id(param) in changed:
                param.bumpVersion()

    def gather(self, row: ShardRow, spans: list[Span], changed: set[int]) -> None:
        """All-gather the new weights of a row; `spans` has the range of each rank."""
        shards = {id(slot.param.of): slot.param for slot in self.part.slots if isinstance(slot.param, ParamShard)}
        ends = np.cumsum([0, *[end - begin for begin, end in spans]]).tolist()
        chunk = np.zeros(ends[-1], np.result_type(np.float32, *[param.dtype for param in row.params]))
        group = self.mesh.data
        begin, at = spans[group.index][0], ends[group.index]
        for param, first, last, offset in row.overlaps(*spans[group.index]):
            shard, offset = shards[id(param)], at + offset - begin
            start = shard.span[0]
            chunk[offset : offset + last - first] = device.toHost(shard.array.reshape(-1)[first - start : last - start])
        group.world.allGather(chunk, ends)
        for (begin, end), at in zip(spans, ends):
            for param, first, last, offset in row.overlaps(begin, end):
                if id(param) in changed:
                    into = param.materialize().reshape(-1)[first:last]
                    new = chunk[at + offset - begin :][: last - first].astype(into.dtype, copy=False)
                    into[...] = device.toDevice(new) if device.isDeviceArray(into) else new


def chunksOf(cuts: list[int]) -> Iterator[list[Span]]:
    """Yield the ranges of a row to all-gather at once, of equal size on all ranks, because MPI is slow otherwise."""
    shards, chunk = list(pairwise(cuts)), chunkOf(len(cuts) - 1)
    for at in range(0, max(end - begin for begin, end in shards), chunk):
        yield [(min(begin + at, end), min(begin + at + chunk, end)) for begin, end in shards]


def chunkOf(count: int) -> int:
    """Return the largest number of elements that each of `count` ranks sends at once."""
    return max(BUCKET // count, 1)
