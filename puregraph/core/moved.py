"""Moved: modules under their former names, for one more release, and under the short names that they keep."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from puregraph.core.foreign import ForeignFinder

KEPT = {  # short names of public modules
    "block": "modules.block",
    "check": "testing.check",
    "checkpoint": "serialize.checkpoint",
    "costs": "modules.costs",
    "device": "core.device",
    "errors": "core.errors",
    "function": "graph.function",
    "kernel": "ops.kernel",
    "kernels": "ops.kernels",
    "module": "graph.module",
    "node": "graph.node",
    "pointwise": "graph.pointwise",
    "text": "compat.text",
    "torch": "compat.torch",
    "weights": "serialize.weights",
}

NEW = {
    "analysis": "graph.analysis",
    "arguments": "core.arguments",
    "base": "core.base",
    "backward": "graph.backward",
    "blueprint": "serialize.blueprint",
    "cuda": "ops.cuda",
    "dim": "core.dim",
    "evaluator": "ops.formula.interpreter",
    "footprint": "graph.analysis.footprint",
    "formula": "ops.formula",
    "hdf": "core.storage.hdf",
    "initial": "core.initial",
    "input": "graph.input",
    "kernels.attention": "ops.attention.reference",
    "kernels.convolution": "ops.convolution.reference",
    "kernels.einsum": "ops.product.einsum",
    "kernels.labels": "ops.gather.labels",
    "kernels.pooling": "ops.pooling.reference",
    "kernels.random": "ops.random.reference",
    "kernels.recurrent": "ops.recurrent.reference",
    "kernels.reduce": "ops.reduction.reference",
    "kernels.scatter": "ops.gather.reference",
    "lives": "graph.analysis.liveness",
    "many": "distributed",
    "native": "ops.native",
    "nest": "ops.formula.loopnest",
    "overview": "graph.analysis.summary",
    "parallel": "graph.parallel",
    "param": "core.param",
    "puzzlelib": "compat.puzzlelib",
    "rules": "core.rules",
    "sequential": "graph.sequential",
    "shape": "core.shape",
    "special": "ops.special",
    "steps": "graph.steps",
    "storage": "core.storage",
    "table": "ops.formula.optable",
    "terms": "ops.formula.expr",
}

TARGETS = {**NEW, **KEPT}


class MovedFinder:
    """Imports the module of the new name for an old one, with a DeprecationWarning.

    It precedes all other finders, which would load a module of a renamed package a second time. Its methods are those
    of importlib.abc, which is not imported, as it brings the readers of resources and archives.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = newName(fullname)
        if new == fullname or new.endswith(".__main__"):  # `python -m` imports it from the package itself
            return None
        spec = find_spec(new)
        isPackage = spec is not None and spec.submodule_search_locations is not None
        return spec and ModuleSpec(fullname, self, is_package=isPackage)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make a module."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        if old.partition(".")[2] in NEW:
            warnings.warn(f"{old} is now {newName(old)}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(newName(old))


def newName(name: str) -> str:
    """The dotted name of a module today; modules in a package of an old name are looked for in the new one."""
    package, *parts = name.split(".")
    for count in range(len(parts) if package == "puregraph" else 0, 0, -1):
        target = TARGETS.get(".".join(parts[:count]))
        if target is not None:
            return ".".join([package, target, *parts[count:]])
    return name


def install() -> None:
    """Install the finders of old names, and of other frameworks' names."""
    if not any(type(finder) is MovedFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
        sys.meta_path.append(ForeignFinder())
