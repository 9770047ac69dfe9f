"""PartedUpdate: an update of weights of which each process keeps a piece."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.optimizers.slot import Slot
from puregraph.train.together.gradientexchange import GradientExchange
from puregraph.train.together.partedweights import PartedWeights
from puregraph.train.together.shardedupdate import ParamPiece, ShardedUpdate


class PartedUpdate(ShardedUpdate):
    """A ShardedUpdate that leaves the new weights where all processes read them: nobody has to be given any."""

    def __init__(self, trainer: Any, slots: list[Slot], gradients: GradientExchange, weights: PartedWeights):
        self.weights = weights
        super().__init__(trainer, slots, gradients)

    def weightsOf(self, slot: Slot, span: slice) -> np.ndarray:
        return self.weights.piece(slot.param).astype(slot.param.dtype, copy=False)

    def follow(self, piece: ParamPiece) -> None:
        """What there is was updated here, or taken by `PartedWeights.divide`; of another dtype it is a copy."""
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
