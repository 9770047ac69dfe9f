"""Diff command: the differences between two models, checkpoints or files of weights."""

from __future__ import annotations

import argparse
import importlib.util
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from puregraph.cli.modelargument import findGraph
from puregraph.cli.terminal import printJson
from puregraph.cli.usageerror import UsageError
from puregraph.compile.runtime.gc import uncollected
from puregraph.core.errors import ArgumentError, CheckpointError, PuregraphError, printable
from puregraph.core.param import Stored
from puregraph.core.storage.archive import TITLE
from puregraph.draw.differencepicture import differenceDrawing
from puregraph.graph import Graph
from puregraph.graph.analysis.difference import (
    ComparedArray,
    ComparedNode,
    ModelDifference,
    comparedNodes,
    comparedWeights,
    difference,
    graphDifference,
    weightsOf,
)
from puregraph.serialize.checkpoint import opened
from puregraph.serialize.nativefile import NativeFile


@uncollected()  # both graphs and their comparison are needed until the end
def runDiff(options: argparse.Namespace) -> int:
    """Print the differences between two models; the exit code is 0 without differences, else 1."""
    shared = sharedNetwork(options.first, options.second)
    sides = [shared.graph] * 2 if shared else [sideOf(target) for target in (options.first, options.second)]
    graphs = [side for side in sides if isinstance(side, Graph)]
    try:
        compared = shared.compared if shared else differenceOf(sides)
        if options.output:
            if len(graphs) < 2:
                raise UsageError("--output: wanted two models, got a file of weights, which has no nodes to draw")
            differenceDrawing(graphs[0], graphs[1], compared).save(options.output)
    except ArgumentError as error:
        raise UsageError(str(error)) from None
    finally:
        for side in sides:
            if not isinstance(side, Graph):
                side.close()
    if options.json:
        printJson({"first": options.first, "second": options.second, **compared.json()}, options.out)
    else:
        print(compared.text(options.first, options.second))
        if options.output:
            print(f"drawn as {printable(options.output)}")
    return 1 if compared.differ else 0


class SharedNetwork(NamedTuple):
    """The one network of two checkpoints, and the differences of their weights."""

    graph: Graph
    compared: ModelDifference


def sharedNetwork(first: str, second: str) -> SharedNetwork | None:
    """Compare two checkpoints of one blueprint: build one graph, and read the arrays of both files in turn.

    None for other targets, and for a file that cannot be loaded: loading it by itself names it in the error.
    """
    if not (isCheckpoint(first) and isCheckpoint(second)):
        return None
    with suppress(CheckpointError), opened(first) as one, opened(second) as other:
        if one.blueprint == other.blueprint:
            graph = one.graph().evalMode()
            stored = {owner: array for kind in ("params", "states") for _, array, owner in graph.stored(kind)}
            nodes = comparedNodes(graph)
            return SharedNetwork(graph, difference(*[nodesOf(file, nodes, stored) for file in (one, other)]))
    return None


def nodesOf(file: NativeFile, nodes: list[ComparedNode], stored: dict[str, Stored]) -> list[ComparedNode]:
    """Nodes whose arrays are read from a checkpoint; `stored` has the arrays of its graph by path.

    Raises    CheckpointError if the file holds other arrays or is damaged outside the arrays of the graph
    """
    fits = all(path in file.arrays and file.fits(path, x.shape, x.dtype) for path, x in stored.items())
    if not fits or len(stored) != len(file.arrays):
        raise CheckpointError("the graph holds other arrays")
    file.check(stored)
    file.extra()
    paths = {id(x): path for path, x in stored.items()}
    return [
        node._replace(
            arrays={
                name: array._replace(read=partial(file.array, file.names[paths[array.key]]))
                for name, array in node.arrays.items()
                if array.key in paths  # others are computed by another node
            }
        )
        if node.arrays
        else node
        for node in nodes
    ]


def isCheckpoint(target: str) -> bool:
    """True for a file that puregraph.save wrote."""
    try:
        if target.endswith(".py"):
            return False
        with open(target, "rb") as file:
            return file.read(len(TITLE)) == TITLE
    except OSError:
        return False


def sideOf(target: str) -> Any:
    """The Graph of a model, a checkpoint or an ONNX file, else the WeightFile of a file.

    Raises    UsageError for a file that cannot be read, so that exit code 1 always means a difference
    """
    try:
        path = Path(target)
        if target.endswith(".py") or not path.is_file():
            return findGraph(target)
        if target.endswith(".onnx"):
            if importlib.util.find_spec("onnx") is None:
                raise UsageError("onnx is not installed: pip install puregraph[onnx]")
            from puregraph.onnx import fromOnnx  # nothing else here needs it

            return fromOnnx(path)
        if isCheckpoint(target):
            return findGraph(target)
        from puregraph.serialize.weights import readWeights  # nothing else here needs it

        return readWeights(target)
    except UsageError:
        raise
    except (PuregraphError, OSError) as error:
        raise UsageError(str(error)) from error


def differenceOf(sides: list[Any]) -> ModelDifference:
    """Compare two graphs, or the arrays of both if one is a file of weights."""
    if all(isinstance(side, Graph) for side in sides):
        return graphDifference(*sides)
    arrays = [weightsOf(side) if isinstance(side, Graph) else arraysOf(side) for side in sides]
    return difference(*map(comparedWeights, arrays))


def arraysOf(file: Any) -> dict[str, ComparedArray]:
    """The arrays of a file of weights, by name."""
    return {name: ComparedArray(tensor.shape, tensor.dtype, tensor.read) for name, tensor in file.items()}
