"""DeviceProgress: the running exchanges between GPUs, so that a watchdog can see one that hangs."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from puregraph.compile.gpu.runtime.capture import CAPTURING


class DeviceProgress:
    """Exchanges in order, each with an event recorded after it.

    `done`  the number of finished exchanges
    """

    def __init__(self) -> None:
        self.done = 0
        self.open: deque[list[Any]] = deque()  # since when each runs, and its event

    @contextmanager
    def noting(self, stream: Any = None) -> Iterator[None]:
        """Note the work put on a stream inside the block, by default the current one, as an exchange."""
        cuda, entry = sys.modules["cupy"].cuda, [time.monotonic(), None]
        self.open.append(entry)  # before the call, which itself may wait for other processes
        yield
        event = cuda.Event(disable_timing=True)
        event.record(stream or cuda.get_current_stream())
        entry[1] = event

    def since(self) -> float | None:
        """Return since when the oldest unfinished exchange runs; None if there is none, or while a stream captures."""
        if not CAPTURING.acquire(blocking=False):
            return None
        try:
            while self.open and self.open[0][1] is not None and self.open[0][1].done:
                self.open.popleft()
                self.done += 1
                if self.open:
                    self.open[0][0] = time.monotonic()
            return self.open[0][0] if self.open else None
        finally:
            CAPTURING.release()
