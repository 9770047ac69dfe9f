"""Late: what is imported on first use: attributes of a class whose code stands above it, and names of a package.

`Late` is the only such mechanism: a class declares all of its interface itself, no later file patches it, and a package
lists the names that its import does not need. Only these declarations name files as texts; a test imports each of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from puregraph.core.foreign import hintFor


class Late:
    """The function or class `name` of the file `module`, or the module itself, which is imported when it is used."""

    def __init__(self, module: str, name: str = ""):
        self.module, self.name = module, name

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.owner, self.attribute = owner, attribute

    def __get__(self, instance: Any, owner: type) -> Any:
        setattr(self.owner, self.attribute, self.load())
        return getattr(owner if instance is None else instance, self.attribute)

    def load(self) -> Any:
        """Import the module, and return it or its attribute."""
        module = import_module(self.module)
        return getattr(module, self.name) if self.name else module


def lateNames(
    package: str, names: Mapping[str, Late], former: Collection[str] = ()
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package of which some names are imported on first use.

    Files by their `former` names are attributes, too, but not listed. Type checkers take an unknown name for a module,
    so that a misspelt class cannot be called; the others are imported for them under `TYPE_CHECKING`.

    Raises    AttributeError for other names
    """
    space = vars(sys.modules[package])

    def attribute(name: str) -> ModuleType:
        if name in former:
            return import_module(f"{package}.{name}")
        if name not in names:
            hint = hintFor(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint and '; '}{hint}")
        space[name] = names[name].load()
        return space[name]

    return attribute, lambda: sorted({*space, *names})
