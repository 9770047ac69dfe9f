"""Autotune: with PUREGRAPH_TUNE=1, measure the algorithms that libraries propose and keep the fastest.

A library's first proposal is nearly always good; the best one depends on the GPU. Measuring happens in the first run
of a step, when the arguments exist and nothing else uses their memory. The choice for a task serves every program;
cuDNN's choices are cached on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from puregraph.core.base.environment import variable
from puregraph.ops.cuda.libraries.librarycall import LibraryCall
from puregraph.ops.cuda.runtime import runner
from puregraph.ops.cuda.runtime.perdevice import ordinal

TIMES = 5  # runs of each proposal
KNOWN: set[Any] = set()  # measured tasks, with their GPU


def isWanted() -> bool:
    """True if PUREGRAPH_TUNE asks for tuning."""
    return bool(variable("TUNE", False))


class Tuned:
    """Enqueues a library call on the current stream, and tunes it before the first time."""

    def __init__(self, call: LibraryCall, operandAddress: Callable[[Any], int], workspace: int, room: int):
        self.call, self.operandAddress, self.hasRun = call, operandAddress, False
        self.workspace, self.room = workspace, room  # the workspace's address and bytes

    def __call__(self) -> None:
        if not self.hasRun:
            self.hasRun = True
            self.choose()
        runner.start([self.call], self.operandAddress, self.workspace)

    def choose(self) -> None:
        """Measure the proposals that fit the workspace; if that fails, keep the first one."""
        task, addresses = self.call.task, [self.operandAddress(what) for _, what in self.call.slots]  # type: ignore[attr-defined]
        if (key := (ordinal(), task)) in KNOWN or getattr(task, "beta", False) or len(set(addresses)) < len(addresses):
            return  # a call that overwrites its operand cannot be repeated
        KNOWN.add(key)
        try:
            self.call.tune(addresses, self.workspace, self.room, runner.stream(), seconds)
        except Exception:  # a proposal may fail when it runs
            self.call.prepare(addresses)


def seconds(run: Callable[[], None]) -> float:
    """The GPU time of the work that a function enqueues on the current stream."""
    cuda = sys.modules["cupy"].cuda
    run()
    first, last = cuda.Event(), cuda.Event()
    first.record()
    for _ in range(TIMES):
        run()
    last.record()
    last.synchronize()
    return cuda.get_elapsed_time(first, last) / 1000 / TIMES
