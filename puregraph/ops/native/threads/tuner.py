"""The tuner: measures whether steps run faster on all threads or on one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any

WARM = 8  # runs before anything is measured
TRIAL_RUNS = 5  # runs of each kind in a trial; the first run of the other kind has its data in the wrong cache
MAX_LOSING_RUNS = 3  # a trial ends early after this many runs, if all of them took much longer
MIN_TRIAL_GAP, MAX_TRIAL_GAP = (
    16,
    2048,
)  # minimum and maximum runs between trials; they double after a trial that changes nothing
MAX_TUNED_NANOSECONDS = 12_000_000  # nanoseconds; longer runs always use all threads
HOPELESS_RATIO, BETTER_RATIO = 1.5, 0.95


class ThreadTuner:
    """Counts runs, and measures some of them: `isAlone` says whether one thread was faster.

    All threads are not always faster than one: between cores without a common cache, written cache lines move very
    slowly, and small steps that write much are fastest on one thread. Which cores threads run on is unknown, and
    changes.

    `left`  the number of runs before the next measured one
    """

    def __init__(self) -> None:
        self.isAlone = False
        self.left = WARM
        self.gap = MIN_TRIAL_GAP
        self.spent = 0
        self.trial: Generator[None, None, None] | None = None
        self.lock = threading.Lock()

    def run(self, go: Callable[[bool], Any]) -> None:
        """Call `go(isAlone)`, measured unless another thread is measuring; `left` stays 0 until a trial is over."""
        if not self.lock.acquire(blocking=False):
            go(self.isAlone)
            return
        try:
            if self.trial is None:
                self.trial = self.trying()
                next(self.trial)
            start = perf_counter_ns()
            go(self.isAlone)
            self.spent = perf_counter_ns() - start
            if next(self.trial, self) is self:
                self.trial = None
        finally:
            self.lock.release()

    def trying(self) -> Generator[None, None, None]:
        """A trial, as a generator that yields before each run."""
        before = self.isAlone
        best = yield from self.shortest(MAX_TUNED_NANOSECONDS)
        if best < MAX_TUNED_NANOSECONDS:
            self.isAlone = not before
            other = yield from self.shortest(HOPELESS_RATIO * best)
            self.isAlone = not before if other < BETTER_RATIO * best else before
        self.gap = MIN_TRIAL_GAP if self.isAlone is not before else min(2 * self.gap, MAX_TRIAL_GAP)
        self.left = self.gap

    def shortest(self, limit: float) -> Generator[None, None, float]:
        """The time of the shortest of some runs, or the limit if none takes less."""
        best = limit
        for i in range(1, TRIAL_RUNS + 1):
            yield
            best = min(best, self.spent)
            if best == limit and i == MAX_LOSING_RUNS:
                break
        return best
