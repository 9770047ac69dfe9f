"""A graph of callables on one tape: each node runs on Variables, and its results link back to its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.autodiff.tape.functionapply import apply
from puregraph.autodiff.tape.modulebackward import run_graph
from puregraph.autodiff.tape.modulebackward import use as record
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.occurrence import Occurrence
from puregraph.compat.analog.passes.callabletape import data_of
from puregraph.compat.analog.passes.nodekinds import has_backward, positional, use_own
from puregraph.compat.analog.passes.residuals import ParamGrads
from puregraph.graph import Graph
from puregraph.graph.function import Function
from puregraph.graph.module import Module
from puregraph.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Hashable


def use_on_tape(node: Any, arguments: ArgsKwargs, path: str) -> ArgsKwargs:
    """Run a node on Variables."""
    module = node.module if isinstance(node, (Node, Occurrence)) else node
    if isinstance(module, Module):
        values, _ = positional(module, arguments)
        if isinstance(module, Graph):
            return ArgsKwargs(run_graph(module, values))
        return ArgsKwargs(record(module, values, rule_of(node), path))
    if isinstance(module, type) and issubclass(module, Function):
        return ArgsKwargs.to_args_kwargs_object(apply(module, *arguments.args, **arguments.kwargs))
    nested = getattr(module, "run_on_tape", None)
    if callable(nested):
        return nested(arguments)
    if has_backward(module):
        box = NodeHolder(module)
        values = apply(CustomBackward, box, *arguments.args, **arguments.kwargs)
        count = len(box.outputs.args)
        return ArgsKwargs(values[:count], dict(zip(box.outputs.kwargs, values[count:])))
    return ArgsKwargs.to_args_kwargs_object(module(*arguments.args, **arguments.kwargs))


def rule_of(node: Hashable) -> str | None:
    """The rule that a Node asks for by name."""
    return getattr(node, "rule", None) if isinstance(node, Node) else None


class NodeHolder:
    """A node with its own `backward`, and its outputs."""

    def __init__(self, module: Any):
        self.module = module
        self.outputs = ArgsKwargs()


class CustomBackward(Function):
    """A node with its own `backward` as one operation of a tape."""

    @staticmethod
    def forward(ctx: Any, box: NodeHolder, *args: Any, **kwargs: Any) -> tuple:  # type: ignore[override]
        inputs = ArgsKwargs([data_of(v) for v in args], {name: data_of(v) for name, v in kwargs.items()})
        box.outputs, ctx.pull = use_own(box.module, inputs)
        ctx.names = len(args), list(kwargs), len(box.outputs.args), list(box.outputs.kwargs)
        return tuple(box.outputs.values())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        positions, names, count, outputs = ctx.names
        arrays = [data_of(g) for g in grads]
        inputGrads = ctx.pull(ArgsKwargs(arrays[:count], dict(zip(outputs, arrays[count:]))), ParamGrads())
        return None, *(inputGrads.get(i) for i in range(positions)), *(inputGrads.get(name) for name in names)
