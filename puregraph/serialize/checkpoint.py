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

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.arguments import Argument, FileSource, Flag, OptimizerLike, Text, Texts, meets, takes
from puregraph.core.base.uncollected import uncollected
from puregraph.core.errors import CheckpointError
from puregraph.core.storage.hdf import Array
from puregraph.graph import Graph
from puregraph.optimizers import Optimizer
from puregraph.serialize.checkpointwriter import save as save
from puregraph.serialize.loadreport import LoadReport
from puregraph.serialize.nativefile import NativeFile
from puregraph.serialize.opening import NameOptions, opened
from puregraph.serialize.savedoptimizer import checkOptimizer, holderOfPart, remake
from puregraph.serialize.staging import Loaded, bring

if TYPE_CHECKING:
    from puregraph.core.protocols import StrPath


class LoadedCheckpoint(NamedTuple):
    """The content of a file: the rebuilt graph, its optimizer in the saved state (or None), and `extra`."""

    graph: Graph
    optimizer: Any
    extra: Any


class Contents(NamedTuple):
    """The description of a file: its arrays with their crc32, and the JSON of graph, optimizer and extra."""

    arrays: dict[str, Array]
    crcs: dict[str, int]
    blueprint: dict[str, Any]
    optimizer: dict[str, Any] | None
    extra: Any


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
