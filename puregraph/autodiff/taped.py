"""Plain callables and Functions as nodes: each is recorded on a tape of its own, on leaves cut off from the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.autodiff.argskwargs import ArgsKwargs
from puregraph.autodiff.engine import grad
from puregraph.autodiff.mode import enable_grad, no_grad
from puregraph.autodiff.naming import label_of
from puregraph.autodiff.residuals import ParamGrads
from puregraph.autodiff.seeds import can_differ
from puregraph.autodiff.variable import Variable
from puregraph.errors import AutoDiffException

ADVICE = (
    "compute with operators and numpy functions on what it is handed, write a Function, "
    "or say what its gradient is to be with a BackwardModule around it (a constant is given as a Variable)"
)


def use_taped(function: Callable[..., Any], inputs: ArgsKwargs, is_training: bool, label: Any = None) -> Any:
    """Run a callable on leaves of a tape: the values of what it gives, and the way back through what it recorded.

    A value that cannot have a gradient (a whole number, a flag) is handed on as it is.
    """
    if not is_training:
        with no_grad():
            return ArgsKwargs.to_args_kwargs_object(function(*inputs.args, **inputs.kwargs)), None
    given = ArgsKwargs([leaf(v) for v in inputs.args], {name: leaf(v) for name, v in inputs.kwargs.items()})
    try:
        with enable_grad():
            result = ArgsKwargs.to_args_kwargs_object(function(*given.args, **given.kwargs))
    except (AutoDiffException, TypeError) as error:
        return use_unrecorded(function, inputs, error, label)
    outputs = ArgsKwargs([data_of(y) for y in result.args], {name: data_of(y) for name, y in result.kwargs.items()})
    leaves = [v for v in given.values() if isinstance(v, Variable)]

    def pull(grads: ArgsKwargs, found: ParamGrads) -> ArgsKwargs:
        pairs = [(y, number(g)) for y, g in zip(result.values(), grads.values()) if g is not None]
        recorded = [(y, g) for y, g in pairs if isinstance(y, Variable) and y.requires_grad]
        if not recorded:
            return not_recorded(label or function, pairs, leaves)
        new = grad([y for y, _ in recorded], leaves, [g for _, g in recorded], retain_graph=True, allow_unused=True)
        back = iter([data_of(g) for g in new])
        args = [next(back) if isinstance(v, Variable) else None for v in given.args]
        return ArgsKwargs(args, {n: next(back) if isinstance(v, Variable) else None for n, v in given.kwargs.items()})

    return outputs, pull


def use_unrecorded(function: Callable[..., Any], inputs: ArgsKwargs, why: Exception, label: Any) -> Any:
    """Run a callable that cannot be recorded on the bare values: its backward graph may well pass it by."""
    outputs = ArgsKwargs.to_args_kwargs_object(function(*inputs.args, **inputs.kwargs))

    def pull(grads: ArgsKwargs, found: ParamGrads) -> ArgsKwargs:
        raise AutoDiffException(f"'{label_of(label or function)}' could not be recorded ({why}): {ADVICE}") from why

    return outputs, pull


def not_recorded(function: Any, pairs: list[tuple[Any, Any]], leaves: list[Any]) -> ArgsKwargs:
    """No gradient, for a callable none of whose results was recorded: right if it took nothing that can have one.

    Raises    AutoDiffException if it took such a value, and gave a bare one that came about off the tape
    """
    if leaves and not all(isinstance(y, Variable) for y, _ in pairs):
        raise AutoDiffException(
            f"'{label_of(function)}' gave values that were not recorded, so their gradient is not known: {ADVICE}"
        )
    return ArgsKwargs()


def leaf(value: Any) -> Any:
    """A value as a leaf of a tape, if it can have a gradient."""
    return Variable(value, requires_grad=True) if can_differ(value) else value


def number(g: Any) -> Any:
    """A gradient as rules take it: a number of Python's as one of numpy's."""
    return np.float64(g) if isinstance(g, (int, float)) else g


def data_of(value: Any) -> Any:
    """The value itself, without its tape."""
    return value.data if isinstance(value, Variable) else value
