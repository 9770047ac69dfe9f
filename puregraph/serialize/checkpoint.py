"""Saving and loading: a graph, an optimizer and the other state of a run, in one file.

    graph.save("net.h5")                      weights, states and the blueprint
    graph = puregraph.load("net.h5")          the graph itself, rebuilt
    graph.load("net.h5")                      into a graph that exists; all or nothing

    save("run.h5", graph, optimizer, extra={"epoch": 3, "random": rng.bit_generator.state})
    graph, optimizer, extra = load("run.h5")

A file is HDF5 (see `archive`), written atomically (see `atomicwrite`), without code. A path of None saves to bytes, and
bytes are loaded like a file. Files of PuzzleLib are loaded with `format="puzzlelib"` (see `puzzlelib`).
"""

from __future__ import annotations

import inspect
import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from operator import methodcaller
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from puregraph.core import device
from puregraph.core.arguments import Argument, FileSource, Flag, OptimizerLike, Text, Texts, meets, takes
from puregraph.core.base.align import aligned, fitting
from puregraph.core.base.budget import Budget
from puregraph.core.base.signals import Deferred
from puregraph.core.base.uncollected import uncollected
from puregraph.core.errors import ArgumentError, CheckpointError, printable
from puregraph.core.param import Stored
from puregraph.core.storage.archive import TITLE, write
from puregraph.core.storage.atomicwrite import whole
from puregraph.core.storage.hdf import Array
from puregraph.core.storage.jsoncodec import decode, dumps, encode
from puregraph.core.storage.pieces import PieceSet, removePieces
from puregraph.core.versioning import ARRAYVERSIONS, COUNTER
from puregraph.graph import Graph
from puregraph.graph.lookup import nearest
from puregraph.optimizers import InitRecorder, Optimizer
from puregraph.optimizers.changedoptions import changedOptions, restoringOptions
from puregraph.serialize.blueprintreader import checkSize
from puregraph.serialize.blueprintwriter import toBlueprint
from puregraph.serialize.classnames import classNamed, nameOf
from puregraph.serialize.loadreport import LoadReport, listed, match
from puregraph.serialize.nativefile import NativeFile, require
from puregraph.serialize.openfile import folderOf, openFile

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray, StrPath
    from puregraph.graph.module import Module
    from puregraph.serialize.weights.loading import MappedWeights


class LoadedCheckpoint(NamedTuple):
    """The content of a file: the rebuilt graph, its optimizer in the saved state (or None), and `extra`."""

    graph: Graph
    optimizer: Any
    extra: Any


class Loaded(NamedTuple):
    """The result of `loadInto`: a report, and the value that was saved as `extra`."""

    report: LoadReport
    extra: Any


class Contents(NamedTuple):
    """The description of a file: its arrays with their crc32, and the JSON of graph, optimizer and extra."""

    arrays: dict[str, Array]
    crcs: dict[str, int]
    blueprint: dict[str, Any]
    optimizer: dict[str, Any] | None
    extra: Any


# Saving -------------------------------------------------------------------------------------------------------------


class DividedState(NamedTuple):
    """The state of an optimizer that is sharded over several processes.

    `arrays`  by their names as in `optimizer.state`; None for an array that is in pieces
    `pieces`  the files that the processes have written
    """

    arrays: dict[str, Any]
    pieces: PieceSet | None


def save(
    path: StrPath | None,
    graph: Graph,
    optimizer: Optimizer | None = None,
    extra: object = None,
    state: DividedState | None = None,
) -> bytes | None:
    """Write a graph, and optionally an optimizer and `extra`, atomically.

    `extra` is None, a number, a text, an array, or lists, tuples and dicts of those; whole numbers may be of any size.
    A path of None returns the bytes instead. Arrays that several modules share are stored once. `state` is the state of
    a sharded optimizer. Pieces of the replaced file are removed at the end.

    Raises    CheckpointError naming what cannot be stored, or why the file cannot be written
    """
    if isinstance(path, (bytes, bytearray, memoryview)):
        raise CheckpointError("a path is wanted as text: bytes are the content of a file, see `load`")
    arrays, about = collect(graph, optimizer, extra, state)
    if path is None:
        memory = io.BytesIO()
        write(memory, arrays, about)
        return memory.getvalue()
    with whole(path) as file:
        write(file, arrays, about)
    removePieces(path, [] if state is None or state.pieces is None else [name for name, _ in state.pieces.files])
    return None


Fetched = tuple[Array, Any]
DETECTED_BYTES = 512  # bytes from which a format is detected


def collect(
    graph: Graph, optimizer: Optimizer | None, extra: object, divided: DividedState | None = None
) -> tuple[list[Fetched], dict[str, Any]]:
    """The arrays to write, each with a function that fetches it, and the JSON about them."""
    about: dict[str, Any] = {"blueprint": toBlueprint(graph), "optimizer": None}
    checkSize(about["blueprint"], Budget(len(dumps(about["blueprint"]))))
    arrays: list[Fetched] = []
    groups: Any = (("params", graph.params), ("states", graph.states))
    for group, stored in groups:
        for path, s in stored.items():
            array = Array(f"{group}/{path}", tuple(s.shape), s.dtype.name)
            arrays.append((array, lambda s=s: device.toHost(s.values())))
    if optimizer is not None:
        part = partOf(graph, optimizer)
        divided = divided or DividedState(wholeOf(optimizer), None)
        state = {named(name, part): array for name, array in divided.arrays.items()}
        arrays += [arrayOf(f"optimizer/{i}", array) for i, array in enumerate(state.values()) if array is not None]
        about["optimizer"] = {
            **describe(optimizer, "the optimizer"),
            "step": int(optimizer.step),
            "state": list(state),
            **({} if part is None else {"part": list(part.values())}),
            **({} if divided.pieces is None else {"pieces": list(divided.pieces)}),
        }
    extras: list[Fetched] = []

    def special(value: object) -> Any:
        if isinstance(value, np.ndarray) or device.isDeviceArray(value):
            extras.append(arrayOf(f"extra/{len(extras)}", value))
            return {"array": len(extras) - 1}
        return None

    about["extra"] = encode(extra, "extra", special)
    return arrays + extras, about


def wholeOf(optimizer: Optimizer) -> dict[str, AnyArray]:
    """Return the state arrays of an optimizer, which must not be sharded."""
    sharded = [slot.path for slot in getattr(optimizer, "slots", ()) if slot.part is not None]
    if sharded:
        raise CheckpointError(
            f"the state of {listed(sharded)} is in parts, each in another process; trainer.save writes all of them"
        )
    return optimizer.state


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


def arrayOf(name: str, values: Any) -> Fetched:
    """An array to write under a name."""
    return Array(name, tuple(values.shape), values.dtype.name), lambda: device.toHost(values)


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
    """Rebuild an optimizer or schedule from its description; `isChanged` includes settings that were changed later."""
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
    return cls(*args, **kwargs)


# Loading ------------------------------------------------------------------------------------------------------------


FORMATS: dict[str, Callable[..., Any]] = {  # the reader of each format, given the file, its folder and a root in it
    "puregraph": lambda file, folder, root: NativeFile(file, folder),
    "puzzlelib": lambda file, folder, root: import_module("puregraph.compat.puzzlelib").PuzzleFile(file, root),
}


class NameOptions(NamedTuple):
    """The graph that a foreign file is loaded into, and the map of the file's names: see `Graph.load`."""

    graph: Graph
    names: Any = None
    prefix: str = ""


@contextmanager
def opened(
    source: Any, format: str | None = None, root: str | None = None, mapping: NameOptions | None = None
) -> Iterator[Any]:
    """Open a file, bytes, or arrays by name, to load from.

    Without a format, it is recognised by the content. Errors inside the block name the file, see `namingFaults`.
    """
    isMapping = isinstance(source, Mapping)
    with namingFaults(source):
        if format is not None and format not in FORMATS:
            raise CheckpointError(f"format: wanted {' or '.join(map(repr, FORMATS))}, got {format!r:.60}")
        with nullcontext(source) if isMapping else openFile(source) as file:
            if isMapping or format is None and isForeign(file, source, mapping):
                reader = foreignSource(source, mapping)
            else:
                reader = FORMATS[format or "puregraph"](file, folderOf(source), root)
            try:
                yield reader
            finally:
                reader.close()


@contextmanager
def namingFaults(source: Any) -> Iterator[None]:
    """Raise any error inside the block as a CheckpointError that names the file."""
    isBytes = isinstance(source, (bytes, bytearray, memoryview))
    isMapping = isinstance(source, Mapping)
    label = "the given bytes" if isBytes else "the given arrays" if isMapping else f"'{os.fspath(source)}'"
    try:
        yield
    except ArgumentError:
        raise
    except CheckpointError as error:
        isNamed = str(error).startswith("cannot load")  # raised by the reader
        raise CheckpointError(printable(f"{'' if isNamed else f'cannot load {label}: '}{error}")) from error.__cause__
    except FileNotFoundError as error:
        raise CheckpointError(f"cannot load {label}: there is no such file") from error
    except IsADirectoryError as error:
        raise CheckpointError(f"cannot load {label}: it is a folder") from error
    except Exception as error:  # a forged file may cause any error
        raise CheckpointError(printable(f"cannot load {label}: {type(error).__name__}: {error!s:.300}")) from error


def isForeign(file: BinaryIO, source: Any, mapping: NameOptions | None) -> bool:
    """True for a file of weights that another program wrote.

    Raises    CheckpointError for a checkpoint of puregraph with names of another program
    """
    head = file.read(DETECTED_BYTES)
    file.seek(0)
    if head.startswith(TITLE):
        if mapping is not None and (mapping.names is not None or mapping.prefix):
            raise CheckpointError("names= and prefix= are for files of other programs; this one is puregraph's own")
        return False
    from puregraph.serialize.weights.readers import readerOf  # most files are puregraph's own

    reader = readerOf(head, "" if folderOf(source) is None else os.fsdecode(source), file)
    return reader is not None and reader.format not in FORMATS  # formats of FORMATS must be requested by name


def foreignSource(source: Any, mapping: NameOptions | None) -> MappedWeights:
    """The arrays of a file of weights, or of a dict of arrays, as those of a graph."""
    from puregraph.serialize.weights.loading import MappedWeights, storedFrom
    from puregraph.serialize.weights.readers import readWeights

    weights = storedFrom(source) if isinstance(source, Mapping) else readWeights(source)
    return MappedWeights(weights, *(mapping or (None,)))


@takes(path=FileSource, format=Text | None)
def load(path: StrPath, format: str | None = None) -> LoadedCheckpoint:
    """Load everything in a file: the graph from its blueprint, the optimizer set up on it, and `extra`.

    The graph is in evalMode. A Trainer trains it as it is; call `graph.trainMode()` before a training loop of your own.

    Classes are found by name among those of puregraph and those given to `registerModule`; nothing is imported or run.

    `format="puzzlelib"` reads a file of PuzzleLib; this format is never detected automatically.

    Raises    CheckpointError naming file, array and reason, before memory is allocated for it
    """
    with uncollected(), opened(path, format) as source:
        graph = source.graph().evalMode()
        optimizer = None if source.optimizer is None else remake(source.optimizer)
        if optimizer is not None:
            optimizer.setupOn(holderOfPart(graph, source.optimizer.get("part")))
        return LoadedCheckpoint(graph, optimizer, bring(source, graph, optimizer, True).extra)


@takes(path=FileSource, format=Text | None)
def loadGraph(path: StrPath, format: str | None = None) -> Graph:
    """Return the graph of a file, in evalMode, without the optimizer; see `load`."""
    with uncollected(), opened(path, format) as source:
        graph = source.graph().evalMode()
        bring(source, graph, None, True)
        return graph


def loadInto(
    path: StrPath,
    graph: Graph,
    optimizer: Optimizer | None = None,
    strict: bool = True,
    root: str | None = None,
    format: str | None = None,
    names: Any = None,
    prefix: str = "",
    only: Any = None,
) -> Loaded:
    """Load a file into an existing graph, and optionally an optimizer; all of it or nothing.

    The optimizer keeps its own settings, and takes over the steps and the state. `strict=False` loads what fits, `only`
    the paths of a pattern, such as "encoder.*". `format="puzzlelib"` reads what PuzzleLib wrote; `root` names the
    network in it. `names` and `prefix` are for files of other programs, see `NameMap`.

    Raises    CheckpointError, listing all arrays that do not fit. Graph and optimizer are then unchanged.
    """
    with opened(path, format, root, NameOptions(graph, names, prefix)) as source:
        if optimizer is not None and strict:
            checkOptimizer(source.optimizer, optimizer, graph)
        return bring(source, graph, optimizer if source.optimizer else None, strict, only)


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


class Staged(NamedTuple):
    """The values of a file for a graph and an optimizer: read and checked, not yet assigned; see `assign`.

    `kept`  a sentence for each optimizer setting that differs from the file and is kept
    """

    loaded: Loaded
    steps: list[Callable[[], Any]]
    kept: list[str]


def bring(source: Any, graph: Graph, optimizer: Any, strict: bool, only: Any = None) -> Loaded:
    """Read and verify all arrays that fit, then assign them."""
    staged = stage(source, graph, optimizer, strict, only)
    assign(staged.steps)
    return staged.loaded


def stage(source: Any, graph: Graph, optimizer: Any, strict: bool, only: Any = None) -> Staged:
    """Read and check every array that fits, and change nothing. The steps that follow allocate no memory and cannot
    fail."""
    targets: dict[str, Stored] = {**graph.params, **graph.states}
    if only is not None:
        targets = selected(targets, (only,) if isinstance(only, str) else only)
    report, chosen = match(source, graph, targets)
    if only is not None:
        report.extra.clear()
    if strict and not report.complete:
        raise CheckpointError(f"the graph holds other arrays: {report}{source.advice(graph, report)}")
    kept: list[str] = []
    values = {p: device.toDevice(source.read(at, targets[p].shape, targets[p].dtype)) for p, at in chosen.items()}
    if strict:
        source.check(chosen.values())
    loaded = Loaded(report, source.extra())
    steps = [step for path, value in values.items() for step in putting(targets[path], value)]
    if optimizer is not None:
        part = partOf(graph, optimizer) if "part" in source.optimizer else None
        back = None if part is None else {path: name for name, path in part.items()}
        saved = {named(name, back): array for name, array in source.state().items()}
        attributes = optimizer.restored(source.optimizer["step"], saved)
        steps.append(partial(vars(optimizer).update, attributes))
        options, kept = restoringOptions(optimizer, remake(source.optimizer, False), remake(source.optimizer))
        steps += options
    return Staged(loaded, steps, kept)


def selected(targets: dict[str, Stored], patterns: Iterable[str]) -> dict[str, Stored]:
    """Return the arrays whose paths match a pattern, in which * is any text.

    Raises    CheckpointError for a pattern that matches no path
    """
    chosen: set[str] = set()
    for pattern in patterns:
        expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        matching = {path for path in targets if expression.fullmatch(path)}
        if not matching:
            near = listed(nearest(pattern, list(targets), 3))
            raise CheckpointError(f"only={pattern!r:.60} matches no array of the graph; it has {near}")
        chosen |= matching
    return {path: stored for path, stored in targets.items() if path in chosen}


def putting(stored: Stored, value: AnyArray) -> list[Callable[[], object]]:
    """Return the steps that set an array's values and give it a new version. An existing array is written in place."""
    renew = partial(vars(stored).__setitem__, "version", next(ARRAYVERSIONS))
    if stored.array is not None:
        return [partial(stored.array.__setitem__, ..., value), renew]
    return [partial(vars(stored).__setitem__, "array", aligned(fitting(value, stored.dtype))), renew]


def assign(steps: list[Callable[[], object]]) -> None:
    """Run all steps, or none: within one call of C code, which no signal handler interrupts.

    Each step is C code itself, because Python runs signal handlers between its own instructions. CuPy copies to a GPU
    in Python; `Deferred` delays handlers until the end.
    """
    with Deferred():
        deque(map(methodcaller("__call__"), [*steps, partial(setattr, COUNTER, "version", object())]), maxlen=0)


def contents(path: StrPath, format: str | None = None) -> Contents:
    """Describe the content of a file without reading its arrays."""
    with opened(path, format) as source:
        if not isinstance(source, NativeFile):
            return Contents(dict(source.arrays), {}, {}, None, None)
        archive = source.archive
        return Contents(archive.arrays, archive.crcs, source.blueprint, source.optimizer, source.extraJson)


# On Graph -----------------------------------------------------------------------------------------------------------


WEIGHTS = (".safetensors", ".npz")  # suffixes of files with weights alone


@takes(path=FileSource | None, optimizer=OptimizerLike | None)
def saveGraph(
    self: Graph, path: Any, optimizer: Any | None = None, extra: Any | None = None, names: Any = None
) -> bytes | None:
    """Write this graph, and optionally an optimizer and `extra`, to a file; a path of None returns bytes; see `save`.

    A path that ends with `.safetensors` or `.npz` stores only the weights, for other programs; `names` maps their names
    to the graph's, as for `load`.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/small.safetensors"
    >>> net = Sequential(Linear(4, 2, name="fc"))
    >>> net.save(path, names="torch")
    >>> with puregraph.weights.readWeights(path) as weights:
    ...     print(*weights.values())
    <'fc.weight': (2, 4) float32> <'fc.bias': (2,) float32>
    """
    isWeights = isinstance(path, (str, os.PathLike)) and os.path.splitext(os.fsdecode(path))[1].lower() in WEIGHTS
    if not isWeights:
        if names is not None:
            raise CheckpointError(f"names= is for files that end with {' or '.join(WEIGHTS)}, got {path!r:.200}")
        return save(path, self, optimizer, extra)
    if optimizer is not None or extra is not None:
        raise CheckpointError(
            f"'{os.fspath(path)}' takes weights alone; save the optimizer and extra in a checkpoint: "
            "net.save('run.h5', optimizer, extra)"
        )
    from puregraph.serialize.weights.saving import saveWeights  # most files are puregraph's own

    saveWeights(self, path, names)
    return None


WeightSource = Argument(
    "a path, the bytes of a file, or a dict of arrays by name",
    lambda value: meets(FileSource, value) or isinstance(value, Mapping),
    hint="of a torch module give module.state_dict()",
)


@takes(
    path=WeightSource,
    optimizer=OptimizerLike | None,
    strict=Flag,
    root=Text | None,
    format=Text | None,
    prefix=Text,
    only=Texts | None,
)
def loadReport(
    self: Graph,
    path: StrPath,
    strict: bool = True,
    optimizer: Optimizer | None = None,
    root: str | None = None,
    format: str | None = None,
    names: Any = None,
    prefix: str = "",
    only: str | tuple[str, ...] | None = None,
) -> LoadReport:
    """Load a file into this graph, all or nothing, and report the outcome of each array; see `loadInto`.

    The file may be another program's, in any format of `puregraph.weights`, or a dict of arrays, such as
    `module.state_dict()`. `names` then maps its names and layouts to the graph's: a `NameMap`, a dict of names, or
    "torch", "torchvision", "huggingface" or "keras". Only names that begin with `prefix` are loaded, without it.

    >>> net = Sequential(Linear(4, 8, name="fc1"), Relu(), Linear(8, 2, name="fc2"))
    >>> arrays = {"0.weight": np.ones((8, 4)), "0.bias": np.ones(8), "2.weight": np.ones((2, 8)), "2.bias": np.ones(2)}
    >>> print(net.load(arrays, names={"0": "fc1", "2": "fc2"}))
    4 arrays fit
    """
    return loadInto(path, self, optimizer, strict, root, format, names, prefix, only).report
