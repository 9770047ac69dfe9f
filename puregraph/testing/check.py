"""Checks of the contract that every Module satisfies: for the test suite and for your own modules.

    from puregraph import checkModule
    checkModule(Linear(3, 4), [(5, 3)])

Each check is a function of a `Case` and raises a CheckError whose message is a sentence about the module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.core import device
from puregraph.core.arguments import ModuleLike, Shapes, Size, takes
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.testing.case import Case as Case
from puregraph.testing.case import CheckError as CheckError
from puregraph.testing.dtypechecks import dtypeRule, dtypes, extremes
from puregraph.testing.graphchecks import compiled, evaluation, onDevice, twoNodes
from puregraph.testing.rulechecks import gradient, needsIsTrue, readsIsTrue, repeats, shapeRule, symbols, wrongShapes

if TYPE_CHECKING:
    from collections.abc import Sequence


CHECKS: list[Callable[[Case], None]] = [
    shapeRule,
    symbols,
    wrongShapes,
    gradient,
    repeats,
    readsIsTrue,
    needsIsTrue,
    dtypes,
    dtypeRule,
    extremes,
    twoNodes,
    evaluation,
    compiled,
    onDevice,
]


@takes(module=ModuleLike, shapes=Shapes, seed=Size)
def checkModule(module: Module, shapes: list[Any], seed: int = 0) -> None:
    """Run every check on a module with inputs of the given shapes.

    Raises    CheckError, a sentence about the first promise that is broken
    """
    for check, train in itertools.product(CHECKS, (True, False)):
        with device.useDevice(device.name() if check is onDevice else "cpu"):
            check(Case(module, shapes, seed, train))


@takes(graph=ModuleLike, shapes=Shapes, seed=Size)
def checkGraph(graph: Graph, shapes: Sequence[object], seed: int = 0) -> list[tuple[str, str]]:
    """Check every node of a graph at its shapes: a list of (path, problem), empty if there is none."""
    problems = []
    for row in graph.inferShapes(list(shapes)):
        if row.fault is not None:
            problems.append((row.step.path, str(row.fault)))
        elif row.shapes is not None:
            try:
                checkModule(row.step.module, [s for s in row.inshapes if s is not None], seed)
            except CheckError as error:
                problems.append((row.step.path, str(error)))
    return problems
