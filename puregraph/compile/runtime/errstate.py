"""Quiet: whether numpy raises where a number is not finite, which only the graph itself can do."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.base.introspection import errorSettings


class ErrstateCache:
    """The settings that were looked at last, and what they say: numpy makes new ones for every change."""

    found: tuple[Any, bool] = None, False


def raises() -> bool:
    """Whether any error of arithmetic is to be raised, or told to somebody."""
    now = errorSettings()
    seen, answer = ErrstateCache.found
    if now is None or now is not seen:
        answer = not QUIET.issuperset(np.geterr().values())
        ErrstateCache.found = now, answer
    return answer


QUIET = frozenset(("ignore", "warn", "print", "log"))
