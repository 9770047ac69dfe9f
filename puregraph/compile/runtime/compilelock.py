"""Compile lock: one thread compiles at a time, and the process does not fork meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import PuregraphError

COMPILING = Mutex()
FORK_SECONDS = 60.0  # seconds that a fork waits for a running compilation; after that the child cannot compile
FORKS: list[bool] = []  # whether the lock is held, for each running fork


@contextmanager
def compiling() -> Iterator[None]:
    """Let one thread at a time run the body.

    Raises    PuregraphError if this thread is already compiling, for example in a signal handler
    """
    with COMPILING.lock:
        if COMPILING.isHeld:
            raise PuregraphError(
                "this thread is compiling a program: a signal handler, or a rule that is being traced, must not "
                "compile another one"
            )
        COMPILING.isHeld = True
        try:
            yield
        finally:
            COMPILING.isHeld = False


def beforeFork() -> None:
    """Take the lock: a child would inherit LLVM's locks from a thread that it does not have."""
    FORKS.append(COMPILING.lock.acquire(timeout=FORK_SECONDS))


def afterFork() -> None:
    """Release the lock, in the parent and in the child."""
    if FORKS.pop():
        COMPILING.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=beforeFork, after_in_parent=afterFork, after_in_child=afterFork)
