"""Signals: which exceptions a signal's handler has raised, and sections that no handler interrupts."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType

NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF", "SIGBREAK")
USUAL = [int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)]  # signals that commonly have handlers
getHandler, setHandler = _signal.getsignal, _signal.signal  # without enums, ten times as fast
VARIADIC = 4  # the flag CO_VARARGS of code with *arguments


def isAsynchronous(error: BaseException) -> bool:
    """True if a signal handler raised the exception; it then has nothing to do with the code that was interrupted.

    A handler's frame is recognized by its code, or by its argument: the interrupted frame.
    """
    codes = {code for handler in handlers() if (code := codeOf(handler)) is not None}
    trace, before = error.__traceback__, None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in codes or (before is not None and isGiven(frame, before)):
            return True
        trace, before = trace.tb_next, frame
    return False


def handlers() -> list[Any]:
    """Return all signal handlers that are Python objects."""
    return [h for h in map(signal.getsignal, signal.valid_signals()) if callable(h)]


def codeOf(handler: object) -> CodeType | None:
    """The code that runs when a function, method, partial or other object is called; None for native code."""
    for name in ("func", "__func__"):  # of a partial, of a method
        handler = getattr(handler, name, handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def isGiven(frame: FrameType, before: FrameType) -> bool:
    """True if a frame has the previous frame among its arguments, as handlers do."""
    code, values = frame.f_code, frame.f_locals
    arguments = [values.get(name) for name in code.co_varnames[: code.co_argcount + bool(code.co_flags & VARIADIC)]]
    return any(x is before for value in arguments for x in (value if type(value) is tuple else (value,)))


class Deferred:
    """Delay signal handlers until the end of the block.

    Only the main thread runs handlers, so other threads do nothing here. This takes one or two microseconds.
    """

    __slots__ = ("before", "heard")

    def __enter__(self) -> None:
        self.before: list[tuple[int, Any]] = []
        self.heard: list[int] = []
        if threading.current_thread() is not threading.main_thread():
            return
        self.before = [(number, handler) for number in USUAL if callable(handler := getHandler(number))]
        try:
            for number, _ in self.before:
                setHandler(number, self.hear)
        except BaseException:
            self.__exit__()
            raise

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Record a signal."""
        self.heard.append(number)

    def __exit__(self, *error: object) -> None:
        try:
            restore(self.before)
        finally:
            raiseAll(list(dict.fromkeys(self.heard)))


def restore(handlers: list[tuple[int, Any]], tries: int = 4) -> None:
    """Restore all handlers, even if one that is already restored raises an exception meanwhile."""
    try:
        for number, handler in handlers:
            setHandler(number, handler)
    except BaseException:
        if tries:
            restore(handlers, tries - 1)
        raise


def raiseAll(numbers: list[int]) -> None:
    """Raise signals one after the other, whatever their handlers do."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            raiseAll(numbers[1:])
