"""Registry: what lowers a call to native kernel calls, by its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from puregraph.native.llvm.kernelcall import KernelCall

LOWERINGS: dict[Any, Callable[..., list[KernelCall] | None]] = {}


def lowers(function: Any) -> Callable[[Any], Any]:
    """Register what lowers a function's calls to native kernel calls: `(call, workspace)` gives them, or None."""

    def keep(rule: Any) -> Any:
        LOWERINGS[function] = rule
        return rule

    return keep
