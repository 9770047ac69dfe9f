"""Moved: files that have a new name are found under the old one for one more release; packages, when asked for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from puregraph.foreign import ForeignFinder, hintFor

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
    """Gives the module of a new name for an old one, with a DeprecationWarning that says so."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self) if package == "puregraph" and name in NEW else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = f"puregraph.{NEW[old.partition('.')[2]]}"
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


def attribute(name: str) -> ModuleType:
    """Import a public package on first use, or the module of an old name, as an attribute of puregraph.

    Raises    AttributeError for any other name
    """
    if name not in NEW and name not in LATE:
        hint = hintFor(name)
        raise AttributeError(f"module 'puregraph' has no attribute {name!r}{hint and '; '}{hint}")
    return import_module(f"puregraph.{name}")


def install() -> None:
    """Have old names found after all others, and foreign ones refused with what they are here."""
    if not any(type(finder) is MovedFinder for finder in sys.meta_path):
        sys.meta_path.extend([MovedFinder(), ForeignFinder()])
