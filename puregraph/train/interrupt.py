"""Interrupt: Ctrl-C waits until the current step is complete, and ends a script without a traceback."""

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
    """`with Interrupt() as interrupt:` delays Ctrl-C until the end of the current `interrupt.whole()` block.

    A second Ctrl-C raises KeyboardInterrupt at once; the caller sets `torn` while its work is incomplete. This has no
    effect outside the main thread, which alone gets signals, and if the user has set a handler.

    `shared`  with several processes, a first Ctrl-C waits until all have `agreed`, at the end of a step, to stop
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
            raise KeyboardInterrupt  # asked during the last step, after which no process agrees any more

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: ask the run to stop, or interrupt it at once the second time."""
        if (self.busy or self.shared) and not self.asked:
            self.asked = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Delay a first Ctrl-C until the end of the block."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self.agreed if self.shared else self.asked:
            self.asked = False
            raise KeyboardInterrupt


def endQuietly(error: Any, line: str) -> None:
    """Show `line` in place of the traceback, if this exception ends the script; nothing if it is empty.

    Python still ends by the signal itself, so shells report 130. A notebook shows the line, too. A hook that the user
    or a debugger has set is not replaced.
    """
    setattr(error, INSTEAD, line)
    error._render_traceback_ = lambda: [line or "KeyboardInterrupt"]  # IPython calls this method
    install()
