"""Mutex: a lock that can tell when its own thread asks for it again, and that a forked process has anew."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

MUTEXES: WeakSet[Mutex] = WeakSet()


class Mutex:
    """A lock: `with mutex.lock:`, which is `threading.RLock`'s own, for nothing in Python may stand in between.

    `isHeld`  set by who must not be entered twice, such as by the handler of a signal in the middle of a run
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.isHeld = False
        MUTEXES.add(self)

    def __reduce__(self) -> tuple:
        return type(self), ()  # a copy is one of its own

    def abandon(self) -> None:
        """In a forked process, where the thread that held it is missing: what it guards may be half done."""
        self.lock, self.isHeld = threading.RLock(), False


def renew() -> None:
    """Free the locks in the child after a fork, except those of the thread that forked."""
    for mutex in list(MUTEXES):
        if mutex.lock.acquire(blocking=False):
            mutex.lock.release()
        else:
            mutex.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
