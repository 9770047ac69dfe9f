"""PipelineSchedule: the order in which the stages of a pipeline run microbatches forward and backward."""

from __future__ import annotations

from typing import NamedTuple

BACKWARD_TIME_RATIO = 2  # time of backward, by that of forward


class StageMove(NamedTuple):
    """The forward or backward pass of a microbatch through one stage."""

    isForward: bool
    stage: int
    unit: int


class PipelineSchedule:
    """The 1F1B schedule: a rank runs a microbatch backward as soon as it can, otherwise the next one forward.

    Stage s of k is at position s mod p of p positions. With k = v p each position has v interleaved stages; the last
    stage that is ready goes first. Stage s has at most k - s microbatches between forward and backward. Microbatches
    pass every stage in order.

    `orders`    the moves in order, by position
    `makespan`  the total time if forward takes 1, backward 2, and sends 0
    `bubble`    the fraction of time in which positions are idle

    Source    Narayanan et al. 2019, PipeDream, section 3.2 (1F1B); 2021, arXiv:2104.04473, section 2.2 (interleaved)
    """

    def __init__(self, stages: int, positions: int, units: int):
        self.stages, self.positions, self.units = stages, positions, units
        self.orders: list[list[StageMove]] = [[] for _ in range(positions)]
        self.done: dict[StageMove, int] = {}  # end time by move
        self.forwards, self.backwards = [0] * stages, [0] * stages  # started microbatches by stage
        free, now = [0] * positions, 0
        while any(count < units for count in self.backwards):
            for position in range(positions):
                move = self.choose(position, now) if free[position] <= now else None
                if move is not None:
                    counts = self.forwards if move.isForward else self.backwards
                    counts[move.stage] += 1
                    free[position] = self.done[move] = now + (1 if move.isForward else BACKWARD_TIME_RATIO)
                    self.orders[position].append(move)
            now += 1
        self.makespan = max(free)

    def choose(self, position: int, now: int) -> StageMove | None:
        """Return the move that a position starts now; None if no microbatch is ready."""
        localStages = range(position, self.stages, self.positions)[::-1]
        for stage in localStages:
            unit = self.backwards[stage]
            before = StageMove(False, stage + 1, unit) if stage + 1 < self.stages else StageMove(True, stage, unit)
            if self.isOver(before, now) and self.isOver(StageMove(True, stage, unit), now):
                return StageMove(False, stage, unit)
        for stage in localStages:
            unit = self.forwards[stage]
            isFree = unit < self.units and unit - self.backwards[stage] < self.stages - stage
            if isFree and (not stage or self.isOver(StageMove(True, stage - 1, unit), now)):
                return StageMove(True, stage, unit)
        return None

    def isOver(self, move: StageMove, now: int) -> bool:
        """True if a move is finished."""
        return self.done.get(move, now + 1) <= now

    @property
    def bubble(self) -> float:
        """Return the fraction of time in which positions wait for each other."""
        busy = self.stages * self.units * (1 + BACKWARD_TIME_RATIO)
        return 1 - busy / (self.positions * self.makespan) if self.makespan else 0.0
