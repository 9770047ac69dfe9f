"""Moved: files that have a new name are found under the old one for one more release; packages, when asked for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from puregraph.core.foreign import ForeignFinder, hintFor

NEW = {
    "backward": "graph.backward",
    "blueprint": "serialize.blueprint",
    "dim": "core.dim",
    "evaluator": "formula.interpreter",
    "footprint": "analysis.footprint",
    "hdf": "storage.hdf",
    "initial": "core.initial",
    "input": "graph.input",
    "lives": "analysis.liveness",
    "nest": "formula.loopnest",
    "overview": "analysis.summary",
    "parallel": "graph.parallel",
    "param": "core.param",
    "puzzlelib": "serialize.puzzlelib",
    "rules": "core.rules",
    "sequential": "graph.sequential",
    "shape": "core.shape",
    "steps": "graph.steps",
    "table": "formula.optable",
    "terms": "formula.expr",
}

LATE = ("models", "onnx", "text")  # public packages that importing puregraph does not need


class MovedFinder(MetaPathFinder, Loader):
    """Gives the module of a new name for an old one, with a DeprecationWarning that says so.

    It is asked before all other finders: a module in a package of an old name would else be loaded a second time.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = newName(fullname)
        isThere = new != fullname and not new.endswith(".__main__") and find_spec(new) is not None
        return ModuleSpec(fullname, self) if isThere else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        if old.partition(".")[2] in NEW:
            warnings.warn(f"{old} is now {newName(old)}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(newName(old))


def newName(name: str) -> str:
    """The dotted name of a module today; modules in a package of an old name are looked for in the new one."""
    package, _, rest = name.partition(".")
    old, _, inner = rest.partition(".")
    if package != "puregraph" or old not in NEW:
        return name
    return ".".join([package, NEW[old], *([inner] if inner else [])])


def attribute(name: str) -> ModuleType:
    """Import a public package on first use, or the module of an old name, as an attribute of puregraph.

    Raises    AttributeError for any other name
    """
    if name not in NEW and name not in LATE:
        hint = hintFor(name)
        raise AttributeError(f"module 'puregraph' has no attribute {name!r}{hint and '; '}{hint}")
    return import_module(f"puregraph.{name}")


def install() -> None:
    """Have old names found, and foreign ones refused with what they are here."""
    if not any(type(finder) is MovedFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
        sys.meta_path.append(ForeignFinder())
