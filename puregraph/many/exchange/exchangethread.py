"""ExchangeThread: the one thread that communicates for the training, while the process computes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple

from puregraph.many.exchange.backoff import Backoff
from puregraph.many.world import Pending

Exchange = Generator[Pending, None, Any]


class RunningExchange(NamedTuple):
    """An exchange that was begun: what it waits for, and what it will give."""

    world: Any
    label: str
    exchange: Exchange
    pending: list[Pending]
    future: Future[Any]

    def step(self) -> bool:
        """Go on as far as that is possible without waiting; whether it has gone on at all."""
        moved, world = False, self.world
        try:
            while not self.pending or self.pending[0].isDone():
                moved = True
                if self.pending:
                    self.pending.pop().wait()
                self.pending.append(next(self.exchange))
        except StopIteration as end:
            world.waiting, world.bucket = None, ""  # before the result is there: who has it may wait for others next
            self.future.set_result(end.value)
        except BaseException as error:  # whoever wants the result has it raised
            world.waiting, world.bucket = None, ""
            self.future.set_exception(error)
        return moved or self.future.done()


class ExchangeThread:
    """Takes exchanges one after the other, and goes on with each of them as soon as what it waits for is there.

    An exchange is a generator: it gives each collective that it has started, and is asked again when that is over. So
    of several exchanges that are under way none waits for another one. There is one thread, for of several two could
    be in one collective.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without a thread, as a forked process has none of its parent's."""
        self.given: SimpleQueue[RunningExchange] = SimpleQueue()
        self.futures: set[Future[Any]] = set()
        self.thread: threading.Thread | None = None

    def submit(self, world: Any, label: str, exchange: Exchange) -> Future[Any]:
        """Have an exchange of a world begun behind those that were given before; the future has what it returns."""
        future: Future[Any] = Future()
        self.futures.add(future)
        future.add_done_callback(self.futures.discard)
        self.given.put(RunningExchange(world, label, exchange, [], future))
        if self.thread is None:
            self.thread = threading.Thread(target=self.loop, name="puregraph exchange", daemon=True)
            self.thread.start()
        return future

    def settle(self) -> None:
        """Wait until nothing is under way, whatever became of it."""
        for future in list(self.futures):
            future.exception()

    def loop(self) -> None:
        """What the thread does."""
        while True:
            self.takeAll([self.given.get()])

    def takeAll(self, running: list[RunningExchange]) -> None:
        """Go on with some exchanges, and those that come meanwhile, until all are over."""
        world = running[0].world
        backoff = Backoff(world)
        while running:
            while not self.given.empty():
                running.append(self.given.get())
            if not sum(each.step() for each in running):  # all of them
                backoff.pause()
                continue
            running = [each for each in running if not each.future.done()]
            if running:
                world.waiting, world.bucket = time.monotonic(), running[0].label
            backoff.restart()


EXCHANGING = ExchangeThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=EXCHANGING.renew)
