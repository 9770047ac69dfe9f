"""GradientRegistry: for each class of module what writes its gradient, where its rule is not traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

GRADIENTS: dict[type, Callable[..., Any]] = {}  # of a step, and of nodes of its own
ANYSIZE: set[type] = set()  # classes whose gradient is written once for all sizes, those with symbols too


def writesGradient(*classes: type, forAnySize: bool = False) -> Callable[[Callable], Callable]:
    """Register the function below it: it gets the step of a Gradient, and gives names, None for no gradient, of what it
    has for each argument of the module."""

    def register(write: Callable) -> Callable:
        GRADIENTS.update(dict.fromkeys(classes, write))
        ANYSIZE.update(classes if forAnySize else ())
        return write

    return register


@cache
def loadGradients() -> None:
    """Import what writes gradients."""
    for family in ("control", "element", "region"):
        import_module(f"puregraph.onnx.gradients.{family}gradients")
