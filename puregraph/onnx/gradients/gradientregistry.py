"""GradientRegistry: the gradient writers of module classes whose rule is not traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

GRADIENTS: dict[type, Callable[..., Any]] = {}  # by class of the module: the writer of its gradient
ANYSIZE: set[type] = set()  # classes whose gradient is written the same for all sizes, including symbols


def writesGradient(*classes: type, forAnySize: bool = False) -> Callable[[Callable], Callable]:
    """Register the function below it: it gets the step of a Gradient, and returns a name for each argument of the
    module, None for no gradient."""

    def register(write: Callable) -> Callable:
        GRADIENTS.update(dict.fromkeys(classes, write))
        ANYSIZE.update(classes if forAnySize else ())
        return write

    return register


@cache
def loadGradients() -> None:
    """Import the gradient writers."""
    for family in ("control", "element", "region"):
        import_module(f"puregraph.onnx.gradients.{family}gradients")
