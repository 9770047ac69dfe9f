"""Mutex: a lock that detects reentry by its own thread, and that is free again in a forked process."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

MUTEXES: WeakSet[Mutex] = WeakSet()


class Mutex:
    """A lock: `with mutex.lock:`. That is a plain `threading.RLock`, because a wrapper in Python could be interrupted.

    `isHeld`  set by code that must not be reentered, such as by a signal handler during a run
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.isHeld = False
        MUTEXES.add(self)

    def __reduce__(self) -> tuple:
        return type(self), ()  # a copy has its own lock

    def abandon(self) -> None:
        """Free the lock in a forked process without the thread that held it; the guarded state may be incomplete."""
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
