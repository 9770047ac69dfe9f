"""Capture: launches that follow one another become one graph of CUDA, which is started at once.

The first run starts them one by one: modules are loaded, plans are made, the library's own memory is taken. Then a
stream captures what the same calls put on it, with nothing allocated and nobody waiting; from then on the graph runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from puregraph.compile.runtime.gc import uncollected


@cache
def capturer() -> Any:
    """The stream that captures."""
    return sys.modules["cupy"].cuda.Stream(non_blocking=True)


class Section:
    """Calls of a GPU with nothing between them that is Python's.

    `starts`  put them on the current stream, one after the other
    `why`     they are no graph, if they cannot be captured
    """

    def __init__(self) -> None:
        self.starts: list[Callable[[], None]] = []
        self.count = 0  # of steps
        self.graph: Any = None
        self.why = ""
        self.hasRun = False

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.launch()
            return
        for start in self.starts:
            start()
        if not self.hasRun:
            self.hasRun = True
            self.capture()

    def capture(self) -> None:
        """Have the next run be a graph."""
        stream = capturer()
        with uncollected(), stream:  # what is freed meanwhile would be waited for
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
            self.graph = graph
