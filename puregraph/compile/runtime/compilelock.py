"""Compile lock: one thread compiles at a time, and the process does not fork meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from puregraph.base.mutex import Mutex
from puregraph.errors import PuregraphError

COMPILING = Mutex()
PATIENCE = 60.0  # seconds that a fork waits for a running compilation; its child could then not compile
FORKS: list[bool] = []  # whether the lock is held, for each running fork


@contextmanager
def compiling() -> Iterator[None]:
    """One thread at a time runs the body.

    Raises    PuregraphError if this very thread compiles already: a signal's handler came in between
    """
    with COMPILING.lock:
        if COMPILING.isHeld:
            raise PuregraphError(
                "this thread is compiling a program: a signal's handler that comes in between, or a rule that is just "
                "being read, cannot compile another one"
            )
        COMPILING.isHeld = True
        try:
            yield
        finally:
            COMPILING.isHeld = False


def beforeFork() -> None:
    """LLVM has locks of its own, which a child would inherit from a thread that it does not have."""
    FORKS.append(COMPILING.lock.acquire(timeout=PATIENCE))


def afterFork() -> None:
    """In the parent and in the child."""
    if FORKS.pop():
        COMPILING.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=beforeFork, after_in_parent=afterFork, after_in_child=afterFork)
