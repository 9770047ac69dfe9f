"""ShardedStage: of the parameters of its stages each process keeps only the elements that it updates."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.param import Param
from puregraph.distributed.dataparallel.shardedupdate import ParamPiece
from puregraph.distributed.dataparallel.shardedweights import OwnedSpan, Owners, partedWeights
from puregraph.distributed.pipeline.pipelinegrid import PipelineGrid
from puregraph.distributed.pipeline.stageshard import StageShard
from puregraph.optimizers.slot import Slot


class ShardedStage(StageShard):
    """A StageShard whose pieces are in memory that all processes read: those with the stage while they compute it, and
    others whenever somebody looks at the network.

    `weights`  what reads them
    """

    def __init__(self, grid: PipelineGrid, params: list[list[Param]], trainer: Any, dtype: np.dtype):
        super().__init__(grid, params, True)
        every = [param for own in params for param in own]
        self.weights = partedWeights(trainer, every, self.owners(every), dtype)

    def owners(self, params: list[Param]) -> Owners:
        """Return the owners of the parameters' elements; every rank stores its shard contiguously."""
        byParam: Owners = {id(param): [] for param in params}
        for rank in range(self.grid.world.size):
            begin = 0
            for param in params:
                first, last = self.partOf(param, rank)
                if first < last:
                    byParam[id(param)].append(OwnedSpan(rank, begin, first, last))
                    begin += last - first
        return byParam

    def weightsOf(self, slot: Slot, first: int, last: int) -> np.ndarray:
        return self.weights.piece(slot.param).astype(slot.param.dtype, copy=False)

    def follow(self, piece: ParamPiece, param: Param) -> None:
        """Copy the shard if its dtype differs; otherwise it is the weights' memory, and up to date."""
        if piece.dtype != self.weights.dtype:
            piece.array[...] = self.weights.piece(param)

    def gather(self, pieces: list[ParamPiece], changed: list[Param]) -> None:
        """Have all processes read the new weights from now on."""
        for piece in pieces:
            if piece.dtype != self.weights.dtype:
                self.weights.piece(piece.slot.param)[...] = piece.array
        self.weights.drop()
        self.grid.world.barrier()
        for param in changed:
            param.bumpVersion()
