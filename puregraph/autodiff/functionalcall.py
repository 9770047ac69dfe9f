"""Pure: a Graph or Module as a function of arrays that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from puregraph.core.base.dtype import isFloating
from puregraph.core.errors import GraphError
from puregraph.core.param import Param
from puregraph.core.rules import rulesFor
from puregraph.graph import Graph
from puregraph.graph.backward import BackwardGraph
from puregraph.graph.lookup import few, nearest
from puregraph.graph.module import Module
from puregraph.graph.node import Node
from puregraph.graph.steps import Steps

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class Pure:
    """A Graph or Module as a pure function of its inputs and parameters.

    Running statistics and random counters are left unchanged, so the masks are those that the module's next call draws.
    `params` maps paths to parameters (names, for a single module).

    >>> from puregraph import Linear, Sequential
    >>> x = np.ones((5, 3), np.float32)
    >>> pure = Pure(Sequential(Linear(3, 2, name="fc")), [x])
    >>> sorted(pure.params), [y.shape for y in pure.outputs(pure.run([x]))]
    (['fc.W', 'fc.b'], [(5, 2)])
    """

    def __init__(self, subject: Module, inputs: Sequence[Any]):
        self.subject = subject
        self.graph = subject if isinstance(subject, Graph) else alone(subject)
        self.steps: Steps = self.graph.steps(len(inputs))
        self.graph.checkData(list(inputs), self.steps)
        cut = "" if self.graph is subject or not self.steps.items else f"{self.steps.items[0].path}."
        self.params: dict[str, Param] = {path.removeprefix(cut): p for path, p in self.graph.params.items()}

    @property
    def title(self) -> str:
        return self.graph.title() if self.graph is self.subject else type(self.subject).__name__

    def named(self, paths: Iterable[str]) -> dict[str, Param]:
        """Return parameters by their paths.

        Raises    GraphError for an unknown path
        """
        unknown = [path for path in paths if path not in self.params]
        if unknown:
            known = few(nearest(unknown[0], list(self.params)), 6) or "none"
            raise GraphError(f"{self.title} has no parameter {unknown[0]!r}; it has {known}")
        return {path: self.params[path] for path in paths}

    def stored(self, wrap: Callable[[Any, Any], Any] = lambda stored, array: array) -> dict[int, AnyArray]:
        """Parameters, and copies of states, by number; `wrap(stored, array)` may replace each array."""
        made: dict[int, Any] = {}
        arrays = {}
        for number, module, name in self.steps.params:
            stored = getattr(module, name)
            if stored is not None:
                if id(stored) not in made:
                    isParam = isinstance(stored, Param)
                    made[id(stored)] = wrap(stored, stored.data if isParam else stored.data.copy())
                arrays[number] = made[id(stored)]
        return arrays

    def run(self, inputs: Sequence[Any], stored: dict[int, Any] | None = None) -> list[Any]:
        """Run a forward pass, and return all values by number."""
        return self.steps.run(list(inputs), self.stored() if stored is None else stored)

    def outputs(self, values: list[Any]) -> list[Any]:
        """The outputs among the values of a pass."""
        return [values[n] for n in self.steps.outputs]

    def call(self, inputs: Sequence[AnyArray], wrap: Callable[[Any], Any]) -> Any:
        """The output, or a list where there are several, with parameters and states of floats wrapped."""
        stored = self.stored(lambda _, array: wrap(array) if isFloating(array.dtype) else array)
        outputs = self.outputs(self.run(inputs, stored))
        return outputs[0] if len(outputs) == 1 else outputs

    def pull(
        self, grads: list[Any], values: list[AnyArray], updGrad: bool, params: Iterable[Param]
    ) -> tuple[list, dict]:
        """Compute the gradients of the inputs, and of these parameters by id, regardless of their modules' modes."""
        back = backwardOf(self.graph, self.steps, updGrad, frozenset(map(id, params)))
        inputs, pairs = back.gradients(grads, values, shows=False)
        return inputs, {id(p): g for p, g in pairs}


class _Wanted(BackwardGraph):
    """A backward pass for chosen parameters, regardless of frozen parameters and of modes.

    Shapes    as the forward graph's outputs -> as its inputs
    Source    `BackwardGraph`
    """

    def __init__(self, graph: Graph, updGrad: bool, steps: Steps, chosen: frozenset[int]):
        self.chosen = chosen
        super().__init__(graph, updGrad, bool(chosen), steps)

    def asks(self, module: Module, param: Param) -> bool:
        return id(param) in self.chosen


def backwardOf(graph: Graph, steps: Steps, updGrad: bool, chosen: frozenset[int]) -> _Wanted:
    """Return the backward pass for chosen parameters, cached in the graph."""
    held = tuple([id(getattr(module, name)) for _, module, name in steps.params])
    key = ("chosen", updGrad, chosen, held, id(steps), rulesFor([step.node for step in steps.items]))
    if key not in graph.backwards:
        graph.backwards[key] = _Wanted(graph, updGrad, steps, chosen)
    return graph.backwards[key]


def alone(module: Module) -> Graph:
    """A Graph of one node."""
    node = Node(module)
    return Graph([node], node)
