"""Registry: what makes native kernel calls of a call, by its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.native.llvm.kernelcall import KernelCall

LOWERINGS: dict[Any, Callable[..., list[KernelCall] | None]] = {}


def lowers(function: Any) -> Callable[[Any], Any]:
    """Register what makes native kernel calls of a function's calls: `(call, workspace)` gives them, or None."""

    def keep(rule: Any) -> Any:
        LOWERINGS[function] = rule
        return rule

    return keep
