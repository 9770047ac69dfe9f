"""The gradients that enter a backward pass, and those that leave it."""

from __future__ import annotations

from typing import Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.passes.routing import said
from puregraph.compat.analog.structure.edges import Port
from puregraph.core.accumulate import isArray, isValue, seedLike, shapeOf
from puregraph.core.errors import Fault, GraphError, ShapeError, show
from puregraph.graph.node import located


def implied_seeds(outputs: ArgsKwargs) -> ArgsKwargs:
    """Return the default output gradient: 1 for an output that is one number.

    Raises    GraphError if the outputs are anything else
    """
    values = outputs.values()
    if len(values) != 1 or isArray(values[0]) and values[0].size != 1:
        shapes = " and ".join(show(shapeOf(v)) for v in values) or "nothing"
        raise GraphError(
            f"the gradient of the output can be left out only where that is one number, and it is {shapes}: "
            "give one for each"
        )
    one = [seedLike(v) for v in values]
    return ArgsKwargs(one) if outputs.args else ArgsKwargs(kwargs=dict(zip(outputs.kwargs, one)))


def checked_seeds(grads: ArgsKwargs, outputs: ArgsKwargs) -> ArgsKwargs:
    """Check that there is one gradient per output, of its shape; None for a named output without one.

    Raises    GraphError for the wrong number of gradients or an unknown name, ShapeError for the wrong shape
    """
    unknown = [name for name in grads.kwargs if name not in outputs.kwargs]
    if unknown or len(grads.args) != len(outputs.args):
        got = f"{len(grads.args)}" + (f" and {', '.join(grads.kwargs)} by name" if grads.kwargs else "")
        raise GraphError(f"at 'OUTPUT': wanted a gradient (or None) for each of {said(outputs)}, got {got}")
    byPort: list[tuple[Port, Any]] = [*enumerate(grads.args), *grads.kwargs.items()]
    for port, g in byPort:
        wanted = shapeOf(outputs.get(port))
        if g is not None and shapeOf(g) != wanted:
            fault = Fault(f"a gradient of shape {show(wanted)} for output {port!r}", show(shapeOf(g)))
            raise located(ShapeError(fault), "OUTPUT", "BackwardGraph")
    return ArgsKwargs(grads.args, {name: grads.kwargs.get(name) for name in outputs.kwargs})


def owned(g: Any, callers: set[int]) -> Any:
    """Return a gradient, copied if it is one of the caller's arrays, or a view of one."""
    shared = id(g) in callers or id(getattr(g, "base", None)) in callers
    return g.copy() if shared and isArray(g) else g


def can_differ(value: Any) -> bool:
    """True if a value can have a gradient: floating numbers, and other values that can be added up."""
    if isArray(value):
        return value.dtype.kind in "fc"
    return isinstance(value, float) or not isinstance(value, (int, type(None))) and isValue(value)
