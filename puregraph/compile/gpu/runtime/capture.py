"""Capture: consecutive launches become one CUDA graph, which is started at once.

The first run starts them one by one: modules are loaded, plans are made, workspace is allocated. Then a stream
captures the same calls, with nothing allocated and no synchronisation; from then on the graph runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from puregraph.compile.runtime.gc import uncollected
from puregraph.cuda.runtime.perdevice import PerDevice

CAPTURING = threading.RLock()  # of who captures: an event that another thread asks meanwhile can end a capture


@PerDevice
def capturer() -> Any:
    """The stream that captures."""
    return sys.modules["cupy"].cuda.Stream(non_blocking=True)


class Section:
    """Calls on a GPU with no Python between them.

    `starts`  put them on the current stream, one after the other
    `why`     why they are no graph, if they cannot be captured
    `exchange`  runs it where gradients are exchanged in it, since all processes then do alike; `version` is its own
    """

    def __init__(self) -> None:
        self.starts: list[Callable[[], None]] = []
        self.count = 0  # of steps
        self.graph: Any = None
        self.why = ""
        self.hasRun = False
        self.exchange: Any = None
        self.version = 0

    def __call__(self) -> None:
        if self.exchange is not None:
            self.exchange.run(self)
            return
        if self.graph is not None:
            self.graph.launch()
            return
        hasRun = self.hasRun
        self.start()
        if not hasRun:
            self.capture()

    def start(self) -> None:
        """Put all calls on the current stream."""
        for start in self.starts:
            start()
        self.hasRun = True

    def drop(self) -> None:
        """Let go of the graph."""
        self.graph = None

    def capture(self) -> None:
        """Have the next run captured."""
        stream = capturer()
        with CAPTURING, uncollected(), stream:  # freeing memory meanwhile would synchronise
            stream.begin_capture()
            try:
                for start in self.starts:
                    start()
            except Exception as error:
                self.why = f"{type(error).__name__}: {error}"
            try:
                graph = stream.end_capture()
            except Exception as error:  # of a capture that has failed already
                self.why = self.why or f"{type(error).__name__}: {error}"
        if not self.why:
            graph.upload(sys.modules["cupy"].cuda.get_current_stream())  # or the next run would wait for it
            self.graph = graph
