"""GraphEnum: where values enter a graph and where they leave it."""

from __future__ import annotations

from enum import Enum


class GraphEnum(Enum):
    """The two nodes that every graph has. A backward graph runs from OUTPUT to INPUT.

    >>> ForwardGraph().INPUT is GraphEnum.INPUT
    True
    """

    INPUT = "INPUT"
    OUTPUT = "OUTPUT"

    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__
