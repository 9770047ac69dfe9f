"""Short tracebacks: an uncaught error of puregraph shows the user's lines, without puregraph's frames.

The exception itself is not changed: handlers, debuggers, loggers and tests see every frame.
PUREGRAPH_TRACEBACK=1 shows every frame to all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep  # the folder puregraph/
BETWEEN = ("<frozen ", os.path.dirname(contextmanager.__code__.co_filename) + os.sep + "contextlib.py")
MARK = "hasShortTraceback"  # attribute of an exception class
INSTEAD = "shownInstead"  # attribute of an exception: a text to show in place of its traceback


def install() -> None:
    """Install the hook that shortens tracebacks, unless another hook is installed, as by debuggers."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = showError


def showError(kind: Any, error: BaseException, trace: Any) -> None:
    """Print an uncaught exception, as sys.excepthook."""
    instead = getattr(error, INSTEAD, None)
    if instead is None:
        with shortened(error, getattr(kind, MARK, False)) as left:
            sys.__excepthook__(kind, error, error.__traceback__)
        instead = leftOut(left)
    if instead:
        print(instead, file=sys.stderr)


def notebookLines(error: BaseException) -> list[str]:
    """The lines that a notebook shows for an error."""
    from IPython import get_ipython  # installed, as IPython is the caller

    shell = get_ipython().InteractiveTB
    with shortened(error) as left:
        lines = shell.structured_traceback(type(error), error, error.__traceback__, tb_offset=shell.tb_offset)
    return [*lines, *filter(None, [leftOut(left)])]


def leftOut(count: int) -> str:
    """The note with the number of hidden frames, and how to show them."""
    return f"({count} frames within puregraph are not shown: PUREGRAPH_TRACEBACK=1 shows them)" if count else ""


@contextmanager
def shortened(error: BaseException, isWanted: bool = True) -> Iterator[int]:
    """Hide puregraph's frames of an exception and its causes until the block ends; yields the number of hidden frames.

    A cause from inside puregraph is hidden completely, because the message repeats it.
    """
    before = [(link, link.__traceback__, link.__cause__, link.__suppress_context__) for link in chain(error)]
    left = 0
    if isWanted and os.environ.get("PUREGRAPH_TRACEBACK", "").lower() not in ("1", "on", "yes"):
        inner = next((i for i, (_, trace, _, _) in enumerate(before) if i and isInner(trace)), len(before))
        if inner < len(before):
            before[inner - 1][0].__cause__ = None  # this suppresses the context, too
            left += sum(len(framesOf(trace)) for _, trace, _, _ in before[inner:])
        for link, trace, _, _ in before[:inner]:
            link.__traceback__, count = withoutOwn(trace)
            left += count
    try:
        yield left
    finally:
        for link, trace, cause, isSuppressed in before:
            link.__traceback__, link.__cause__ = trace, cause
            link.__suppress_context__ = isSuppressed


def chain(error: BaseException | None) -> list[BaseException]:
    """An exception and its causes."""
    links: list[BaseException] = []
    while error is not None and all(error is not link for link in links):
        links.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return links


def framesOf(trace: TracebackType | None) -> list[TracebackType]:
    """The frames of a traceback, from that which caught the exception to that which raised it."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def installed() -> tuple[str, ...]:
    """The beginnings of paths of code that is not the user's."""
    import sysconfig  # reads Python's Makefile, and only an error needs it

    folders = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    return (PACKAGE, "<frozen ", *(folder + os.sep for folder in folders))


def isInner(trace: TracebackType | None) -> bool:
    """True if an exception was raised and caught inside puregraph, with no user code between."""
    files = [frame.tb_frame.f_code.co_filename for frame in framesOf(trace)]
    return bool(files) and files[0].startswith(PACKAGE) and all(file.startswith(installed()) for file in files)


def withoutOwn(trace: TracebackType | None) -> tuple[TracebackType | None, int]:
    """A traceback without puregraph's frames, and their number; unchanged if there are no others."""
    frames = framesOf(trace)
    kept = [frame for frame in frames if not frame.tb_frame.f_code.co_filename.startswith((PACKAGE, *BETWEEN))]
    if not kept:
        return (frames[0] if frames else None), 0
    shorter: TracebackType | None = None
    for frame in reversed(kept):
        shorter = TracebackType(shorter, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shorter, len(frames) - len(kept)
