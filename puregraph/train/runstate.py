"""RunState: the changing state of a Trainer's run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np


@dataclass
class RunState:
    """The progress of a run, which spans all calls of `train` until it has ended.

    `epoch`      finished epochs; `first`: those before this run; `until`: those after it
    `step`       all steps; `position`: those of the current epoch; `count`: those that an epoch has, None if unknown
    `begun`      True during an epoch; `samples` and `order`: the number and the order of its samples
    `running`    True until the run is complete
    `stopped`    True if it was asked to stop; `stopsNow`: after this step; `reason`: the reason
    `total`      the optimizer's updates at the end of the run
    `lastRate`   the learning rate of the last step
    `elapsed`    seconds of the current epoch before an interruption; `clock`: the time of its start or continuation
    `ignored`    the numbers of labels that the cost ignores in the first epoch, and of all labels; None once reported
    `validates`  True if each epoch is followed by a validation
    `isLookedAt` True once the first batch was checked for probable mistakes

    >>> run = RunState(first=2, epoch=2)
    >>> run.isFresh, run.passed()
    (True, 0.0)
    """

    epoch: int = 0
    step: int = 0
    first: int = 0
    until: int = 0
    position: int = 0
    begun: bool = False
    running: bool = False
    stopped: bool = False
    stopsNow: bool = False
    reason: str = ""
    lastRate: float = 0.0
    samples: int | None = None
    order: np.ndarray | None = None
    total: int | None = None
    count: int | None = None
    elapsed: float = 0.0
    clock: float = field(default_factory=time.perf_counter)
    ignored: np.ndarray | None = None
    validates: bool = False
    isLookedAt: bool = False

    @property
    def isFresh(self) -> bool:
        """True if the run has not made a step yet."""
        return self.epoch == self.first and not self.position

    @property
    def stopsHere(self) -> bool:
        """True if the run will end after the current step."""
        return self.stopped and self.stopsNow

    def passed(self) -> float:
        """Seconds of the epoch so far, without the time between stop and resume."""
        return self.elapsed + time.perf_counter() - self.clock if self.begun else 0.0

    def closeEpoch(self) -> None:
        """Clear the state of the current epoch."""
        self.begun, self.position, self.elapsed, self.order, self.samples = False, 0, 0.0, None, None


def shown(name: str, doc: str) -> property:
    """A property of a Trainer that shows a value of its run."""
    return property(lambda trainer: getattr(trainer.runState, name), doc=doc)
