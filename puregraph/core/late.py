"""Late: an attribute that is imported on first use, because its file imports that of the class.

So a class declares all of its interface itself, and no later file patches it. Only these declarations name such files
as texts; a test imports each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """An attribute of a class: the function or class `name` of the file `module`, which is imported when it is used."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.owner, self.attribute = owner, attribute

    def __get__(self, instance: Any, owner: type) -> Any:
        setattr(self.owner, self.attribute, getattr(import_module(self.module), self.name))
        return getattr(owner if instance is None else instance, self.attribute)
