"""Tuning: with PUREGRAPH_TUNE=1 libraries are asked for all their proposals, and the fastest one is kept.

A library's first proposal is nearly always good; which one is best depends on the GPU, and is found by trying. It is
tried where it stands in the first run of a step, when its arguments are there and nothing else has its memory. The
choice for a task serves every program; cuDNN's is kept on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from puregraph.base.environment import variable
from puregraph.cuda.libraries.librarycall import LibraryCall
from puregraph.cuda.runtime import runner

TIMES = 5  # that each proposal runs
KNOWN: set[Any] = set()  # tasks that were tried


def isWanted() -> bool:
    """Whether somebody asks for that."""
    return bool(variable("TUNE", False))


class Tuned:
    """What puts a library's call on the current stream, and has it tried before it first does so."""

    def __init__(self, call: LibraryCall, place: Callable[[Any], int], workspace: int):
        self.call, self.place, self.workspace, self.hasRun = call, place, workspace, False

    def __call__(self) -> None:
        if not self.hasRun:
            self.hasRun = True
            self.choose()
        runner.start([self.call], self.place, self.workspace)

    def choose(self) -> None:
        """Try all proposals that need no more memory than was planned; where that fails, the first one stays."""
        task, addresses = self.call.task, [self.place(what) for _, what in self.call.slots]  # type: ignore[attr-defined]
        if task in KNOWN or getattr(task, "beta", 0) or len(set(addresses)) < len(addresses):
            return  # what is written over what was read gives something else the second time
        KNOWN.add(task)
        try:
            self.call.tune(addresses, self.workspace, self.call.workspace, runner.stream(), seconds)
        except Exception:  # of a proposal that does not keep what it promises
            self.call.prepare(addresses)


def seconds(run: Callable[[], None]) -> float:
    """How long a function takes on the GPU that puts something on the current stream."""
    cuda = sys.modules["cupy"].cuda
    run()
    first, last = cuda.Event(), cuda.Event()
    first.record()
    for _ in range(TIMES):
        run()
    last.record()
    last.synchronize()
    return cuda.get_elapsed_time(first, last) / 1000 / TIMES
