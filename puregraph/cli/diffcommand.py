"""Diff command: the differences between two models, checkpoints or files of weights."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from puregraph.cli.modelargument import findGraph
from puregraph.cli.terminal import printJson
from puregraph.cli.usageerror import UsageError
from puregraph.core.base.uncollected import uncollected
from puregraph.core.errors import ArgumentError, CheckpointError, PuregraphError, printable
from puregraph.core.storage.archive import TITLE
from puregraph.graph import Graph
from puregraph.graph.analysis.difference import (
    NOREADERS,
    ComparedArray,
    ModelDifference,
    Readers,
    comparedWeights,
    difference,
    graphDifference,
    weightsOf,
)
from puregraph.serialize.nativefile import NativeFile
from puregraph.serialize.openfile import openFile
from puregraph.serialize.opening import namingFaults


@uncollected()  # both graphs and their comparison are needed until the end
def runDiff(options: argparse.Namespace) -> int:
    """Print the differences between two models; the exit code is 0 without differences, else 1."""
    with ExitStack() as stack:
        try:
            sides = [sideOf(target, stack) for target in (options.first, options.second)]
            if options.output and any(isinstance(side, WeightSide) for side in sides):
                raise UsageError("--output: wanted two models, got a file of weights, which has no nodes to draw")
            compared = differenceOf(*sides)
            if options.output:
                from puregraph.draw.differencepicture import differenceDrawing  # nothing else here needs it

                differenceDrawing(sides[0].graph, sides[1].graph, compared).save(options.output)
        except (ArgumentError, CheckpointError) as error:
            raise UsageError(str(error)) from None
    if options.json:
        printJson({"first": options.first, "second": options.second, **compared.json()}, options.out)
    else:
        print(compared.text(options.first, options.second))
        if options.output:
            print(f"drawn as {printable(options.output)}")
    return 1 if compared.differ else 0


class WeightSide:
    """A file of weights alone."""

    def __init__(self, file: Mapping[str, Any]):
        self.file = file

    def arrays(self) -> dict[str, ComparedArray]:
        """The arrays by name, each read when it is compared."""
        return {name: ComparedArray(tensor.shape, tensor.dtype, tensor.read) for name, tensor in self.file.items()}


class GraphSide:
    """A graph with its arrays."""

    readers: Readers = NOREADERS

    def __init__(self, graph: Graph):
        self.graph = graph

    def build(self, other: Any) -> None:
        """Do nothing: the graph exists."""

    def arrays(self) -> dict[str, ComparedArray]:
        """The parameters and states by path."""
        return weightsOf(self.graph)


class CheckpointSide:
    """An open checkpoint. Each array is read when it is compared, and not kept."""

    graph: Graph
    readers: Readers

    def __init__(self, path: str, stack: ExitStack):
        self.path = path
        with namingFaults(path):
            self.file = NativeFile(stack.enter_context(openFile(path)))
            self.file.check(self.file.arrays)
            self.file.extra()

    def build(self, other: Any) -> None:
        """Build the graph, or share that of another checkpoint with the same blueprint."""
        isShared = isinstance(other, CheckpointSide) and other.file.blueprint == self.file.blueprint
        with namingFaults(self.path):
            self.graph = other.graph if isShared else self.file.graph()
            stored = {**self.graph.params, **self.graph.states}
            fits = [path in self.file.arrays and self.file.fits(path, x.shape, x.dtype) for path, x in stored.items()]
            if not all(fits) or len(stored) != len(self.file.arrays):
                raise CheckpointError("its arrays are not those of its graph")
        self.readers = {id(array): partial(self.read, path) for path, array in stored.items()}

    def arrays(self) -> dict[str, ComparedArray]:
        """The parameters and states by path."""
        rows = self.file.arrays.items()
        return {path: ComparedArray(array.shape, array.dtype, partial(self.read, path)) for path, array in rows}

    def read(self, path: str) -> Any:
        """An array of the file, verified."""
        try:
            return self.file.array(self.file.names[path])
        except CheckpointError as error:
            raise CheckpointError(printable(f"cannot load '{self.path}': {error}")) from error.__cause__


def sideOf(target: str, stack: ExitStack) -> Any:
    """A model, a checkpoint, an ONNX file or a file of weights; `stack` closes the file.

    Raises    UsageError for a file that cannot be read, so that exit code 1 always means a difference
    """
    try:
        path = Path(target)
        if target.endswith(".py") or not path.is_file():
            return GraphSide(findGraph(target))
        if target.endswith(".onnx"):
            if importlib.util.find_spec("onnx") is None:
                raise UsageError("onnx is not installed: pip install puregraph[onnx]")
            from puregraph.onnx import fromOnnx  # nothing else here needs it

            return GraphSide(fromOnnx(path))
        if isCheckpoint(target):
            return CheckpointSide(target, stack)
        from puregraph.serialize.weights import readWeights  # nothing else here needs it

        return WeightSide(stack.enter_context(readWeights(target)))
    except UsageError:
        raise
    except (PuregraphError, OSError) as error:
        raise UsageError(str(error)) from error


def isCheckpoint(path: str) -> bool:
    """True for a file that puregraph.save wrote."""
    try:
        with open(path, "rb") as file:
            return file.read(len(TITLE)) == TITLE
    except OSError:
        return False


def differenceOf(first: Any, second: Any) -> ModelDifference:
    """Compare two graphs, or the arrays of both if one is a file of weights."""
    if isinstance(first, WeightSide) or isinstance(second, WeightSide):
        return difference(comparedWeights(first.arrays()), comparedWeights(second.arrays()))
    first.build(None)
    second.build(first)
    return graphDifference(first.graph, second.graph, (first.readers, second.readers))
