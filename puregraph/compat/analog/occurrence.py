"""Occurrence: another use of an object that is already in a graph."""

from __future__ import annotations

from typing import Any


class Occurrence:
    """A separate use of a module, Function or callable, as its own node.

    Nodes are identified by object identity, so a layer that runs twice needs two: `Occurrence(layer, "first")` and
    `Occurrence(layer, "second")`. Its parameters' gradients add up within one pass. A puregraph `Node`,
    `layer.node()`, works too.

    >>> from puregraph import Pointwise
    >>> graph, layer = ForwardGraph(), Pointwise(formula="x / 2")
    >>> _ = graph.add_connection(graph.INPUT, Occurrence(layer, "first"), Occurrence(layer, "second"), graph.OUTPUT)
    >>> float(graph(np.array([4.0], np.float32))[0])
    1.0
    """

    __slots__ = ("module", "name")

    def __init__(self, module: Any, name: str | None = None):
        self.module, self.name = module, name

    def __call__(self, *args: Any, **kwargs: object) -> Any:
        return self.module(*args, **kwargs)

    def __repr__(self) -> str:
        name = f", {self.name!r}" if self.name else ""
        return f"Occurrence({self.module!r}{name})"
