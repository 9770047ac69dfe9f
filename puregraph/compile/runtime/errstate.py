"""Error state: whether numpy raises where a result is not finite, which only the graph itself can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.base.introspection import errorSettings


class ErrstateCache:
    """The settings that were checked last, and the result: numpy creates a new object for every change."""

    last: tuple[Any, bool] = None, False


def raises() -> bool:
    """Whether any arithmetic error is to be raised, or passed to a handler."""
    now = errorSettings()
    seen, answer = ErrstateCache.last
    if now is None or now is not seen:
        answer = not QUIET.issuperset(np.geterr().values())
        ErrstateCache.last = now, answer
    return answer


QUIET = frozenset(("ignore", "warn", "print", "log"))
