"""Diff command: the differences between two models, checkpoints or files of weights."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from puregraph.cli.modelargument import findGraph
from puregraph.cli.terminal import printJson
from puregraph.cli.usageerror import UsageError
from puregraph.compile.runtime.gc import uncollected
from puregraph.core.errors import ArgumentError, PuregraphError, printable
from puregraph.core.storage.archive import TITLE
from puregraph.draw.differencepicture import differenceDrawing
from puregraph.graph import Graph
from puregraph.graph.analysis.difference import (
    ComparedArray,
    ModelDifference,
    comparedWeights,
    difference,
    graphDifference,
    weightsOf,
)


@uncollected()  # both graphs and their comparison are needed until the end
def runDiff(options: argparse.Namespace) -> int:
    """Print the differences between two models; the exit code is 0 without differences, else 1."""
    sides = [sideOf(target) for target in (options.first, options.second)]
    graphs = [side for side in sides if isinstance(side, Graph)]
    try:
        compared = differenceOf(sides)
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
        with path.open("rb") as file:
            isCheckpoint = file.read(len(TITLE)) == TITLE
        if isCheckpoint:
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
