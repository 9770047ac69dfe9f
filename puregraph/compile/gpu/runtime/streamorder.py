"""Stream order: run programs on a GPU one after another, on any current stream.

Programs share memory, parameters and states. Work on one stream runs in order; a run on another stream has to wait for
the last run.
"""

from __future__ import annotations

import sys
from typing import Any

from puregraph.ops.cuda.runtime.perdevice import PerDevice


class StreamOrder:
    """Knows the stream of the last run on one GPU."""

    def __init__(self) -> None:
        self.last: Any = None  # kept alive: an event is recorded on it when runs move to another stream

    def follow(self) -> None:
        """Make later work on the current stream wait for the last run."""
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
