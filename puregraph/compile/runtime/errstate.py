"""Quiet: whether numpy raises where a number is not finite, which only the graph itself can do."""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from numpy._core.umath import _extobj_contextvar as settings
except ImportError:  # a numpy that keeps its settings elsewhere
    settings: Any = None  # type: ignore[no-redef]


class ErrstateCache:
    """The settings that were looked at last, and what they say: numpy makes new ones for every change."""

    found: tuple[Any, bool] = None, False


def raises() -> bool:
    """Whether any error of arithmetic is to be raised, or told to somebody."""
    now = None if settings is None else settings.get()
    seen, answer = ErrstateCache.found
    if now is None or now is not seen:
        answer = not QUIET.issuperset(np.geterr().values())
        ErrstateCache.found = now, answer
    return answer


QUIET = frozenset(("ignore", "warn", "print", "log"))
