"""Introspection: five facts that no public interface of Python or numpy gives, and the reasons to need them.

`namesIn`       the names that a function's code reads and writes: a user's rule does not declare them, and compiling
                it requires to know them
`isAlone`       True if memory may be reused: only the reference count shows that no user holds it any more
`errorSettings` numpy's settings as one object, so that a change is detected by one comparison per run;
                `numpy.geterr` makes a dictionary, which takes twenty times as long
`numpyCore`     the library that loads numpy's BLAS, whose thread count is set; the process may have other copies
`callerOf`      the code that sets an attribute: misspelt names are refused from outside a class, not from inside
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.protocols import AnyArray

try:
    from numpy._core.umath import _extobj_contextvar as settings
except ImportError:  # other versions of numpy
    settings: Any = None  # type: ignore[no-redef]
try:
    from numpy._core import _multiarray_umath as core  # type: ignore[attr-defined]
except ImportError:  # other versions of numpy
    core: Any = None  # type: ignore[no-redef]

WRITES = {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "STORE_DEREF"}
ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}


def namesIn(code: CodeType) -> Iterator[tuple[str, str]]:
    """The uses of names in a function's code and its inner functions: ("write", "global" or "attribute", name)."""
    for step in dis.get_instructions(code):
        if step.opname in WRITES:
            yield "write", step.argval
        elif step.opname in GLOBALS:
            yield "global", step.argval
        elif step.opname in ATTRIBUTES:
            yield "attribute", step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from namesIn(inner)


def numpyCore() -> str:
    """The path of numpy's compiled core; empty, which no library is, if it is elsewhere."""
    return getattr(core, "__file__", "")


def isAlone(objects: list[AnyArray], i: int) -> bool:
    """True if this list holds the only reference to its i-th object; false if Python does not count references."""
    return isCounted() and references(objects, i) == ALONE


def references(objects: Sequence[object], i: int) -> int:
    """Return the reference count of the i-th object."""
    return sys.getrefcount(objects[i])


def isCounted() -> bool:
    """True if this Python counts all references."""
    isLocked: Any = getattr(sys, "_is_gil_enabled", lambda: True)
    return hasattr(sys, "getrefcount") and bool(isLocked())


ALONE = references([object()], 0) if isCounted() else 0  # the count without any other reference


# return the object that holds numpy's error settings, a new one after each change; None if unknown
errorSettings: Callable[[], Any] = (lambda: None) if settings is None else settings.get


def callerOf(depth: int) -> FrameType:
    """Return the frame `depth` calls above the caller of this function."""
    return sys._getframe(depth + 1)
