"""Routing: assemble the gradients for each node of a backward graph, by the recorded sources of values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from puregraph.compat.analog.accumulategrad import AccumulateGrad, total
from puregraph.compat.analog.argskwargs import ArgsKwargs
from puregraph.compat.analog.structure.edges import Edge, Port
from puregraph.compat.analog.structure.nodelabels import kind_of
from puregraph.core.accumulate import shapeOf
from puregraph.core.errors import Fault, GraphError, ShapeError, plural, show
from puregraph.graph.node import located

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

Results = dict[Hashable, "ArgsKwargs | None"]


class Routing:
    """The routes of one backward pass.

    `residuals`    the forward pass
    `owner_of`     the forward node whose outputs a node's gradients belong to
    `name_of`      what a node is called in messages
    """

    def __init__(self, residuals: Any, owner_of: Callable[[Any], Any], name_of: Callable[[Any], str]):
        self.residuals, self.owner_of, self.name_of = residuals, owner_of, name_of

    def gathered(self, node: Hashable, edges: tuple[Edge, ...], results: Results) -> ArgsKwargs | None:
        """A node's incoming gradients; None if no gradient reaches it.

        A forward node gets one gradient per output, None where there is none. An AccumulateGrad gets a list of
        contributions per output, in forward order. Any other node gets the arguments of a call.
        """
        owner = self.owner_of(node)
        if owner not in self.residuals:
            return self.arguments(edges, results)
        contributions: dict[Port, list[tuple[float, int, Any]]] = {}
        for edge in edges:
            values = results[edge.source]
            if values is not None:
                rank = self.residuals.rank(edge.reader)
                for position, port, g in self.carried(edge, values, owner):
                    if g is not None:
                        contributions.setdefault(port, []).append((rank, position, g))
        if not contributions:
            return None
        outputs = self.residuals.outputs(owner)
        self.check(node, owner, contributions, outputs)
        for rows in contributions.values():
            if len(rows) > 1:
                rows.sort(key=lambda row: row[:2])
        lists: list[Any] = [[g for _, _, g in contributions.get(port, ())] for port in range(len(outputs.args))]
        named = {name: [g for _, _, g in contributions.get(name, ())] for name in outputs.kwargs}
        if isinstance(node, AccumulateGrad):
            return ArgsKwargs(lists, named)
        return ArgsKwargs([total(c) for c in lists], {name: total(c) for name, c in named.items()})

    def carried(self, edge: Edge, values: ArgsKwargs, owner: Hashable) -> list[tuple[int, Port, Any]]:
        """The gradients that an edge brings to a forward node: each with its position at the reader, and its port."""
        if edge.forward is None and edge.taken is not None:
            position = edge.taken if isinstance(edge.taken, int) else len(values.args)
            return [(position, 0 if edge.slot is None else edge.slot, self.one(edge, values))]
        consumer = edge.reader
        if edge.forward is not None:
            along = self.residuals.along(consumer, edge.forward)
        else:
            along = self.residuals.taken_from(consumer, owner)
        if edge.packed:
            if len(along) < len(values.args):
                raise GraphError(
                    f"at '{self.name_of(edge.source)}': gave {plural(len(values.args), 'gradient')}, "
                    f"was given {len(along)} on the way to '{self.name_of(edge.target)}'"
                )
            return [(position, taken.port, values.get(i)) for i, (position, taken) in enumerate(along)]
        if along or edge.forward is not None:
            return [(position, taken.port, values.get(taken.position)) for position, taken in along]
        rows: list[tuple[int, Port, Any]] = []
        if edge.in_arg is True:
            rows += [(i, i, g) for i, g in enumerate(values.args)]
        if edge.in_kwarg is True:
            keeps = edge.out_kwarg is True
            rows += [(len(rows) + i, k if keeps else i, g) for i, (k, g) in enumerate(values.kwargs.items())]
        return rows

    def check(self, node: Hashable, owner: Hashable, contributions: dict[Port, Any], outputs: ArgsKwargs) -> None:
        """Check that every gradient belongs to an output and has its shape."""
        for port, rows in contributions.items():
            if not outputs.has(port):
                raise GraphError(
                    f"at '{self.name_of(node)}': got a gradient for output {port!r}, but it gave {said(outputs)} in "
                    "the forward pass: say which gradient is meant with in_arg or in_kwarg of the edge"
                )
            wanted = shapeOf(outputs.get(port))
            for _, _, g in rows:
                if shapeOf(g) != wanted:
                    fault = Fault(f"a gradient of shape {show(wanted)} for output {port!r}", show(shapeOf(g)))
                    raise located(ShapeError(fault), self.name_of(node), kind_of(owner) or type(node).__name__)

    def arguments(self, edges: tuple[Edge, ...], results: Results) -> ArgsKwargs | None:
        """Assemble the call of a node that is only in the backward graph: numbered slots first, then the others."""
        numbered: list[tuple[int, Any]] = []
        appended: list[Any] = []
        named: dict[str, Any] = {}
        for edge in edges:
            values = results[edge.source]
            if values is None:
                continue
            if edge.forward is not None and not edge.packed:
                along = self.residuals.along(edge.reader, edge.forward)
                appended += [values.get(taken.position) for _, taken in along]
            elif edge.taken is None:
                if edge.in_arg is True:
                    appended += values.args
                if edge.in_kwarg is True:
                    if edge.out_kwarg is True:
                        named.update(values.kwargs)
                    else:
                        appended += values.kwargs.values()
            elif edge.slot is None:
                appended.append(self.one(edge, values))
            elif isinstance(edge.slot, int):
                numbered.append((edge.slot, self.one(edge, values)))
            else:
                named[edge.slot] = self.one(edge, values)
        args = [g for _, g in sorted(numbered, key=lambda row: row[0])] + appended
        return ArgsKwargs(args, named) if args or named else None

    def one(self, edge: Edge, values: ArgsKwargs) -> AnyArray | None:
        """The gradient that an edge takes; None if its source has no gradients at all."""
        port: Any = edge.taken
        if not values.is_empty() and not values.has(port):
            raise GraphError(
                f"the edge from '{self.name_of(edge.source)}' to '{self.name_of(edge.target)}' takes gradient "
                f"{port!r}, but '{self.name_of(edge.source)}' gave {said(values)}"
            )
        return values.get(port)


def said(values: ArgsKwargs) -> str:
    """The number and the names of the values, for a message."""
    names = f" and {', '.join(values.kwargs)} by name" if values.kwargs else ""
    return f"{plural(len(values.args), 'value')}{names}"
