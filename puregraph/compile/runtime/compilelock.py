"""Compiling: one thread does it at a time, and the process does not fork meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from puregraph.base.mutex import Mutex
from puregraph.errors import PuregraphError

COMPILING = Mutex()
PATIENCE = 60.0  # seconds that a fork waits for a compilation that is under way; its child could then not compile
FORKS: list[bool] = []  # whether the lock is held for each fork that is under way


@contextmanager
def compiling() -> Iterator[None]:
    """What is done inside is done by one thread at a time.

    Raises    PuregraphError if it is this very thread that compiles: a signal's handler came in between
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
    """LLVM has locks of its own, which a child would inherit from a thread that is not there."""
    FORKS.append(COMPILING.lock.acquire(timeout=PATIENCE))


def afterFork() -> None:
    """In the parent and in the child."""
    if FORKS.pop():
        COMPILING.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=beforeFork, after_in_parent=afterFork, after_in_child=afterFork)
