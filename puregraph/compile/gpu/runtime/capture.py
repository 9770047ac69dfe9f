"""Capture: record consecutive launches as one CUDA graph, which starts with a single call.

The first run starts them one by one: it loads modules, makes plans and allocates workspace. Then a stream captures the
same calls, without allocation or synchronization; later runs launch the graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from puregraph.core.base.uncollected import uncollected
from puregraph.ops.cuda.runtime.perdevice import PerDevice

CAPTURING = threading.RLock()  # held while capturing: an event query by another thread can end a capture


@PerDevice
def capturer() -> Any:
    """The stream that captures."""
    return sys.modules["cupy"].cuda.Stream(non_blocking=True)


class Section:
    """Calls on a GPU with no Python between them.

    `starts`  functions that enqueue the calls on the current stream, in order
    `why`     the reason if they cannot be captured
    `exchange`  runs the section if gradients are exchanged in it, so that all processes do the same; `version` is its
                state
    """

    def __init__(self) -> None:
        self.starts: list[Callable[[], None]] = []
        self.count = 0  # number of steps
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
        """Enqueue all calls on the current stream."""
        for start in self.starts:
            start()
        self.hasRun = True

    def drop(self) -> None:
        """Drop the graph."""
        self.graph = None

    def capture(self) -> None:
        """Capture the calls as a CUDA graph for later runs."""
        stream = capturer()
        with CAPTURING, uncollected(), stream:  # freeing memory during a capture would synchronize
            stream.begin_capture()
            try:
                for start in self.starts:
                    start()
            except Exception as error:
                self.why = f"{type(error).__name__}: {error}"
            try:
                graph = stream.end_capture()
            except Exception as error:  # errors after a capture that has failed already
                self.why = self.why or f"{type(error).__name__}: {error}"
        if not self.why:
            graph.upload(sys.modules["cupy"].cuda.get_current_stream())  # otherwise the next run would wait for it
            self.graph = graph
