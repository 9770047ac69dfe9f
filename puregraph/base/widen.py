"""float16 is a dtype to store, float32 the one to compute in."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

HALF = np.dtype(np.float16)


def widened(rule: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`rule`, with float16 arrays passed as float32, and its result cast back to float16."""

    @wraps(rule)
    def wide(*args: Any, **options: Any) -> np.ndarray:
        if not any(map(isHalf, args)):
            return rule(*args, **options)
        return rule(*map(widen, args), **options).astype(np.float16)

    return wide


def isHalf(value: Any) -> bool:
    """Whether `value` is an array of float16."""
    return hasattr(value, "dtype") and value.dtype == HALF


def widen(value: Any) -> Any:
    """`value` in float32 if it is an array of float16, else itself."""
    return value.astype(np.float32) if isHalf(value) else value
