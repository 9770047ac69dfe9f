"""Backoff: poll for other processes with growing pauses, so that waiting does not take a core from compute threads."""

from __future__ import annotations

import os
import time
from typing import Any

SPINNING = 2e-3  # seconds of busy polling if each process has a core: waking up takes longer than most messages
EAGER = 1e-4  # seconds of polling with sched_yield, if there are more processes than cores
MIN_SLEEP_SECONDS, MAX_SLEEP_SECONDS = 2e-5, 5e-4  # seconds of sleep between later polls
PAUSE_SHARE = 1 / 32  # pause by time waited so far, if each process has a core: the most by which it delays a wait


class Backoff:
    """Pauses between polls: none at first, then longer and longer ones.

    While the process computes, its threads need the core that polling would take, so each poll is followed by a sleep
    as long as the wait so far.
    """

    def __init__(self, world: Any):
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Start with short pauses again, because more data may follow soon."""
        self.since, self.looks = time.monotonic(), 0

    def pause(self) -> None:
        """Pause until the next poll."""
        self.looks += 1
        isAlone = self.world.hasCores and not self.world.isComputing
        waited = time.monotonic() - self.since
        if self.world.isComputing or waited > (SPINNING if isAlone else EAGER):
            time.sleep(min(max(waited * (PAUSE_SHARE if isAlone else 1), MIN_SLEEP_SECONDS), MAX_SLEEP_SECONDS))
        elif not isAlone and self.looks % 8 == 0:
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(0)
