"""User warnings: show the user's own line, however deep inside puregraph they are raised."""

from __future__ import annotations

import warnings
from inspect import currentframe
from typing import Any

from puregraph.core.errors.shorttraceback import BETWEEN, PACKAGE


def warnUser(text: str, category: type[Warning]) -> None:
    """Give a warning at the first line outside of puregraph that led here.

    `warnings.warn(skip_file_prefixes=...)` does it from Python 3.12 on; here every Python does alike.
    """
    from puregraph.core.errors import printable

    frame = userFrame()
    names = frame.f_globals
    warnings.warn_explicit(
        printable(text),
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__", "<string>"),  # with None, nothing would be shown
        names.setdefault("__warningregistry__", {}),
    )


def userFrame() -> Any:
    """Return the innermost frame outside of puregraph's code."""
    frame: Any = currentframe()
    while frame.f_code.co_filename.startswith((PACKAGE, *BETWEEN)) and frame.f_back is not None:
        frame = frame.f_back
    return frame
