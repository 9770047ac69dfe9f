"""SavedOptimizer: an optimizer or a schedule as JSON and back, and the part of a graph that it updates."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from puregraph.core.errors import ArgumentError, CheckpointError
from puregraph.core.storage.jsoncodec import decode, encode
from puregraph.graph import Graph
from puregraph.optimizers import InitRecorder, Optimizer
from puregraph.optimizers.changedoptions import changedOptions
from puregraph.serialize.classnames import classNamed, nameOf
from puregraph.serialize.loadreport import listed
from puregraph.serialize.nativefile import require

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray
    from puregraph.graph.module import Module


def describe(made: InitRecorder, where: str) -> dict[str, Any]:
    """An optimizer or schedule as JSON: its class and its constructor's arguments."""
    where = f"{where} ({type(made).__name__})"

    def special(value: object) -> Any:
        return {"recorded": describe(value, where)} if isinstance(value, InitRecorder) else None

    args, kwargs = made.initArgs
    changed = changedOptions(made) if isinstance(made, Optimizer) else {}
    return {
        "class": nameOf(type(made), where),
        "args": [encode(v, f"{where}: argument {i + 1}", special) for i, v in enumerate(args)],
        "kwargs": {name: encode(v, f"{where}: argument '{name}'", special) for name, v in kwargs.items()},
        **(
            {"changed": {name: encode(v, f"{where}: {name}", special) for name, v in changed.items()}}
            if changed
            else {}
        ),
    }


def remake(row: Any, isChanged: bool = True) -> Any:
    """Rebuild an optimizer or schedule from its description; `isChanged` includes settings that were changed later.

    Raises    CheckpointError for a description that `describe` does not write, or arguments that the class refuses
    """
    good = isinstance(row, dict) and isinstance(row.get("args"), list) and isinstance(row.get("kwargs"), dict)
    require(good, "an optimizer or schedule", row)
    cls = classNamed(row.get("class"))
    if not issubclass(cls, InitRecorder):
        raise CheckpointError(f"{row['class']!r:.80} is not an optimizer or schedule")

    def special(value: Mapping[str, object]) -> Any:
        return remake(value["recorded"], isChanged) if "recorded" in value else None

    args = [decode(v, special) for v in row["args"]]
    kwargs = {name: decode(v, special) for name, v in row["kwargs"].items()}
    if isChanged and "changed" in row:
        changed = row["changed"]
        require(isinstance(changed, dict), "the changed settings of an optimizer", changed)
        names = list(inspect.signature(cls.__init__).parameters)[1 : len(args) + 1]
        kwargs |= dict(zip(names, args)) | {name: decode(v, special) for name, v in changed.items()}
        args = []
    try:
        return cls(*args, **kwargs)
    except ArgumentError as error:  # the file has arguments that the class refuses
        raise CheckpointError(f"its {cls.__name__} cannot be made: {error}") from error


def partOf(graph: Graph, optimizer: Optimizer) -> dict[str, str] | None:
    """Map the optimizer's parameter paths to those of the graph; None if it updates all of the graph."""
    paths = {id(param): path for path, param in reversed(graph.params.items())}
    slots = getattr(optimizer, "slots", ())
    if not slots or {id(slot.param) for slot in slots} == paths.keys():
        return None
    return {slot.path: paths.get(id(slot.param), slot.path) for slot in slots}


def named(name: str, part: dict[str, str] | None) -> str:
    """Rename an optimizer's array by a map of parameter paths."""
    kind, _, path = name.partition("/")
    return name if part is None else f"{kind}/{part.get(path, path)}"


def wholeOf(optimizer: Optimizer) -> dict[str, AnyArray]:
    """Return the state arrays of an optimizer, which must not be sharded."""
    sharded = [slot.path for slot in getattr(optimizer, "slots", ()) if slot.part is not None]
    if sharded:
        raise CheckpointError(
            f"the state of {listed(sharded)} is in parts, each in another process; trainer.save writes all of them"
        )
    return optimizer.state


def holderOfPart(graph: Graph, part: list[str] | None) -> Module:
    """Return the module of a graph, or the graph, whose parameters have exactly these paths.

    Raises    CheckpointError if there is none
    """
    if part is None:
        return graph
    wanted = {id(graph.params.get(path)) for path in part}
    for path in graph.allNames():
        module = graph[path]
        if {id(param) for param in module.params.values()} == wanted:
            return module
    raise CheckpointError(
        f"its optimizer updates only {listed(part)}, and no module of the graph has just these; set an optimizer up "
        "on them, and call graph.load(path, optimizer=optimizer)"
    )


def checkOptimizer(row: dict[str, Any] | None, optimizer: Optimizer, graph: Graph) -> None:
    """Check that the file holds an optimizer of the same class, for the same parameters."""
    if row is None:
        raise CheckpointError(f"it holds no optimizer; the {type(optimizer).__name__} given would start anew")
    if classNamed(row["class"]) is not type(optimizer):
        raise CheckpointError(
            f"it holds the state of {row['class']}, the optimizer given is {type(optimizer).__name__}"
        )
    part = partOf(graph, optimizer)
    paths = None if part is None else set(part.values())
    if "part" in row and paths != set(row["part"]):
        updated = "all parameters" if paths is None else listed(sorted(paths))
        raise CheckpointError(
            f"its optimizer updates {listed(row['part'])} alone, "
            f"the {type(optimizer).__name__} given updates {updated}; "
            "call setupOn with that part of the network first"
        )
