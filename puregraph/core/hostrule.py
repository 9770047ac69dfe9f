"""HostRule: rules of modules that compute on the host, for arrays on a GPU too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from puregraph.core.device import isDeviceArray, toHost


def onHost(rule: Callable[..., Any]) -> Callable[..., Any]:
    """`rule`, run on copies on the host where an argument is on a GPU; its arrays are moved back there.

    For rules that loop over the data, or that need functions which CuPy lacks.
    """

    @wraps(rule)
    def run(*args: object, **options: object) -> Any:
        if not any(isDeviceArray(x) for x in flat(args)):
            return rule(*args, **options)
        return mapped(sys.modules["cupy"].asarray, rule(*[mapped(onlyHost, x) for x in args], **options))

    return run


def flat(args: Any) -> list[Any]:
    """Flatten the arguments by one level of lists and tuples."""
    return [x for arg in args for x in (arg if type(arg) in (list, tuple) else (arg,))]


def onlyHost(x: Any) -> Any:
    """A copy of an array on the host; anything else unchanged."""
    return toHost(x) if isDeviceArray(x) else x


def mapped(move: Callable[[Any], Any], value: Any) -> Any:
    """Apply `move` to an array, or to each array in a list or tuple; None stays None."""
    if type(value) in (list, tuple):
        return type(value)(mapped(move, x) for x in value)
    return value if value is None else move(value)
