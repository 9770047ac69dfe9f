"""Uncollected: code that makes many objects at once, without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FROZEN = {"by others": False}  # True from the first time on that frozen objects were counted


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off: it would traverse all new objects again and again.

    Afterwards the new objects count as old ones, which the next full collection traverses. A process that has frozen
    objects keeps them frozen, and its next collection traverses the new objects.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            if not othersFroze():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def othersFroze() -> bool:
    """Return whether this process has frozen objects. Counting walks through all of them, so they are counted once."""
    FROZEN["by others"] = FROZEN["by others"] or gc.get_freeze_count() > 0
    return FROZEN["by others"]
