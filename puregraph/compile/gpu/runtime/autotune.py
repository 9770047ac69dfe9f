"""Autotune: with PUREGRAPH_TUNE=1 libraries are asked for their algorithms, and the fastest one is kept.

A library's first proposal is nearly always good; which one is best depends on the GPU, and is found by measuring. It
is measured in the first run of a step, when its arguments are there and nothing else uses its memory. The choice for
a task serves every program; cuDNN's is cached on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from puregraph.base.environment import variable
from puregraph.cuda.libraries.librarycall import LibraryCall
from puregraph.cuda.runtime import runner
from puregraph.cuda.runtime.perdevice import ordinal

TIMES = 5  # runs of each proposal
KNOWN: set[Any] = set()  # tasks that were measured, each with its GPU


def isWanted() -> bool:
    """Whether tuning is asked for."""
    return bool(variable("TUNE", False))


class Tuned:
    """Puts a library's call on the current stream, after tuning it the first time."""

    def __init__(self, call: LibraryCall, operandAddress: Callable[[Any], int], workspace: int, room: int):
        self.call, self.operandAddress, self.hasRun = call, operandAddress, False
        self.workspace, self.room = workspace, room  # its address, and its bytes

    def __call__(self) -> None:
        if not self.hasRun:
            self.hasRun = True
            self.choose()
        runner.start([self.call], self.operandAddress, self.workspace)

    def choose(self) -> None:
        """Measure proposals that find their workspace; where that fails, the first one stays."""
        task, addresses = self.call.task, [self.operandAddress(what) for _, what in self.call.slots]  # type: ignore[attr-defined]
        if (key := (ordinal(), task)) in KNOWN or getattr(task, "beta", False) or len(set(addresses)) < len(addresses):
            return  # a call that writes over its operand gives something else the second time
        KNOWN.add(key)
        try:
            self.call.tune(addresses, self.workspace, self.room, runner.stream(), seconds)
        except Exception:  # a proposal may fail when it runs
            self.call.prepare(addresses)


def seconds(run: Callable[[], None]) -> float:
    """The time on the GPU of what a function puts on the current stream."""
    cuda = sys.modules["cupy"].cuda
    run()
    first, last = cuda.Event(), cuda.Event()
    first.record()
    for _ in range(TIMES):
        run()
    last.record()
    last.synchronize()
    return cuda.get_elapsed_time(first, last) / 1000 / TIMES
