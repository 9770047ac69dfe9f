"""Updater: an optimizer's update, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puregraph.compile.pipeline import TRACED, runPasses
from puregraph.compile.program import Program
from puregraph.compile.results import gatherGrads
from puregraph.compile.trace.schedule import Schedule, traceUpdate
from puregraph.core.base.signals import Deferred
from puregraph.graph import Graph

if TYPE_CHECKING:
    from puregraph.compile.runtime.executable import Executable
    from puregraph.core.protocols import AnyArray
    from puregraph.optimizers.optimizer import Optimizer


class Updater(Program):
    """A compiled `optimizer.update()` for the gradients in a graph's parameters; call `run()`."""

    def __init__(self, graph: Graph, optimizer: Optimizer, **options: Any):
        super().__init__(graph, [], optimizer=optimizer, **options)

    def schedule(self, **changed: Any) -> Schedule:
        self.ready = self.optimizer.ready()
        return runPasses(traceUpdate(self.graph, self.optimizer, self.scales), TRACED)

    def isCurrent(self) -> bool:
        return super().isCurrent() and self.optimizer.ready() == self.ready

    def prepare(self, built: Executable, numbers: dict[str, float]) -> None:
        gatherGrads(built.schedule)

    def runEagerly(self, inputs: list[AnyArray], numbers: dict[str, float]) -> Any:
        with Deferred():
            self.optimizer.update()
        return []
