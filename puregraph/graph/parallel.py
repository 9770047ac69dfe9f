"""Parallel: modules side by side, each with its own input."""

from __future__ import annotations

from puregraph.graph.node import Node
from puregraph.graph.sequential import ModuleList


class Parallel(ModuleList):
    """y_i = m_i(x_i): a list in, a list out; module i takes input i.

    Shapes    x_i as module i takes it -> y_i as it gives it
    Source    PuzzleLib's Parallel
    Raises    GraphError if something else than Modules is given, or two of them have one name

    >>> Parallel(Linear(3, 2), Relu()).dataShapeFrom(("N", 3), ("N", 5))
    [('N', 2), ('N', 5)]
    """

    def chain(self) -> None:
        self.itemNodes = [Node(module) for module in self.items]
        self.link(self.itemNodes, self.itemNodes)
