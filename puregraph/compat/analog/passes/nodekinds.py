"""The forward pass of each kind of node, with the residuals that its pullback needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.compat.analog.passes.callabletape import Used, use_callable, use_function
from puregraph.compat.analog.passes.residuals import ParamGrads
from puregraph.core.accumulate import shapeOf
from puregraph.core.applied import asGrads, checkMode, checkSaved, isMarked
from puregraph.core.errors import AutoDiffException, GraphError, need, show
from puregraph.core.param import Param
from puregraph.core.rules import gradientRule, readBy
from puregraph.graph.function import Function
from puregraph.graph.module import Module
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from puregraph.core.protocols import AnyArray


def use(node: Hashable, inputs: ArgsKwargs, is_training: bool, rank: int) -> Used:
    """Run a node. Returns its outputs, and a way to compute gradients through it.

    A puregraph Module or Function has its rule; of any other object with a `backward` that is called; a graph runs
    its own backward graph; any other callable is recorded on a tape.
    """
    module = node.module if isinstance(node, (Node, Occurrence)) else node
    if isinstance(module, Module):
        return use_module(module, inputs, rank, getattr(node, "rule", None))
    if isinstance(module, type) and issubclass(module, Function):
        return use_function(module, inputs, is_training)
    nested = getattr(module, "use_as_node", None)
    if callable(nested):
        return nested(inputs, is_training, rank)
    if not callable(module):
        raise AutoDiffException(f"{type(module).__name__} cannot be called: give it a __call__")
    if has_backward(module):
        return use_own(module, inputs)
    return use_callable(module, inputs, is_training)


def has_backward(node: Any) -> bool:
    """True for a node with its own `backward(*gradients)`."""
    return callable(getattr(node, "backward", None)) and not isinstance(node, (type, Module, Node))


def use_module(module: Module, inputs: ArgsKwargs, rank: int, rule_name: str | None) -> Used:
    """Run a puregraph Module's rules on the inputs and its parameters. Nothing is stored on the module."""
    ordered, positions = positional(module, inputs)
    module.dataShapeFrom(*[None if x is None else shapeOf(x) for x in ordered])
    params = module.ruleParams()
    arguments = [*ordered, *module.ruleValues()]
    result = module.updateData(*arguments)
    outputs = result if type(result) is tuple else (result,)
    count, train = len(module.outputNames), module.isTraining
    reads, name = readBy(module, rule_name), module.name or module.label
    stored = [(n, p) for n, p in zip(module.ruleNames, params) if isMarked(p) and (reads is None or n in reads)]
    saved = [(n, p, p.mark()) for n, p in stored if p is not None]

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        checkMode(module, train, name)
        checkSaved(module, saved, name)
        needs = module.needs(ordered)
        if not any(needs):
            return ArgsKwargs()
        rule = gradientRule(module, needs, rule_name)
        grad = grads.args[0] if count == 1 else list(grads.args)
        result = asGrads(rule(grad, *arguments, *outputs), len(arguments), type(module).__name__)
        new = checked(result, needs, arguments)
        for position, param in enumerate(params):
            if isinstance(param, Param):
                paramGrads.add(id(param), rank, position, param, new[len(ordered) + position])
        back = ArgsKwargs([None] * len(inputs.args), dict.fromkeys(inputs.kwargs))
        for position, g in zip(positions, new):
            if isinstance(position, str):
                back.kwargs[position] = g
            elif position is not None:
                back.args[position] = g
        return back

    return ArgsKwargs(outputs[:count]), pull


def checked(grads: tuple, needs: tuple[bool, ...], arguments: Sequence[AnyArray | None]) -> list[AnyArray | None]:
    """Return the needed gradients (None for others), after checking that each has its argument's shape."""
    for i, (g, needed) in enumerate(zip(grads, needs)):
        if needed and g is not None and shapeOf(g) != shapeOf(arguments[i]):
            need(False, f"its gradient rule to give shape {show(shapeOf(arguments[i]))} for argument {i}", shapeOf(g))
    return [g if needed else None for g, needed in zip(grads, needs)]


def positional(module: Module, inputs: ArgsKwargs) -> tuple[list[Any], list[Any]]:
    """A module's inputs in its own order, each with its position or name in the call; None for an omitted input."""
    spec = module.inputSpec
    values, positions = list(inputs.args), list(range(len(inputs.args)))
    if spec.variadic:
        if inputs.kwargs:
            raise GraphError(f"{type(module).__name__} takes any number of inputs by position, none by name")
        return values, positions
    remaining = spec.names[len(values) :]
    wrong = [name for name in inputs.kwargs if name not in remaining]
    missing = [name for name in remaining if name not in inputs.kwargs and name not in spec.optional]
    if wrong or missing or len(values) > len(spec.names):
        got = f"{len(values)} by position" + (f" and {', '.join(inputs.kwargs)} by name" if inputs.kwargs else "")
        raise GraphError(f"{type(module).__name__} wanted {', '.join(spec.names)}, got {got}")
    return (
        [*values, *(inputs.kwargs.get(name) for name in remaining)],
        [*positions, *(name if name in inputs.kwargs else None for name in remaining)],
    )


def use_own(module: Any, inputs: ArgsKwargs) -> Used:
    """Run an object with its own `backward`, which takes one gradient per output and returns one per input."""
    outputs = ArgsKwargs.to_args_kwargs_object(module(*inputs.args, **inputs.kwargs))

    def pull(grads: ArgsKwargs, paramGrads: ParamGrads) -> ArgsKwargs:
        return call_backward(module, grads, inputs, outputs)

    return outputs, pull


def call_backward(
    module: Any, grads: ArgsKwargs, inputs: ArgsKwargs | None = None, outputs: ArgsKwargs | None = None
) -> ArgsKwargs:
    """A node's own `backward` on gradients; with the forward `inputs` and `outputs` where it asks for them by name."""
    asked = {}
    if inputs is not None:
        known = {"inputs": inputs, "outputs": outputs}
        asked = {
            name: known[name]
            for name in keywords(getattr(module.backward, "__func__", module.backward))
            if name in known
        }
    return ArgsKwargs.to_args_kwargs_object(module.backward(*grads.args, **grads.kwargs, **asked))


@cache
def keywords(function: Callable) -> tuple[str, ...]:
    """The keyword-only parameters of a function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # something built in
        return ()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def call_on_gradients(node: Hashable, grads: ArgsKwargs) -> ArgsKwargs:
    """Call a node that is only in the backward graph on gradients: its `backward`, or the node itself."""
    module = node.module if isinstance(node, (Node, Occurrence)) else node
    if has_backward(module):
        return call_backward(module, grads)
    return use(node, grads, False, 0)[0]
