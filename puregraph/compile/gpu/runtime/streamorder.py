"""Stream order: runs of programs on a GPU come one after the other, whichever stream is current.

Programs share memory, parameters and states. What is put on one stream is done in order; a run on another one has
to wait for the last.
"""

from __future__ import annotations

import sys
from typing import Any

from puregraph.cuda.runtime.perdevice import PerDevice


class StreamOrder:
    """Knows the stream of the last run on one GPU."""

    def __init__(self) -> None:
        self.last: Any = None  # kept alive: an event is recorded there once runs move to another one

    def follow(self) -> None:
        """Have what comes on the current stream wait for the last run."""
        cuda = sys.modules["cupy"].cuda
        stream = cuda.get_current_stream()
        if self.last is not None and self.last.ptr != stream.ptr:
            done = cuda.Event(disable_timing=True)
            done.record(self.last)
            stream.wait_event(done)
        self.last = stream


@PerDevice
def order() -> StreamOrder:
    """The order of runs on the current GPU."""
    return StreamOrder()
