"""StageShard: which elements of the parameters of a stage each process updates, and has the optimizer's state of."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from puregraph.core.base.align import aligned
from puregraph.core.initial import SEED
from puregraph.core.param import Param
from puregraph.distributed.collectives.treesum import Span, cutsOf
from puregraph.distributed.dataparallel.shardedupdate import ParamPiece
from puregraph.distributed.pipeline.pipelinegrid import PipelineGrid
from puregraph.optimizers.slot import Slot


class StageShard:
    """The parameters of a stage as one row. With `shard` the processes that have the stage divide it, else each of them
    updates all of it, and the first is taken for the one that has it.

    `params`  by stage its parameters
    `spans`   by the id of a parameter its stage, and from where to where it is in the row of that
    `cuts`    by stage where the pieces of the row begin, and the end of the last
    """

    def __init__(self, grid: PipelineGrid, params: list[list[Param]], isDivided: bool):
        self.grid, self.params, self.isDivided = grid, params, isDivided
        self.spans: dict[int, tuple[int, int, int]] = {}
        self.cuts: list[list[int]] = []
        for stage, own in enumerate(params):
            ends = list(accumulate((param.size for param in own), initial=0))
            self.spans.update({id(p): (stage, a, b) for p, (a, b) in zip(own, pairwise(ends))})
            whole = [0] + [ends[-1]] * grid.replicas
            self.cuts.append(cutsOf(ends[-1], grid.replicas) if isDivided else whole)

    def partOf(self, param: Param, rank: int) -> Span:
        """The elements of a parameter that a process has, all together each once."""
        stage, begin, end = self.spans[id(param)]
        position, replica = divmod(rank, self.grid.replicas)
        home = self.grid.positionOf(stage)
        if position != home:
            return (0, 0) if position < home else (end - begin, end - begin)
        first, last = self.cuts[stage][replica : replica + 2]
        return min(max(first, begin), end) - begin, min(max(last, begin), end) - begin

    def updated(self, param: Param) -> Span:
        """The elements of a parameter that this process updates."""
        stage, begin, end = self.spans[id(param)]
        isAll = not self.isDivided and self.grid.positionOf(stage) == self.grid.position
        return (0, end - begin) if isAll else self.partOf(param, self.grid.world.rank)

    def within(self, totals: dict[int, np.ndarray], param: Param) -> np.ndarray:
        """Return the gradient of this rank's elements of a parameter, from its shard of the stage's sums."""
        stage, begin, _ = self.spans[id(param)]
        first, last = self.updated(param)
        start = begin - (self.cuts[stage][self.grid.replica] if self.isDivided else 0)
        return totals[stage][start + first : start + last]

    def ownSlot(self, slot: Slot) -> Slot:
        """Return a slot for this rank's shard of a parameter, with the state of the original slot."""
        param = slot.param
        if self.isDivided:
            (stage, begin, _), (first, last) = self.spans[id(param)], self.updated(param)
            with SEED.undisturbed():  # ranks have different numbers of shards
                array = self.weightsOf(slot, first, last)
                param = ParamPiece(slot, slice(first, last), begin + first, stage, array)
        shardSlot = Slot(slot.path, param)
        shardSlot.arrays, shardSlot.rule = slot.arrays, slot.rule
        return shardSlot

    def weightsOf(self, slot: Slot, first: int, last: int) -> np.ndarray:
        """Memory with some weights of a parameter, for a piece."""
        return aligned(slot.param.materialize().reshape(-1)[first:last].copy())

    def follow(self, piece: ParamPiece, param: Param) -> None:
        """Give a piece the weights as they are now."""
        piece.array[...] = param.materialize().reshape(-1)[piece.spanIn]

    def give(self, own: Any, totals: dict[int, np.ndarray], param: Param, isReady: bool) -> None:
        """Give what the slot of a parameter updates its gradient, if there is to be one, and a piece its weights."""
        grad = self.within(totals, param).astype(param.dtype) if isReady else None
        if own is param:
            param.grad = None if grad is None else grad.reshape(param.shape)
        else:
            self.follow(own, param)
            own.refresh(grad)

    def gather(self, pieces: list[ParamPiece], changed: list[Param]) -> None:
        """All-gather the new weights of each stage among its ranks."""
        for stage in self.grid.own:
            cuts = self.cuts[stage]
            row = np.zeros(cuts[-1], np.result_type(np.float32, *[param.dtype for param in self.params[stage]]))
            for piece in pieces:
                if piece.run == stage:
                    row[piece.begin : piece.begin + piece.size] = piece.array
            self.grid.across.allGather(row, cuts)
            for param in self.params[stage]:
                if any(param is other for other in changed):
                    _, begin, end = self.spans[id(param)]
                    param.materialize().reshape(-1)[...] = row[begin:end]
                    param.bumpVersion()

    def broadcast(self) -> None:
        """Give all processes the weights of all stages."""
        grid = self.grid
        for position in range(grid.positions):
            params = [p for stage, own in enumerate(self.params) if grid.positionOf(stage) == position for p in own]
            flat = [param.materialize().reshape(-1) for param in params]
            row = np.concatenate([x.view(np.uint8) for x in flat]) if flat else np.empty(0, np.uint8)
            grid.world.broadcast(row, position * grid.replicas)
            begin = 0
            for param, x in zip(params, flat):
                if position != grid.position:
                    x.view(np.uint8)[...] = row[begin : begin + x.nbytes]
                    param.bumpVersion()
                begin += x.nbytes
