"""Plain callables and Functions as nodes: each is recorded on a tape of its own, on leaves cut off from the rest."""

from __future__ import annotations

from typing import Any

from puregraph.autodiff.argskwargs import ArgsKwargs
from puregraph.errors import AutoDiffException


def use_callable(function: Any, inputs: ArgsKwargs, is_training: bool) -> Any:
    """Run a plain callable on leaves of a tape."""
    if not is_training:
        return ArgsKwargs.to_args_kwargs_object(function(*inputs.args, **inputs.kwargs)), None
    raise AutoDiffException("no tape yet")


def use_function(function: Any, inputs: ArgsKwargs, is_training: bool) -> Any:
    """Run a Function."""
    raise AutoDiffException("no tape yet")
