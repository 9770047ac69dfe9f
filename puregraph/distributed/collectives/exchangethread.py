"""ExchangeThread: the one thread that communicates for the training, while the process computes."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from typing import Any

from puregraph.distributed.collectives.backoff import Backoff
from puregraph.distributed.worlds.world import Pending

Exchange = Generator[Pending, None, Any]


class RunningExchange:
    """A running exchange: the collective that it waits for, and the future of its result.

    `isOver`  True if the future is set; unlike `Future.done()` it takes no lock
    """

    __slots__ = ("exchange", "future", "isOver", "label", "pending", "world")

    def __init__(self, world: Any, label: str, exchange: Exchange, future: Future[Any]):
        self.world, self.label, self.exchange, self.future = world, label, exchange, future
        self.pending: Pending | None = None
        self.isOver = False

    def goOn(self) -> bool:
        """Start the next collective if the last one is over. Returns False if it is not."""
        world = self.world
        try:
            if self.pending is not None:
                if not self.pending.isDone():
                    return False
                self.pending.wait()
                self.pending = None
            self.pending = next(self.exchange)
        except StopIteration as end:
            world.waiting, world.bucket = None, ""  # before set_result: its reader may start the next wait at once
            self.isOver = True
            self.future.set_result(end.value)
        except BaseException as error:  # raised again by future.result()
            world.waiting, world.bucket = None, ""
            self.isOver = True
            self.future.set_exception(error)
        return True

    def step(self) -> bool:
        """Advance as far as possible without waiting. Returns True if it made progress, or is over."""
        moved = False
        while not self.isOver and self.goOn():
            moved = True
        return moved or self.isOver


class ExchangeThread:
    """Runs exchanges concurrently in one thread, and advances each as soon as its current collective is over.

    An exchange is a generator that yields each collective that it has started, and is resumed when that is over. So no
    exchange waits for another one. There is one thread, because two could call the same collective; an idle caller may
    run the exchanges itself with `drive`.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without a thread, as a forked process has none of its parent's."""
        self.given: deque[RunningExchange] = deque()
        self.running: list[RunningExchange] = []
        self.turn, self.lock, self.wake = threading.Lock(), threading.Lock(), threading.Event()
        self.thread: threading.Thread | None = None

    def submit(self, world: Any, label: str, exchange: Exchange, isDriven: bool = False) -> Future[Any]:
        """Queue an exchange of a world; the future holds its result.

        The first collective is started here: waking the thread may take longer than sending all data. If the thread is
        awake, it starts the collective itself. With `isDriven` the thread stays asleep, because `drive` comes next.
        """
        future: Future[Any] = Future()
        running = RunningExchange(world, label, exchange, future)
        if not isDriven and not self.given and self.lock.acquire(blocking=False):
            try:
                running.goOn()
            finally:
                self.lock.release()
        self.given.append(running)
        if not isDriven:
            if self.thread is None:
                self.thread = threading.Thread(target=self.loop, name="puregraph exchange", daemon=True)
                self.thread.start()
            self.wake.set()
        return future

    def drive(self, futures: Sequence[Future[Any]]) -> None:
        """Run the exchanges in the calling thread until these futures are set; the exchange thread pauses meanwhile."""
        with self.turn, self.lock:
            backoff: Backoff | None = None
            left = [future for future in futures if not future.done()]
            while left:
                if self.advance() or backoff is None:
                    backoff = Backoff(self.running[0].world) if self.running else None
                    left = [future for future in left if not future.done()]
                else:
                    backoff.pause()
        if self.running or self.given:
            self.wake.set()

    def settle(self) -> None:
        """Wait until no exchange is running, even if some failed."""
        self.drive([exchange.future for exchange in (*self.running, *self.given)])

    def advance(self) -> bool:
        """Advance all running exchanges as far as possible. Returns True if any made progress."""
        isNew = bool(self.given)
        while self.given:
            self.running.append(self.given.popleft())
        if not sum(exchange.step() for exchange in self.running) and not isNew:  # sum, not any: step all of them
            return False
        self.running = [exchange for exchange in self.running if not exchange.isOver]
        if self.running:
            first = self.running[0]
            first.world.waiting, first.world.bucket = time.monotonic(), first.label
        return True

    def loop(self) -> None:
        """Run the exchanges in the thread."""
        while True:
            self.wake.wait()
            self.wake.clear()
            backoff: Backoff | None = None
            while self.running or self.given:
                with self.turn:  # a thread in `drive` holds it
                    pass
                with self.lock:
                    hasMoved, running = self.advance(), self.running
                if hasMoved or backoff is None:
                    backoff = Backoff(running[0].world) if running else None
                else:
                    backoff.pause()


EXCHANGING = ExchangeThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=EXCHANGING.renew)
