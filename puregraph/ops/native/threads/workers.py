"""The worker threads of this process, and the board, the shared memory by which they synchronise."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from puregraph.ops.native.llvm import jit
from puregraph.ops.native.threads import affinity, workerloop
from puregraph.ops.native.threads.pages import AlignedBlock

SMALLEST = 64 << 10
IDLE = 100.0  # microseconds that a worker polls for work after a run before it sleeps
SPIN_MICROSECONDS = 20.0  # microseconds that a thread waits for another one before it yields its CPU
WORD = ctypes.c_int64


class Workers:
    """The calling thread and `count - 1` workers, started when first needed.

    A worker polls for tasks in native code, without the GIL; after a while without any it returns and sleeps on a lock
    that it puts into `asleep`. No thread ever waits for a worker without a task, so a worker may wake up late.
    None in `asleep` stands for workers that are not yet started.
    """

    def __init__(self, count: int) -> None:
        self.run = native("whole", 1, ctypes.c_void_p)
        self.alone = native("alone", 4, result=None)
        self.work = native("work", 2, result=None)
        self.memory = AlignedBlock(8 * workerloop.WORDS)
        self.board = self.memory.address
        self.words = (WORD * workerloop.WORDS).from_address(self.board)
        self.words[workerloop.YIELD] = yielder()
        self.asleep: deque[threading.Lock | None] = deque()
        self.workers: list[threading.Thread] = []
        self.gates: list[threading.Lock] = []
        self.avoided: int | None = None  # the CPU that no worker runs on
        self.scratch: list[AlignedBlock] = []
        self.retired: list[AlignedBlock] = []
        self.lock = threading.RLock()  # a signal handler may fork while this thread holds it
        self.rate = self.measure()
        self.setSpin(IDLE, SPIN_MICROSECONDS)
        self.size = SMALLEST
        self.setCount(count)

    def measure(self) -> float:
        """The number of polls for work per microsecond."""
        times = 4000
        self.words[workerloop.LIMIT] = 1
        self.words[workerloop.IDLE] = times
        spans = []
        for _ in range(4):
            start = time.perf_counter_ns()
            self.work(self.board, 0)
            spans.append(time.perf_counter_ns() - start)
        return 1000 * times / min(spans)

    def setSpin(self, idle: float, patience: float) -> None:
        """For how many microseconds a worker looks for work, and a waiting thread keeps its CPU."""
        self.words[workerloop.IDLE] = round(idle * self.rate)
        self.words[workerloop.PATIENCE] = round(patience * self.rate)

    def setCount(self, count: int) -> None:
        """Set the number of threads, including the calling one."""
        self.stop()
        with self.lock:
            self.count = count
            self.words[workerloop.LIMIT] = count
            self.provide()
            if count > 1:
                self.asleep.append(None)

    def reserve(self, size: int) -> None:
        """Provide at least `size` bytes of scratch memory for each thread."""
        if size > self.size:
            with self.lock:
                self.size = 1 << (size - 1).bit_length()
                self.provide()

    def provide(self) -> None:
        """Allocate scratch memory; the old blocks are kept, since a running task may still use them."""
        for index in range(self.count):
            if index == len(self.scratch) or self.scratch[index].size < self.size:
                block = AlignedBlock(self.size)
                self.retired += self.scratch[index : index + 1]
                self.scratch[index : index + 1] = [block]
                self.words[workerloop.SCRATCH + index] = block.address

    def wake(self) -> None:
        """Wake sleeping workers, and start those that are not yet started."""
        self.spread()
        with suppress(IndexError):  # no worker is left
            while True:
                gate = self.asleep.pop()
                if gate is None:
                    self.start()
                else:
                    gate.release()

    def start(self) -> None:
        """Start the workers."""
        with self.lock:
            for index in range(1, self.count):
                gate = threading.Lock()
                gate.acquire()
                self.gates.append(gate)
                worker = threading.Thread(target=self.serve, args=(index,), name=f"puregraph-{index}", daemon=True)
                self.workers.append(worker)
                worker.start()
            self.avoided = None
            self.spread()

    def spread(self) -> None:
        """Keep the workers off the CPU of the calling thread."""
        cpu = affinity.currentCpu()
        if cpu != self.avoided and self.workers:
            self.avoided = cpu
            affinity.keepOff(cpu, [worker.native_id for worker in self.workers if worker.native_id is not None])

    def serve(self, index: int) -> None:
        """The main loop of a worker.

        A run may begin just before the worker puts its lock into `asleep`, so it checks for work once more.
        """
        gate = self.gates[index - 1]
        while index < self.words[workerloop.LIMIT]:
            self.work(self.board, index)
            self.asleep.append(gate)
            if self.words[workerloop.ACTIVE] == workerloop.RUNNING or index >= self.words[workerloop.LIMIT]:
                with suppress(ValueError):  # a run has already taken its lock
                    self.asleep.remove(gate)
                    continue
            gate.acquire()

    def stop(self, timeout: float | None = None) -> None:
        """End the workers; current and later runs continue without them."""
        with self.lock:
            self.words[workerloop.LIMIT] = 1
            self.asleep.clear()
            for gate in self.gates:
                with suppress(RuntimeError):  # its worker is awake
                    gate.release()
            deadline = None if timeout is None else time.monotonic() + timeout
            for worker in self.workers:
                worker.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            self.workers.clear()
            self.gates.clear()


def native(entry: str, count: int, kind: type = WORD, result: Any = WORD) -> Callable[..., int]:
    """A function of the worker loop, called without the GIL."""
    text = workerloop.codeOf(entry)
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    library = jit.load(f"workerloop {entry}", lambda: (text, (), 0), digest)
    return ctypes.CFUNCTYPE(result, *[kind] * count)(library.address)


def yielder() -> int:
    """The address of the system's function by which a thread yields its CPU."""
    if os.name == "nt":
        function = ctypes.CDLL("kernel32").SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return ctypes.cast(function, ctypes.c_void_p).value or 0
