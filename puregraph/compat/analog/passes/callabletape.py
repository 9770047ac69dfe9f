"""Plain callables and Functions as nodes: each is recorded on a tape of its own, on leaves cut off from the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.tape.engine import backward, grad
from puregraph.autodiff.tape.functionapply import apply
from puregraph.autodiff.tape.gradmode import enable_grad, no_grad
from puregraph.autodiff.tape.variable import Variable
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.passes.cotangents import can_differ, checked_seeds, implied_seeds
from puregraph.compat.analog.passes.residuals import ParamGrads, Pull
from puregraph.compat.analog.structure.nodelabels import label_of
from puregraph.core.accumulate import combine
from puregraph.core.errors import AutoDiffException
from puregraph.graph.function import HOLE, Context, Function, Keyword, isHole

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from puregraph.core.protocols import AnyArray

ADVICE = (
    "compute with operators and numpy functions on what it is given, write a Function, "
    "or say what its gradient is to be with a BackwardModule around it (a constant is given as a Variable)"
)
Used = tuple[ArgsKwargs, "Pull | None"]


def use_callable(function: Callable[..., Any], inputs: ArgsKwargs, is_training: bool) -> Used:
    """Run a plain callable and record it, or run it on the bare values if it cannot be recorded."""
    if is_training:
        try:
            return recorded(function, inputs, function)
        except (AutoDiffException, TypeError) as error:
            outputs = call(function, inputs)
            return outputs, unrecorded(function, error)
    with no_grad():
        return call(function, inputs), None


def use_function(function: type[Function], inputs: ArgsKwargs, is_training: bool) -> Used:
    """Run a Function on Variables, or on bare values if it is written for these."""
    try:
        return recorded(partial(apply, function), inputs, function)
    except (AttributeError, AutoDiffException, TypeError):
        return on_bare_values(function, inputs)


def call(function: Callable[..., Any], inputs: ArgsKwargs) -> ArgsKwargs:
    """Call a function and wrap its result in ArgsKwargs."""
    return ArgsKwargs.to_args_kwargs_object(function(*inputs.args, **inputs.kwargs))


def recorded(function: Callable[..., Any], inputs: ArgsKwargs, node: Hashable) -> Used:
    """Run a callable on the leaves of a tape: its output values, and a pullback along the tape.

    A value that cannot have a gradient (an integer, a bool) is passed on unchanged.
    """
    taped = ArgsKwargs([leaf(v) for v in inputs.args], {name: leaf(v) for name, v in inputs.kwargs.items()})
    with enable_grad():
        result = call(function, taped)
    outputs = ArgsKwargs([data_of(y) for y in result.args], {name: data_of(y) for name, y in result.kwargs.items()})
    leaves = [v for v in taped.values() if isinstance(v, Variable)]

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        pairs = [(y, number(g)) for y, g in zip(result.values(), grads.values()) if g is not None]
        pairs = [(y, g) for y, g in pairs if can_differ(data_of(y))]
        known = [(y, g) for y, g in pairs if isinstance(y, Variable) and y.requires_grad]
        if not known:
            return not_recorded(node, pairs, leaves)
        new = grad([y for y, _ in known], leaves, [g for _, g in known], retain_graph=True, allow_unused=True)
        back = iter([data_of(g) for g in new])
        args = [next(back) if isinstance(v, Variable) else None for v in taped.args]
        return ArgsKwargs(args, {n: next(back) if isinstance(v, Variable) else None for n, v in taped.kwargs.items()})

    return outputs, pull


def on_bare_values(function: type[Function], inputs: ArgsKwargs) -> Used:
    """Run a Function on plain arrays, with its own `forward` and `backward`, as a graph of modules does."""
    form = (*[HOLE] * len(inputs.args), *(Keyword(name, HOLE) for name in inputs.kwargs))
    context = Context(tuple([can_differ(v) for v in inputs.values()]))
    result = function.call(context, tuple(inputs.args), inputs.kwargs)
    context.outputs = result if type(result) is tuple else (result,)

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        new = iter(function.gradients(context, grads.args, form, isHole))
        return ArgsKwargs([next(new) for _ in inputs.args], {name: next(new) for name in inputs.kwargs})

    return ArgsKwargs(context.outputs), pull


def back_along_tape(
    inputs: ArgsKwargs, outputs: ArgsKwargs, grads: ArgsKwargs | None, loss: Any, retain_graph: bool
) -> ArgsKwargs:
    """A backward pass of a graph that ran on one tape: the gradients of its inputs."""
    pairs = [(loss, None)]
    if grads is not None or loss is None:
        bare = ArgsKwargs([data_of(y) for y in outputs.args], {name: data_of(y) for name, y in outputs.kwargs.items()})
        seeds = checked_seeds(implied_seeds(bare) if grads is None else grads, bare)
        pairs = [(y, number(g)) for y, g in zip(outputs.values(), seeds.values()) if g is not None]
        pairs = [(y, g) for y, g in pairs if isinstance(y, Variable) and y.requires_grad]
    for v in inputs.values():
        if isinstance(v, Variable):
            v.zero_grad()
    if pairs:
        backward([y for y, _ in pairs], [g for _, g in pairs], retain_graph=retain_graph)
    return ArgsKwargs([grad_of(v) for v in inputs.args], {name: grad_of(v) for name, v in inputs.kwargs.items()})


def grad_of(value: Variable) -> AnyArray:
    """The summed gradient of an input; None if no gradient reached it."""
    gradient = value.grad if isinstance(value, Variable) else None
    return data_of(combine(gradient) if gradient else None) if isinstance(gradient, list) else data_of(gradient)


def loss_seeds(loss: Any, leaves: ArgsKwargs) -> ArgsKwargs:
    """Differentiate a loss with respect to the outputs that it was computed from."""
    wanted = [v for v in leaves.values() if isinstance(v, Variable)]
    new = iter(grad(loss, wanted, retain_graph=True, allow_unused=True))
    seeds = [data_of(next(new)) if isinstance(v, Variable) else None for v in leaves.values()]
    return ArgsKwargs(seeds[: len(leaves.args)], dict(zip(leaves.kwargs, seeds[len(leaves.args) :])))


def unrecorded(function: Any, why: Exception) -> Pull:
    """The pullback of a callable that could not be recorded: it raises, unless a backward graph bypasses the node."""

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        raise AutoDiffException(f"'{label_of(function)}' could not be recorded ({why}): {ADVICE}") from why

    return pull


def not_recorded(function: Any, pairs: list[tuple[Any, Any]], leaves: Sequence[object]) -> ArgsKwargs:
    """Return no gradients for a callable without recorded results, after checking that no input can have one.

    Raises    AutoDiffException if an input can have a gradient, and a result is a bare value
    """
    if leaves and not all(isinstance(y, Variable) for y, _ in pairs):
        raise AutoDiffException(
            f"'{label_of(function)}' gave values that were not recorded, so their gradient is not known: {ADVICE}"
        )
    return ArgsKwargs()


def leaf(value: object) -> Any:
    """A value as a leaf of a tape, if it can have a gradient."""
    return Variable(value, requires_grad=True) if can_differ(value) else value


def number(g: Any) -> Any:
    """Convert a Python number to a numpy one, as gradient rules expect; other values are returned unchanged."""
    return np.float64(g) if isinstance(g, (int, float)) else g


def data_of(value: object) -> Any:
    """The value itself, without its tape."""
    return value.data if isinstance(value, Variable) else value
