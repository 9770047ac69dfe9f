"""Origin: which use of an operator gave a value of a file, with the graph of the file that this is in."""

from __future__ import annotations

from typing import Any


class Origin:
    """An operator, the values that it reads, and its attributes.

    `scope`    stands for the graph or function of the file: patterns do not look beyond it
    """

    __slots__ = ("attributes", "inputs", "scope", "type", "version")

    def __init__(self, kind: str, inputs: list[Any], attributes: dict[str, Any], version: int, scope: Any):
        self.type, self.inputs, self.attributes, self.version, self.scope = kind, inputs, attributes, version, scope
