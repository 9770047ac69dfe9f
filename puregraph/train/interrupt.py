"""Interrupt: Ctrl-C waits for a step to be finished, and for nothing else; a script that it ends shows no traceback."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from puregraph.core.errors.shorttraceback import INSTEAD, install

if TYPE_CHECKING:
    from types import FrameType


class Interrupt:
    """`with Interrupt() as interrupt:` lets Ctrl-C raise KeyboardInterrupt only between pieces that must be whole.

    A second Ctrl-C does not wait; who uses this says with `torn` whether something was then left half-done. Only the
    main thread gets signals, and a handler that somebody has set is left alone: there it does nothing.

    `shared`  of several processes: a first Ctrl-C waits until all have `agreed`, at the end of one step, that one of
              them was asked to stop
    """

    def __init__(self, shared: bool = False) -> None:
        self.shared = shared
        self.busy = self.asked = self.torn = self.agreed = False
        self.before: Any = None

    def __enter__(self) -> Interrupt:
        isMain = threading.current_thread() is threading.main_thread()
        if isMain and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before = signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(self, *error: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
        if self.shared and self.asked and error[0] is None:
            raise KeyboardInterrupt  # after the last step, and so alone

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: ask the run to stop, or interrupt it at once the second time."""
        if (self.busy or self.shared) and not self.asked:
            self.asked = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A piece that is finished, or not begun, when Ctrl-C is heard."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self.agreed if self.shared else self.asked:
            self.asked = False
            raise KeyboardInterrupt


def endQuietly(error: Any, line: str) -> None:
    """Have a script that this exception ends show `line`, unless that is empty, in place of a traceback.

    Python ends as it does after any Ctrl-C, by the signal itself: shells say 130. A notebook shows the line, too. A
    hook that somebody has set, as debuggers do, is left alone.
    """
    setattr(error, INSTEAD, line)
    error._render_traceback_ = lambda: [line or "KeyboardInterrupt"]  # the name that IPython asks for
    install()
