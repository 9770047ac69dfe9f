"""Environment: the variables PUREGRAPH_..., with their allowed and their current values."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from puregraph.core.base.attributes import nearest
from puregraph.core.errors import PuregraphError

PREFIX = "PUREGRAPH_"
ON, OFF = ("1", "on", "yes", "true"), ("0", "off", "no", "false")
MOSTTHREADS = 512


class EnvironmentVariable(NamedTuple):
    """The allowed values of a variable, for messages, and the function that reads its text; None if not allowed."""

    wanted: str
    read: Callable[[str], Any]


def switch(text: str) -> bool | None:
    """On or off."""
    return True if text.lower() in ON else False if text.lower() in OFF else None


def count(text: str) -> int | None:
    """Read a number of threads."""
    return int(text) if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOSTTHREADS else None


def seconds(text: str) -> float | None:
    """Read a time above 0."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


SWITCH = EnvironmentVariable("1 or 0, on or off, yes or no", switch)
ANY = EnvironmentVariable("a text", str)
VARIABLES = {
    "THREADS": EnvironmentVariable(f"a whole number from 1 to {MOSTTHREADS}", count),
    "NATIVE": SWITCH,
    "CUDNN": SWITCH,
    "TUNE": SWITCH,
    "DETERMINISTIC": SWITCH,
    "OVERLAPLAUNCHES": SWITCH,
    "VERIFY": SWITCH,
    "TRACEBACK": SWITCH,
    "DUMP": ANY,
    "DEVICE": ANY,
    "CACHE": ANY,
    "CPU": ANY,
    "DATA": ANY,
    "EXACT": ANY,
    "STUB": ANY,
    "RUN": ANY,
    "PATIENCE": EnvironmentVariable("a number of seconds above 0", seconds),
}
LOOKED: list[bool] = []


def variable(name: str, default: Any | None = None) -> Any:
    """The value of PUREGRAPH_name; `default` if it is not set, or empty.

    Raises    PuregraphError naming a variable with an invalid value, or with a misspelt name
    """
    if not LOOKED:
        checkNames()
        LOOKED.append(True)
    text = os.environ.get(PREFIX + name, "").strip()
    if not text:
        return default
    value = VARIABLES[name].read(text)
    if value is None:
        raise PuregraphError(f"{PREFIX}{name}: wanted {VARIABLES[name].wanted}, got {text!r}")
    return value


def checkNames() -> None:
    """Refuse names that are misspelt names of variables."""
    for key in os.environ:
        if key.startswith(PREFIX) and key[len(PREFIX) :] not in VARIABLES:
            near = nearest(key, [PREFIX + name for name in VARIABLES])
            if near:
                raise PuregraphError(f"{key}: there is no such variable; did you mean {near}?")
