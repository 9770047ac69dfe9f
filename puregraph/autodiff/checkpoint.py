"""Checkpoint: a part of a graph that keeps only its inputs, and computes what is between again when going backward.

    block = Sequential(Conv2D(64, 64, 3, pad=1), BatchNorm(64), Relu(), name="block")
    y = Checkpoint(block).node(x)          in place of block.node(x)

What a deep net keeps for its backward pass then grows with the number of such parts instead of with that of all nodes,
for one more forward pass of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from puregraph.autodiff.pure import alone, backwardOf
from puregraph.graph import Graph
from puregraph.module import Inputs, Module
from puregraph.param import Param, State
from puregraph.pointwise import Pointwise
from puregraph.sequential import Sequential
from puregraph.steps import Steps

Place = tuple[Module, str]  # a module, and the name of a parameter or state of its own


class _Before:
    """The states as they were before a pass, in one thing that no rule takes for an array."""

    def __init__(self, arrays: list[Any]):
        self.arrays = arrays


class Checkpoint(Module):
    """y = f(x), f a Graph or Module of which only x is kept: its inner values are computed again for its gradient.

    Values and gradients are those of f, to the last bit. (Only where an inner and two or more outer nodes read the same
    value are the contributions to its gradient added in another order: those from inside first.) Random modules draw
    the masks that they drew; running statistics move once. Parameters and states have the paths that they would have
    without it, so that files of either kind can be loaded into the other. The hidden output `before` holds the states
    as they were. Inside, nodes keep no `data` and no `grad`.

    Shapes    those of f
    Source    Griewank, Walther 2000, Algorithm 799: Revolve; Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174
    """

    hidden = ("before",)

    def __init__(self, graph: Module, name: str | None = None):
        super().__init__(name or graph.name)
        self.inner = graph
        self.graph = graph if isinstance(graph, Graph) else alone(graph)
        self.known: tuple[Steps | None, dict[str, Place]] = None, {}

    # Parameters and states, by the paths inside --------------------------------------------------------------------

    def inside(self) -> Iterator[tuple[str, Module]]:
        """The modules of its steps, each by its path; a lone module has none."""
        for step in self.graph.steps().items:
            yield step.path if self.graph is self.inner else "", step.module

    @property
    def places(self) -> dict[str, Place]:
        """Where the parameters and states are that rules take, each once."""
        steps = self.graph.steps()
        if self.known[0] is not steps:
            found: dict[tuple[int, str], tuple[str, Place]] = {}
            for path, module in self.inside():
                for name in (*module.params, *module.states):
                    found.setdefault((id(module), name), (f"{path}.{name}" if path else name, (module, name)))
            self.known = steps, dict(found.values())
        return self.known[1]

    def __getattr__(self, name: str) -> Any:
        if "graph" in vars(self):
            place = self.places.get(name)
            if place is not None:
                return getattr(*place)
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def held(self, kind: type) -> dict[str, Any]:
        """Parameters or states by path."""
        found = {path: getattr(*place) for path, place in self.places.items()}
        return {path: stored for path, stored in found.items() if isinstance(stored, kind)}

    @property
    def params(self) -> dict[str, Param]:
        return self.held(Param)

    @property
    def states(self) -> dict[str, State]:
        return self.held(State)

    @property
    def ruleNames(self) -> tuple[str, ...]:
        return (*self.params, *self.states)

    def wants(self, param: Any) -> bool:
        """Whether one of the modules that hold a parameter wants its gradient."""
        return any(m.wants(param) for m, name in self.places.values() if getattr(m, name) is param)

    # As a Module ---------------------------------------------------------------------------------------------------

    @property
    def train(self) -> bool:  # type: ignore[override]
        return self.inner.train

    @train.setter
    def train(self, mode: bool) -> None:
        if isinstance(self.inner, Graph):
            self.inner.mode(mode)
        self.inner.train = mode

    def calcMode(self, dtype: Any) -> Any:
        self.graph.calcMode(dtype)
        return self

    @property
    def inputSpec(self) -> Inputs:
        return self.graph.inputSpec if self.graph is self.inner else self.inner.inputSpec

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.inner.outputNames

    @property
    def indices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The inputs that are read as indices, and as nothing else."""
        if self.graph is not self.inner:
            return self.inner.indices
        steps, uses = self.graph.steps(), {}
        for step in steps.items:
            names = step.module.arguments
            for i, number in enumerate(step.args[: step.inputs]):
                isIndex = names[min(i, len(names) - 1)] in step.module.indices
                uses[number] = uses.get(number, True) and isIndex
        return tuple(name for name, number in zip(self.arguments, steps.inputs) if uses.get(number, False))

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.arguments, *self.ruleNames, "before")

    def dataShapeFrom(self, *shapes: Any) -> Any:
        return self.graph.dataShapeFrom([s for s in shapes if s is not None])

    def hiddenShapeFrom(self, *shapes: Any) -> list:
        return [((), object)]

    def flopsFrom(self, *shapes: Any) -> Any:
        return self.graph.flopsFrom([s for s in shapes if s is not None])

    def updateData(self, *values: Any) -> tuple:
        names = self.ruleNames
        inputs, stored = values[: len(values) - len(names)], dict(zip(names, values[len(values) - len(names) :]))
        before = _Before([stored[name].copy() for name in self.states])
        steps, found = self.replay(inputs, stored)
        return (*(found[n] for n in steps.outputs), before)

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        names, outputs = self.ruleNames, len(self.outputNames)
        *values, before = values[: len(needs)] + values[-1:]
        count = len(needs) - len(names)
        inputs, stored = values[:count], dict(zip(names, values[count:]))
        stored |= {name: array.copy() for name, array in zip(self.states, before.arrays)}
        steps, found = self.replay(inputs, stored)
        wanted = {id(getattr(self, name)) for name, need in zip(names, needs[count:]) if need}
        back = backwardOf(self.graph, steps, any(needs[:count]), frozenset(wanted))
        new, params = back.gradients(list(grad) if outputs > 1 else [grad], found, shows=False)
        given = iter(new)
        grads = {id(p): g for p, g in params}
        return (
            *(None if x is None else next(given) for x in inputs),
            *(grads.pop(id(getattr(self, name)), None) for name in names),
        )

    def replay(self, inputs: Any, stored: dict[str, Any]) -> tuple[Steps, list[Any]]:
        """A pass on these parameters and states, and its values."""
        given = [x for x in inputs if x is not None]
        steps = self.graph.steps(len(given))
        arrays = {id(getattr(self, name)): array for name, array in stored.items()}
        numbers = {number: id(getattr(module, name)) for number, module, name in steps.params}
        return steps, steps.run(given, {n: arrays[key] for n, key in numbers.items() if key in arrays})

    def brief(self) -> str:
        return f"Checkpoint of {self.inner.brief()}"

    @classmethod
    def examples(cls) -> Iterator[tuple[Module, list]]:
        yield cls(Pointwise(formula="x * sigmoid(x)")), [(2, 3)]
        yield cls(Sequential(Pointwise(formula="a * b"), Pointwise(formula="tanh(x)"))), [(2, 3), (3,)]


def checkpoint(function: Module, *inputs: Any) -> Any:
    """What a Graph or Module gives, keeping only its inputs for the gradient: on Nodes a Node, on arrays arrays.

    Source    torch.utils.checkpoint
    """
    return Checkpoint(function)(*inputs)
