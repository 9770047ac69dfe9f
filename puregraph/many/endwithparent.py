"""End with parent: a process that Linux asks to end when the one that has started it is gone."""

from __future__ import annotations

import ctypes
import signal
import sys

DEATHSIGNAL = 1  # the option of prctl


def endWithParent(number: int = signal.SIGTERM) -> None:
    """Have Linux send this process a signal when the thread that has started it ends; elsewhere nothing happens."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(DEATHSIGNAL, number)
