"""Function under the path that it has in afnio."""

from puregraph.graph.function import Function

__all__ = ["Function"]
