"""The switch that records operations: one per thread, initially on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puregraph.autodiff.tape.variable import Variable


class Mode(threading.local):
    """The recording switch of one thread."""

    enabled = True


MODE = Mode()


def is_grad_enabled() -> bool:
    """True if operations on Variables are recorded in this thread."""
    return MODE.enabled


class set_grad_enabled:  # noqa: N801 - torch's name
    """Switch the recording of operations on or off; as `with set_grad_enabled(False):` in a block, as @ in a function.

    >>> with set_grad_enabled(False):
    ...     print(is_grad_enabled())
    False
    """

    def __init__(self, mode: bool):
        self.before = MODE.enabled
        MODE.enabled = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        MODE.enabled = self.before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function so that only its calls run in this mode."""
        mode, MODE.enabled = MODE.enabled, self.before
        return (enable_grad if mode else no_grad)(function)


class Switch:
    """A switch for a block or for a function: `with no_grad():`, `@no_grad()`, and `@no_grad` alike."""

    mode: bool
    function: Callable[..., Any] | None = None

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        self.before = []
        return self if function is None else self(function)

    before: list[bool]

    def __enter__(self) -> None:
        self.before.append(MODE.enabled)
        MODE.enabled = self.mode

    def __exit__(self, *error: object) -> None:
        MODE.enabled = self.before.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Variable, **options: object) -> Variable:
            with type(self)():
                return function(*arguments, **options)

        return call


class no_grad(Switch):  # noqa: N801 - torch's name
    """Operations inside are not recorded: their results are leaves that need no gradient."""

    mode = False


class enable_grad(Switch):  # noqa: N801 - torch's name
    """Operations inside are recorded, also within `no_grad`."""

    mode = True
