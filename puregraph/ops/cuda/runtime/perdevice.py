"""Per device: objects made once for each GPU: loaded kernels, library handles, streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from puregraph.core import device


def ordinal() -> int:
    """The index of the GPU that is current in this thread; -1 where none is in use."""
    return device.arrays().cuda.Device().id if device.name() == "cuda" else -1


class PerDevice:
    """A function that is called once for each GPU and its arguments; results are cached for the life of the process.

    `known`  results, by the GPU that was current and the arguments
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make, self.known = make, dict[tuple[Any, ...], Any]()
        update_wrapper(self, make)

    def __call__(self, *arguments: Any) -> Any:
        key = ordinal(), *arguments
        if key not in self.known:
            self.known[key] = self.make(*arguments)
        return self.known[key]
