"""The thread pool of this process, and the tables of steps that it runs."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from puregraph.core.base.mutex import Mutex
from puregraph.ops.native.threads import workerloop
from puregraph.ops.native.threads.numthreads import threads, want
from puregraph.ops.native.threads.pages import AlignedBlock
from puregraph.ops.native.threads.tuner import ThreadTuner
from puregraph.ops.native.threads.workerloop import SINGLY, TOGETHER
from puregraph.ops.native.threads.workers import Workers

STEP = 8 * workerloop.RECORDWORDS
FOREVER = 1 << 62
LOCK = Mutex()
OWN = threading.local()
POOLS: list[Workers] = []

__all__ = ["SINGLY", "TOGETHER", "StepTable", "setSpin", "setThreads", "threads"]


class StepTable:
    """Steps of native code, run in their order by all threads of the pool.

    steps      (address of a function, address of its arguments, number of tasks[, TOGETHER or SINGLY]) each; the
               function is called with the address of the arguments, the number of a task and the address of scratch
               memory. Any thread may run any task of a step; with SINGLY, one thread runs all its tasks. A step begins
               when all tasks of the previous step have ended
    scratch    bytes of scratch memory of the largest step
    flush      whether denormal numbers become zero
    wake       whether a run is long enough to wake sleeping threads for it
    keep       objects that have to live as long as the table: arrays, arguments

    `after` counts runs: `begin` is called before each run, and `go` after it, again if a signal handler raised
    meanwhile.

    Raises    ValueError for a step without a task, or with 2**21 or more
    """

    def __init__(
        self, steps: Iterable[Sequence[int]], scratch: int = 0, flush: bool = True, wake: bool = True, keep: Any = None
    ) -> None:
        rows = [(*step, TOGETHER)[: workerloop.RECORDWORDS] for step in steps]
        for index, (_, _, tasks, _) in enumerate(rows):
            if not 0 < tasks <= workerloop.FIELD:
                raise ValueError(f"step {index} of a table has {tasks} tasks: it needs at least 1, less than 2**21")
        self.count = len(rows)
        self.memory = AlignedBlock(STEP * self.count)
        records = (ctypes.c_int64 * (workerloop.RECORDWORDS * self.count)).from_address(self.memory.address)
        records[:] = [word for row in rows for word in row]
        self.wide = [0]  # at i: the number of steps for several threads among the first i steps
        for _, _, tasks, how in rows:
            self.wide.append(self.wide[-1] + (tasks > 1 and how == TOGETHER))
        self.scratch = scratch
        self.flush = flush
        self.wake = wake
        self.keep = keep
        self.after: Any = None
        self.join(threadPool())

    def __len__(self) -> int:
        return self.count

    def __call__(self) -> None:
        """Run all steps, on one thread if that has proved faster; returns when they are done."""
        tuner = self.tuner
        if tuner.left:
            tuner.left -= 1
            self.go(tuner.isAlone)
        else:
            tuner.run(self.go)

    def go(self, isAlone: bool) -> None:
        """Run all steps, on one thread or on all."""
        pool = POOLS[0] if POOLS else threadPool()
        if pool is not self.pool:
            self.join(pool)
        if not isAlone and pool.asleep and self.wakes:
            pool.wake()
        order = self.single if isAlone else self.order
        if self.after is None:
            if not pool.run(order):
                self.alone(0, self.count)
            return
        self.runCounted(pool, order)

    def runCounted(self, pool: Workers, order: Any) -> None:
        """Run all steps and count the run, but only if it was completed, even if a signal handler raises meanwhile."""
        ran: list[int] = []
        after = self.after
        after.begin()
        try:
            ran += map(pool.run, (order,))  # one call in C: no handler can run before the result is stored
            if ran[0] == 0:
                ran.clear()
                ran += map(pool.alone, *zip(self.wordsAlone(0, self.count)))
            after.go()
        except BaseException:
            if ran and ran[0] != 0:
                after.go()
            raise

    def join(self, pool: Workers) -> None:
        """Prepare the orders for a run of all steps by these workers; after a fork, the workers are new."""
        pool.reserve(self.scratch)
        self.tuner = ThreadTuner()  # another thread may have been in a trial when the process forked
        self.words = [self.wordsFor(pool, 0, self.count, isAlone) for isAlone in (False, True)]
        self.order, self.single = [ctypes.c_void_p(ctypes.addressof(words)) for words in self.words]
        self.wakes = bool(self.wake and self.wide[-1])
        if pool.count == 1 or not self.wide[-1]:
            self.tuner.left = FOREVER
        self.pool = pool

    def wordsFor(self, pool: Workers, begin: int, end: int, isAlone: bool = False) -> Any:
        """The order for a run of some steps: the words that the worker loop reads."""
        first, wide = self.memory.address, 0 if isAlone else self.wide[end] - self.wide[begin]
        words = pool.board, first + STEP * begin, first + STEP * end, int(self.flush), wide
        return (ctypes.c_int64 * workerloop.ORDERWORDS)(*words)

    def run(self, begin: int = 0, end: int | None = None) -> None:
        """Run the steps from `begin` to before `end`; returns when all are done."""
        if end is None:
            end = self.count
        if not 0 <= begin <= end <= self.count:
            raise IndexError(f"a table of {self.count} steps has none from {begin} to {end}")
        pool = POOLS[0] if POOLS else threadPool()
        if pool is not self.pool:
            self.join(pool)
        if self.wake and pool.asleep and self.wide[end] > self.wide[begin]:
            pool.wake()
        words = self.wordsFor(pool, begin, end)
        if not pool.run(ctypes.addressof(words)):
            self.alone(begin, end)

    def alone(self, begin: int, end: int) -> None:
        """Run steps on the calling thread, while another thread's run uses the pool."""
        POOLS[0].alone(*self.wordsAlone(begin, end))

    def wordsAlone(self, begin: int, end: int) -> tuple[int, int, int, bool]:
        """The arguments of a run of some steps by one thread."""
        first = self.memory.address
        return first + STEP * begin, first + STEP * end, self.spare(), self.flush

    def spare(self) -> int:
        """Scratch memory of the calling thread, for such a run."""
        if getattr(OWN, "block", None) is None or OWN.block.size < self.scratch:
            OWN.block = AlignedBlock(self.scratch)
        return OWN.block.address


def threadPool() -> Workers:
    """The workers of this process, created when they are first needed."""
    with LOCK.lock:
        if not POOLS:
            POOLS.append(Workers(threads()))
        return POOLS[0]


def setThreads(count: int) -> None:
    """Set the number of threads that run tasks, including the calling one. Results do not depend on it."""
    want(count)
    if POOLS:
        POOLS[0].setCount(count)


def setSpin(idle: float, patience: float) -> None:
    """For how many microseconds workers look for work after a run, and for how many a waiting thread keeps its CPU."""
    threadPool().setSpin(idle, patience)


def beforeFork() -> None:
    """Before a fork: end the workers, which would be missing in the child."""
    for pool in POOLS:
        pool.stop()


def afterForkInParent() -> None:
    """After a fork, in the parent."""
    for pool in POOLS:
        pool.setCount(pool.count)


def afterForkInChild() -> None:
    """After a fork, in the child: another thread of the parent may have been in the middle of a run."""
    POOLS.clear()
    OWN.__dict__.clear()


def atInterpreterExit() -> None:
    """Stop the threads before the interpreter ends; later steps run in one thread."""
    for pool in POOLS:
        pool.stop(timeout=1)
        pool.count = 1


atexit.register(atInterpreterExit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=beforeFork, after_in_parent=afterForkInParent, after_in_child=afterForkInChild)
