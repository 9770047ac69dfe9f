"""ShardUpdate: an update of sharded weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.distributed.dataparallel.gradientexchange import GradientExchange
from puregraph.distributed.dataparallel.shardedupdate import ParamPiece, ShardedUpdate
from puregraph.distributed.dataparallel.shardedweights import ShardedWeights
from puregraph.optimizers.slot import Slot


class ShardUpdate(ShardedUpdate):
    """A ShardedUpdate that writes new weights to memory that all ranks read, without an all-gather."""

    def __init__(self, trainer: Any, slots: list[Slot], gradients: GradientExchange, weights: ShardedWeights):
        self.weights = weights
        super().__init__(trainer, slots, gradients)

    def weightsOf(self, slot: Slot, span: slice) -> np.ndarray:
        return self.weights.piece(slot.param).astype(slot.param.dtype, copy=False)

    def follow(self, piece: ParamPiece) -> None:
        """Copy the shard if its dtype differs; otherwise it is the weights' memory, and up to date."""
        if piece.dtype != self.weights.dtype:
            piece.array[...] = self.weights.piece(piece.slot.param)

    def gather(self, changed: list[Slot]) -> None:
        """Have all processes read the new weights from now on."""
        for piece in self.pieces:
            if piece.dtype != self.weights.dtype:
                self.weights.piece(piece.slot.param)[...] = piece.array
        self.weights.drop()
        self.world.barrier()
        for slot in changed:
            slot.param.bumpVersion()
