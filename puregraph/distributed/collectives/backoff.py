"""Backoff: how who waits for other processes looks again, without taking the core of those who compute."""

from __future__ import annotations

import os
import time
from typing import Any

SPINNING = (
    2e-3  # seconds without a pause where each process has a core: a sleeper wakes up later than most messages come
)
EAGER = 1e-4  # seconds of looks that let others have the core in between, where there are more processes than cores
SHORTEST, LONGEST = 2e-5, 5e-4  # seconds between two looks later on
SHARE = 1 / 32  # of what was waited: the pause of who has a core to itself, so that it waits hardly longer


class Backoff:
    """The pauses between two looks: none at first, then longer and longer ones.

    While the process computes, its threads want the core that looking would take, so each look is followed by a pause,
    as long as all before it together.
    """

    def __init__(self, world: Any):
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Start with short pauses again, because more data may follow soon."""
        self.since, self.looks = time.monotonic(), 0

    def pause(self) -> None:
        """Nothing has come: wait until the next look."""
        self.looks += 1
        isAlone = self.world.hasCores and not self.world.isComputing
        waited = time.monotonic() - self.since
        if self.world.isComputing or waited > (SPINNING if isAlone else EAGER):
            time.sleep(min(max(waited * (SHARE if isAlone else 1), SHORTEST), LONGEST))
        elif not isAlone and self.looks % 8 == 0:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
