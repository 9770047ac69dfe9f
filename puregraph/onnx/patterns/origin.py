"""Origin: the node of the file that computes a value."""

from __future__ import annotations

from typing import Any


class Origin:
    """A node's operator, the values that it reads, and its attributes.

    `scope`    identifies the graph or function that contains the node: patterns do not match across graphs
    """

    __slots__ = ("attributes", "inputs", "scope", "type", "version")

    def __init__(self, kind: str, inputs: list[Any], attributes: dict[str, Any], version: int, scope: Any):
        self.type, self.inputs, self.attributes, self.version, self.scope = kind, inputs, attributes, version, scope
