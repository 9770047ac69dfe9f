"""Side stream: a stream for work that may overlap the current stream."""

from __future__ import annotations

import sys
from typing import Any


class SideStream:
    """A stream forked from the current one, and joined to it, by events; during a capture it is captured too.

    A capture that ends while the stream is forked and not joined is an error of CUDA.

    `stream`  the CuPy stream
    """

    def __init__(self) -> None:
        cuda = sys.modules["cupy"].cuda
        self.stream: Any = cuda.Stream(non_blocking=True)
        self.forked, self.joined = cuda.Event(disable_timing=True), cuda.Event(disable_timing=True)

    def fork(self) -> None:
        """Make later work on this stream wait for work already on the current one."""
        self.forked.record(sys.modules["cupy"].cuda.get_current_stream())
        self.stream.wait_event(self.forked)

    def join(self) -> None:
        """Make later work on the current stream wait for work already on this one."""
        self.joined.record(self.stream)
        sys.modules["cupy"].cuda.get_current_stream().wait_event(self.joined)
