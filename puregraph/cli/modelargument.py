"""Model argument: the Graph and the shapes that a command line names."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import puregraph
from puregraph.cli.usageerror import UsageError
from puregraph.core.errors import GraphError, PuregraphError
from puregraph.core.shape import asShape
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest
from puregraph.graph.module import Module
from puregraph.serialize import checkpoint

FOLDERS = (
    os.path.dirname(puregraph.__file__),
    *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")),
)
FOREIGN = ("<frozen", *(f"{folder}{os.sep}" for folder in FOLDERS))  # files that are not the user's


def modelAndShapes(options: argparse.Namespace) -> list[Any]:
    """The graph that a command line names, and a shape for each of its inputs."""
    shapes = [readShape(text) for text in options.shapes]
    graph = findGraph(options.model)
    try:
        graph.steps(len(shapes))
    except GraphError as error:
        raise UsageError(f"{error}; give one shape for each input") from None
    return [graph, *shapes]


def readShape(text: str) -> Any:
    """Parse a shape: `N,1,28,28`, with or without brackets; `()` is the shape of a number."""
    sizes = [part.strip() for part in text.strip().strip("()[]").split(",")]
    if sizes[-1] == "":
        sizes.pop()  # (3,) and ()
    try:
        if not text.strip():
            raise UsageError("nothing")
        return asShape([int(s) if s.isdecimal() else s for s in sizes])
    except PuregraphError:
        raise UsageError(f"cannot read the shape {text!r}: write 32,1,28,28, or N,1,28,28 for any batch") from None


def findGraph(target: str) -> Graph:
    """Load the Graph named by `FILE.py`, `FILE.py:NAME` or `package.module:NAME`, or the Graph of a checkpoint."""
    if not target.endswith(".py") and Path(target).is_file():
        if target.endswith(".onnx"):
            raise UsageError(
                f"{target} is an ONNX model: puregraph onnx {target} --to FILE.h5 makes a checkpoint of it"
            )
        return checkpoint.loadGraph(target)
    source, _, name = target.partition(":")
    module = loadModule(source)
    choice = choices(module)
    if not name and len(choice) != 1:
        none = "it has neither a Graph nor a function or class that makes one without arguments"
        options = f"it has {', '.join(choice)}" if choice else none
        raise UsageError(
            f"say which graph of {source} is meant, as in {source}:{next(iter(choice), 'NAME')}; {options}"
        )
    name = name or choice[0]
    if not hasattr(module, name):
        raise UsageError(f"{source} has no {name!r}; it has {', '.join(nearest(name, choice)) or 'no graphs'}")
    graph = build(getattr(module, name), f"{source}:{name}")
    if not isinstance(graph, Graph):
        hint = "; put it into a Sequential" if isinstance(graph, Module) else ""
        raise UsageError(f"{source}:{name}: wanted a Graph, or a function that returns one, got {kindOf(graph)}{hint}")
    return graph


def choices(module: Any) -> list[str]:
    """The names in a module that may be chosen: its Graphs, else its functions and Graph classes without arguments."""
    public = {n: v for n, v in vars(module).items() if n[0] != "_"}
    graphs = [n for n, v in public.items() if isinstance(v, Graph)]
    here = f"{module.__name__}."
    made = {n: v for n, v in public.items() if f"{getattr(v, '__module__', '')}.".startswith(here)}
    return graphs or [n for n, v in made.items() if (inspect.isfunction(v) or isGraphClass(v)) and not required(v)]


def isGraphClass(value: object) -> bool:
    """True for a subclass of Graph."""
    return isinstance(value, type) and issubclass(value, Graph)


def kindOf(value: object) -> str:
    """Describe a value's type for a message."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def required(function: Any) -> list[str]:
    """Return the required arguments of a function."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


def build(target: Any, label: str) -> Any:
    """Return a Graph as it is, or call a function or class that makes one."""
    isMaker = isGraphClass(target) or callable(target) and not isinstance(target, (Module, type))
    if not isMaker:
        return target
    missing = required(target)
    if missing:
        raise UsageError(f"{label} needs arguments ({', '.join(missing)}): name a function that needs none")
    return running(label, target)


def loadModule(source: str) -> Any:
    """The module of a file or of a dotted name; `if __name__ == "__main__"` parts do not run."""
    if not source.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # as `python -m` does
        if importedFrom(source) is None:
            raise UsageError(f"there is no module {source!r}; name a FILE.py, or a package.module that can be imported")
        return running(source, lambda: importlib.import_module(source))
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"there is no file {source!r}")
    names, folder = [path.stem], path.resolve().parent
    while (folder / "__init__.py").is_file():  # in a package, which may have relative imports
        names, folder = [folder.name, *names], folder.parent
    sys.path.insert(0, str(folder))  # for imports from its folder, as when it is run
    if len(names) > 1 and "." not in path.stem:
        return running(source, lambda: importlib.import_module(".".join(names)))
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    running(source, lambda: spec.loader.exec_module(module))
    return module


def importedFrom(name: str) -> Any:
    """Return the module specification of an import; None if there is no such module."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def running(label: str, function: Any) -> Any:
    """Run the user's code; if it fails, raise UsageError with the location and the reason in one sentence."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        userFrames = [f for f in frames if not f.filename.startswith(FOREIGN)]
        line = f" at line {userFrames[-1].lineno} of {userFrames[-1].filename}" if userFrames else ""
        raise UsageError(f"{label} raises {type(error).__name__}{line}: {error}") from error
