"""Error state: whether numpy raises on results that are not finite; compiled code cannot, so the graph must run."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.core.base.introspection import errorSettings


class ErrstateCache:
    """The settings checked last, and the answer. numpy creates a new settings object for every change."""

    last: tuple[Any, bool] = None, False


def raises() -> bool:
    """True if numpy is set to raise any arithmetic error, or to pass it to a handler."""
    now = errorSettings()
    seen, answer = ErrstateCache.last
    if now is None or now is not seen:
        answer = not QUIET.issuperset(np.geterr().values())
        ErrstateCache.last = now, answer
    return answer


QUIET = frozenset(("ignore", "warn", "print", "log"))
