"""Checkpoint: a part of a graph that stores only its inputs and recomputes its inner values in the backward pass.

    block = Sequential(Conv2D(64, 64, 3, pad=1), BatchNorm(64), Relu(), name="block")
    y = Checkpoint(block).node(x)          in place of block.node(x)

Activation memory then grows with the number of checkpoints instead of the number of nodes, at the cost of one more
forward pass of each checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.functionalcall import alone, backwardOf
from puregraph.autodiff.tape.engine import run
from puregraph.autodiff.tape.gradmode import enable_grad, is_grad_enabled
from puregraph.autodiff.tape.recordednodes import AGAIN
from puregraph.autodiff.tape.tapenode import NUMBERS, GradientEdge, LeafAccumulator, TapeNode
from puregraph.autodiff.tape.variable import Variable, variable, versionOf
from puregraph.core.applied import checkMode, checkSaved
from puregraph.core.errors import AutoDiffException
from puregraph.core.hooks import HOOKS
from puregraph.core.param import State
from puregraph.graph import Graph
from puregraph.graph.graphholder import GraphHolder
from puregraph.graph.module import Inputs, Module
from puregraph.graph.pointwise import Pointwise
from puregraph.graph.sequential import Sequential
from puregraph.graph.steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self

    from puregraph.core.device import Array
    from puregraph.core.dim import Size
    from puregraph.core.protocols import AnyArray
    from puregraph.core.shape import Shape


class _Before:
    """The states before a pass, and its modes, in one object that no rule takes for an array."""

    flows = True  # may be passed from a forward graph to a separate backward graph

    def __init__(self, arrays: list[AnyArray], modes: list[bool]):
        self.arrays, self.modes = arrays, modes


class Checkpoint(GraphHolder):
    """y = f(x), where f is a Graph or Module. Only x is stored; inner values are recomputed for the gradient.

    Values and gradients equal those of f to the last bit. (One exception: if an inner node and two or more outer nodes
    read the same value, its gradient is summed in another order, inner contributions first.) Random modules repeat
    their masks; running statistics are updated once. Parameters and states keep their paths, so files saved with and
    without a checkpoint are interchangeable. The hidden output `before` holds the states before the pass. Inner nodes
    store no `data` and no `grad`.

    Shapes    those of f
    Source    Griewank, Walther 2000, Algorithm 799: Revolve; Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174
    """

    hidden = ("before",)

    def __init__(self, graph: Module, name: str | None = None):
        super().__init__({"": graph}, name or graph.name)
        self.inner = graph
        self.graph = graph if isinstance(graph, Graph) else alone(graph)

    def calcMode(self, mode: Any) -> Self:
        self.graph.calcMode(mode)
        return self

    @property
    def inputSpec(self) -> Inputs:
        return self.graph.inputSpec if self.graph is self.inner else self.inner.inputSpec

    @property
    def outputNames(self) -> tuple[str, ...]:
        return self.inner.outputNames

    @property
    def indices(self) -> tuple[str, ...]:  # type: ignore[override]
        """The inputs that are only read as indices."""
        if self.graph is not self.inner:
            return self.inner.indices
        steps = self.graph.steps()
        uses: dict[int, bool] = {}
        for step in steps.items:
            names = step.module.arguments
            for i, number in enumerate(step.args[: step.inputs]):
                isIndex = names[min(i, len(names) - 1)] in step.module.indices
                uses[number] = uses.get(number, True) and isIndex
        return tuple(name for name, number in zip(self.arguments, steps.inputs) if uses.get(number, False))

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.arguments, *self.ruleNames, "before")

    def dataShapeFrom(self, *shapes: Shape) -> Shape | list[Shape]:
        return self.graph.dataShapeFrom(list(shapes)) if self.graph is self.inner else self.inner.dataShapeFrom(*shapes)

    def dataTypeFrom(self, *dtypes: Any) -> Any:
        return self.inner.dataTypeFrom(*dtypes)

    def hiddenShapeFrom(self, *shapes: Shape) -> list:
        return [()]

    def hiddenTypeFrom(self, *dtypes: np.dtype) -> list:
        return [np.dtype(object)]

    def flopsFrom(self, *shapes: Shape) -> Size:
        return self.graph.flopsFrom(list(shapes)) if self.graph is self.inner else self.inner.flopsFrom(*shapes)

    def updateData(self, *values: AnyArray) -> tuple:
        names = self.ruleNames
        inputs, stored = values[: len(values) - len(names)], dict(zip(names, values[len(values) - len(names) :]))
        arrays = [stored[name].copy() for name in self.states]
        steps, results = self.replay(inputs, stored)
        before = _Before(arrays, [step.module.isTraining for step in steps.items])
        return (*(results[n] for n in steps.outputs), before)

    def updateGrad(self, grad: Any, *values: Any, needs: tuple[bool, ...]) -> tuple:
        names, outputs = self.ruleNames, len(self.outputNames)
        before = values[-1]
        count = len(needs) - len(names)
        inputs, stored = values[:count], dict(zip(names, values[count:]))
        for name, array in zip(self.states, before.arrays):  # rules do not write into a Variable, so it needs no copy
            stored[name] = Variable(array) if isinstance(stored[name], Variable) else array.copy()
        for (path, module), train in zip(self.inside(), before.modes):
            checkMode(module, train, path or module.name or module.label)
        steps, results = self.replay(inputs, stored)
        wanted = {id(getattr(self, name)) for name, need in zip(names, needs[count:]) if need}
        back = backwardOf(self.graph, steps, any(needs[:count]), frozenset(wanted))
        new, params = back.gradients(list(grad) if outputs > 1 else [grad], results, shows=False)
        return (*new, *[None] * (count - len(new)), *self.inOrder({id(p): g for p, g in params}))

    def replay(self, inputs: tuple[AnyArray, ...], stored: dict[str, AnyArray]) -> tuple[Steps, list[Any]]:
        """Run a forward pass with these parameters and states; return its steps and values."""
        present = list(inputs)
        while present and present[-1] is None:  # drop trailing omitted inputs; others keep their positions
            present.pop()
        steps = self.graph.steps(len(present))
        return steps, steps.run(present, self.numbered(steps, stored))

    def brief(self) -> str:
        return f"Checkpoint of {self.inner.brief()}"

    @classmethod
    def examples(cls) -> Iterator[tuple[Module, list]]:
        yield cls(Pointwise(formula="x * sigmoid(x)")), [(2, 3)]
        yield cls(Sequential(Pointwise(formula="a * b"), Pointwise(formula="tanh(x)"))), [(2, 3), (3,)]


def checkpoint(function: Callable[..., Any], *inputs: Any) -> Any:
    """Call a function and store only its inputs; its inner values are recomputed in the backward pass.

    `function` is a Graph or Module, on Nodes, arrays or Variables, or any function of Variables. Leaves that are not
    among the inputs, such as the parameters of called modules, get gradients too. The second run starts from the same
    module states, so masks repeat and states are updated once. Other random numbers do not repeat.

    Source    torch.utils.checkpoint
    Raises    AutoDiffException for a function that reads an operation's result that is not an input: make it one
    """
    if isinstance(function, Module):
        return Checkpoint(function)(*inputs)
    before: dict[int, tuple[State, Array]] = {}
    modes: dict[Module, tuple] = {}
    start = next(NUMBERS)
    with enable_grad(), noting(before, modes):
        fresh = [copied(v) for v in inputs]
        result = function(*fresh)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    outside = boundary([y for y in outputs if isinstance(y, Variable)], start, fresh)
    if not is_grad_enabled() or not any(isinstance(y, Variable) and y.requires_grad for y in outputs):
        node = None
    else:
        node = CheckpointBackward(function, inputs, outside, len(outputs), before, modes)
    new = [output(y, node, i) for i, y in enumerate(outputs)]
    return type(result)(new) if isinstance(result, (tuple, list)) else new[0]


def output(value: Any, node: TapeNode | None, number: int) -> Any:
    """An output of the function, detached from the tape that the function recorded."""
    if not isinstance(value, Variable):
        return value
    return variable(value.data, node if value.requires_grad else None, number)


class CheckpointBackward(TapeNode):
    """The gradient of a checkpointed function, which is run again in the backward pass."""

    __slots__ = ("before", "elsewhere", "function", "inputs", "modes", "versions", "wanted")

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Any,
        elsewhere: list[GradientEdge],
        count: int,
        before: Any,
        modes: Any,
    ):
        self.wanted = [i for i, v in enumerate(inputs) if isinstance(v, Variable) and v.requires_grad]
        edges = (*(inputs[i].edge() for i in self.wanted), *elsewhere)
        super().__init__((), count)
        self.edges = edges
        self.function, self.inputs, self.elsewhere, self.before, self.modes = function, inputs, elsewhere, before, modes
        self.versions = [versionOf(inputs[i]) for i in self.wanted]

    def name(self) -> str:
        return "CheckpointBackward0"

    def apply(self, *grads: AnyArray | None) -> tuple[AnyArray, ...] | None:
        if self.inputs is None:
            raise AutoDiffException(f"{self.name()}: {AGAIN}")
        if [versionOf(self.inputs[i]) for i in self.wanted] != self.versions:
            raise AutoDiffException(f"{self.name()}: an input was modified in place since; make a new Variable instead")
        for module, (train, saved) in self.modes.items():
            location = module.name or module.label
            checkMode(module, train, location)
            checkSaved(module, saved, location)
        again = is_grad_enabled()
        fresh = [linked(v) if again else copied(v) for v in self.inputs]
        with enable_grad(), restored(self.before):
            result = self.function(*fresh)
        outputs = result if isinstance(result, (tuple, list)) else [result]
        seeds = [(y.edge(), g) for y, g in zip(outputs, grads, strict=True) if g is not None]
        return tuple(run(seeds, [*(fresh[i].edge() for i in self.wanted), *self.elsewhere], None, again, again))

    def release(self) -> None:
        self.inputs = self.before = self.modes = None


def copied(value: Any) -> Variable:
    """Return a Variable as a new leaf; other values are returned unchanged."""
    if not isinstance(value, Variable):
        return value
    fresh = value.detach()
    fresh.requires_grad = value.requires_grad
    return fresh


def linked(value: Variable) -> Any:
    """Return a copy of a Variable as a non-leaf, whose gradient is separate."""
    return np.positive(value) if isinstance(value, Variable) and value.requires_grad else value


def boundary(outputs: list[Variable], start: int, fresh: list[Variable]) -> list[GradientEdge]:
    """The edges to leaves that are not among the function's inputs, without repeats.

    Raises    AutoDiffException if the function read the result of an earlier operation
    """
    inner = {v.edge() for v in fresh if isinstance(v, Variable)}
    outside: dict[GradientEdge, None] = {}
    stack: list[Any] = [y.edge().node for y in outputs if y.edge().node is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if isinstance(node, LeafAccumulator):
            if GradientEdge(node, 0) not in inner:
                outside[GradientEdge(node, 0)] = None
        elif node.sequence_nr < start:
            raise AutoDiffException(
                f"checkpoint: the function reads the result of {node.name()}, which is not an input: make it one"
            )
        for target, _ in node.edges:
            if target is not None and target not in seen:
                seen.add(target)
                stack.append(target)
    return sorted(outside, key=lambda edge: edge.node.sequence_nr)  # type: ignore[union-attr]


@contextmanager
def noting(before: dict[int, tuple[State, Array]], modes: dict[Module, tuple] | None = None) -> Iterator[None]:
    """Note the states of each module before its first run, its mode, and its parameters' marks."""
    outer = HOOKS.enter

    def enter(module: Module) -> None:
        if modes is not None and module not in modes:
            modes[module] = module.isTraining, [(n, p, p.mark()) for n, p in module.params.items()]
        for state in module.states.values():
            if id(state) not in before:
                before[id(state)] = state, state.materialize().copy()
        if outer is not None:
            outer(module)

    HOOKS.enter = enter
    try:
        yield
    finally:
        HOOKS.enter = outer


@contextmanager
def restored(before: dict[int, tuple[State, Array]]) -> Iterator[None]:
    """Restore states to their saved values inside the block."""
    now = [(state, state.array) for state, _ in before.values()]
    for state, data in before.values():
        state.adopt(data.copy())
    try:
        yield
    finally:
        for state, data in now:
            state.adopt(data)
