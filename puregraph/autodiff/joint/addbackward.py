"""add_backward_pass and make_backward_function: gradients as graphs of their own, made ahead of time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from puregraph.autodiff.joint.backwardimplementation import BackwardResult
from puregraph.autodiff.joint.freeinggraph import Descriptor, FreeingGraph
from puregraph.autodiff.joint.gradientgraph import GradientGraph, connected
from puregraph.autodiff.joint.remat import CotangentInput, Outline
from puregraph.autodiff.joint.rematpolicy import choices, stored_by
from puregraph.autodiff.joint.valuenames import _Names, _Target
from puregraph.core.arguments import Bytes, Flag, Text, takes
from puregraph.core.errors import AutoDiffException
from puregraph.core.late import Late
from puregraph.core.linkednode import Edge
from puregraph.core.param import State
from puregraph.graph import Graph
from puregraph.graph.module import shapesOf
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from puregraph.core.shape import Shape


class JointGraph(GradientGraph):
    """A graph's outputs, then gradients, from its inputs, then the gradients of its outputs.

    Made by `add_backward_pass`. `result` names the gradients, `forwarded` the values that the backward pass reads from
    the forward pass. It shares parameters and modes with the graph that it was made from.

        outputs_and_gradients = joint(x, y, seed)
        by_name = joint.run(X=x, Y=y, gradient_S=seed, gradient_X=buffer)

    Raises    AutoDiffException when an input that requires a gradient holds whole numbers

    >>> from puregraph import Graph, Input, Sum, Tanh
    >>> x = Input((4,), name="x").node()
    >>> joint = add_backward_pass(Graph(x, Sum(name="total")(Tanh(name="act")(x))), ["total"], ["x"])
    >>> type(joint).__name__, joint.result.required_grad_names
    ('JointGraph', {'x': 'gradient_x'})
    """

    def prepare(self) -> None:
        """Add the nodes of the forward pass."""
        self.entries, values = self.repeat(self.forwardSteps)
        self.external |= values
        self.known.update(self.forwardGraph.outputNames)

    def finish(self, edges: list[Edge]) -> None:
        self.optional = tuple(seed.name for seed in self.seeds)
        self.labels = (*self.forwardGraph.outputNames, *self.grad_names)
        self.link([*self.entries, *self.seeds], [*(self.external[n] for n in self.forwardSteps.outputs), *edges])

    def seed(self, position: int) -> Node:
        entry = super().seed(position)
        (number, *_) = self.outputTargets[position].numbers
        key, edge = self.contributions[number][-1]
        node = self.grow(CotangentInput(), [self.external[number], edge], f"seed:{self.outputTargets[position].name}")
        self.contributions[number][-1] = key, (node, 0)
        return entry

    def shape(self, number: int) -> Edge | None:
        """Return the edge of a forward value read for its shape, which is known even after the value is freed."""
        return None if number == ABSENT else self.outside(number)

    def title(self) -> str:
        return f"{self.forwardGraph.title()} with gradients"


class BackwardPassGraph(GradientGraph):
    """Gradients of a graph's inputs and parameters from values of its forward pass and the gradients of its outputs.

    Made by `make_backward_function`.
    """

    def shape(self, number: int) -> Edge | None:
        return None if number == ABSENT else self.outside(number) if number in self.keep else self.value(number)

    def finish(self, edges: list[Edge]) -> None:
        self.numbers = [n for n in self.external if n not in self.params_by_number]
        self.labels = self.grad_names
        self.link([*(self.external[n][0] for n in self.numbers), *self.seeds], edges)

    def title(self) -> str:
        return f"backward function of {self.forwardGraph.title()}"


class ForwardPassGraph(FreeingGraph):
    """Gives a graph's outputs, then the values that its BackwardPassGraph takes (only a shape where that is enough).

    Made by `make_backward_function`.
    """

    def __init__(self, backward: BackwardPassGraph):
        super().__init__()
        self.forwardGraph, flat = backward.forwardGraph, backward.forwardSteps
        entries, values = self.repeat(flat)
        names = [flat.names[n] for n in backward.numbers]
        for n in backward.numbers:
            if n not in backward.read:
                values[-n] = self.grow(Outline(), [values[n]], f"outline:{flat.names[n]}"), 0
        self.labels = (*self.forwardGraph.outputNames, *names)
        forwarded = [values.get(-n, values[n]) for n in backward.numbers]
        self.link(entries, [*(values[n] for n in flat.outputs), *forwarded])

    def title(self) -> str:
        return f"forward function of {self.forwardGraph.title()}"


class ReadModel:
    """The reader of ONNX models, imported late because it is built on this package."""

    onnx = Late("puregraph.onnx.reader", "fromOnnx")


def graph_of(graph_or_model: Any) -> Any:
    """Return a graph unchanged, or the graph of an ONNX model, or of the path of one, which ends in .onnx.

    Parameters of an ONNX model are trainable, while its normalization and dropout are in evalMode.
    """
    isPath = isinstance(graph_or_model, (str, os.PathLike)) and os.fspath(graph_or_model).endswith(".onnx")
    if not isPath and not hasattr(graph_or_model, "opset_import"):
        return graph_or_model
    graph = ReadModel.onnx(graph_or_model).trainMode()
    for module in graph.modules().values():
        if module.states:
            module.evalMode()
    return graph


@takes(accumulate=Flag, data_forwarding_strategy=Text, budget=Bytes | None)
def add_backward_pass(
    graph: Graph,
    outputs: Any,
    inputs: Any,
    accumulate: bool = False,
    data_forwarding_strategy: str = "store_all",
    data_to_recompute: Any = (),
    budget: int | None = None,
    shapes: Any | None = None,
) -> JointGraph:
    """Build a new graph that computes a graph's outputs and the gradients of `outputs` with respect to `inputs`.

    `graph`               a Graph, an ONNX model, or the path of one
    `outputs`, `inputs`   Nodes, `(node, slot)`, or names: of an input, of a node, of a parameter (`"fc.W"`, or just its
                          last part if that is unique). Any value may be either; outputs need not be scalars or outputs
                          of the graph.
    `accumulate`          add gradients to the arrays passed to `run` instead of overwriting them
    `data_forwarding_strategy`   values of the forward pass to store: "store_all", "recompute_all", or "user_defined",
                          which recomputes the values that `data_to_recompute` names
    `budget`              instead of a strategy: the most bytes that a run on inputs of these `shapes` may take

    The new graph takes the graph's inputs, then the output gradients, named `gradient_<output>` (optional for an
    output of one number). It returns the graph's outputs, then the input gradients, named `gradient_<input>`.
    Its `result` has these names. The original graph is not changed. All strategies give bitwise equal results.

    Within one graph "recompute_all" saves little memory, because everything is recomputed when the first gradient needs
    it; it is meant for `make_backward_function`. Storing a few values and recomputing the others in segments lowers the
    peak; a budget chooses them.

    Source    DaceML's add_backward_pass; Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174
    Raises    AutoDiffException for an object that is no graph, a name that is not exactly one value, an output or
              input without a gradient path, a node without a gradient rule, or a budget that cannot be met
    """
    graph = graph_of(graph)
    names = names_of(graph)
    outs, ins = names.all(outputs, "output"), names.all(inputs, "input")
    refuse_states(names, outs, ins)

    def make(stored: set[int]) -> JointGraph:
        return JointGraph(graph, outs, ins, stored | set(names.flat.outputs))  # outputs are stored in any case

    stored = stored_by(data_forwarding_strategy, names, data_to_recompute)
    joint = make(stored) if budget is None else choices(names, make, budget, shapes, data_forwarding_strategy)
    joint.accumulate = accumulate
    return joint


def make_backward_function(
    graph_or_model: Any,
    apply_strict: bool = False,
    required_grads: Any = None,
    data_forwarding_strategy: str = "store_all",
    data_to_recompute: Any = (),
    shapes: Sequence[Shape] | None = None,
) -> tuple[ForwardPassGraph, BackwardPassGraph, BackwardResult, dict[str, Descriptor]]:
    """Split a graph in two: the forward pass, and a backward pass that reads the values forwarded by it.

        forward, backward, result, forwarded = make_backward_function(graph)
        values = forward(x)                                     # the outputs, then the forwarded values
        grads = backward(*values[-len(forwarded):], dy)         # in the order of result.required_grad_names

    `required_grads`   nodes or names as for `add_backward_pass`; by default every input and trained parameter that the
                       outputs depend on
    `graph_or_model`   a Graph, an ONNX model, or the path of one
    `apply_strict`     passed to the model converter; has no effect on a Graph
    `shapes`           input shapes, to infer the shapes and dtypes of the forwarded values

    Parameters are not forwarded: the backward graph reads them directly. `data_forwarding_strategy` selects the values
    that are forwarded; the others are recomputed.

    Raises    AutoDiffException as `add_backward_pass` does

    >>> from puregraph import Linear, Sequential
    >>> forward, backward, result, forwarded = make_backward_function(Sequential(Linear(3, 2, name="fc")))
    >>> values = forward(np.ones((5, 3), np.float32))
    >>> gradients = backward(*values[-len(forwarded):], np.ones((5, 2), np.float32))
    >>> {name: gradient.shape for name, gradient in zip(result.required_grad_names, gradients)}
    {'fc.x': (5, 3), 'fc.W': (3, 2), 'fc.b': (2,)}
    """
    graph = graph_of(graph_or_model)
    names = names_of(graph)
    flat = names.flat
    if required_grads is None:
        trained = [n for n, module, _ in flat.params if module.wants(names.params[n])]
        reached, _ = connected(flat, flat.outputs, [*flat.inputs, *trained])
        chosen = dict.fromkeys(names.numbers(n) for n in (*flat.inputs, *trained) if n in reached)
        ins = [_Target(flat.names[numbers[0]], numbers) for numbers in chosen]
    else:
        ins = names.all(required_grads, "required_grads")
    if not ins:
        raise AutoDiffException(f"{graph.title()}: no output has a gradient by any input or trained parameter")
    _, led = connected(flat, [], [n for target in ins for n in target.numbers])
    outputs = dict(zip(reversed(flat.outputs), reversed(graph.outputNames)))
    outs = [_Target(outputs[n], (n,)) for n in dict.fromkeys(flat.outputs) if n in led]
    refuse_states(names, outs, ins)
    backward = BackwardPassGraph(graph, outs, ins, stored_by(data_forwarding_strategy, names, data_to_recompute))
    forward = ForwardPassGraph(backward)
    known = forward.described(*shapesOf(list(shapes))) if shapes is not None else {}
    made = forward.steps().outputs[len(flat.outputs) :]
    descriptors = [known.get(n, Descriptor(None, None)) for n in made]
    return forward, backward, backward.result, dict(zip([flat.names[n] for n in backward.numbers], descriptors))


def names_of(graph: Graph) -> _Names:
    """The names of a graph's values.

    Raises    AutoDiffException for an object that is no graph
    """
    if not isinstance(graph, Graph):
        raise AutoDiffException(
            f"wanted a Graph, got {type(graph).__name__} {graph!r:.60}; convert other models to "
            "a Graph first, and wrap modules in a Sequential"
        )
    return _Names(graph)


def refuse_states(names: _Names, outputs: list[_Target], inputs: list[_Target]) -> None:
    """Refuse parameters and states as outputs, and running states as inputs.

    Raises    AutoDiffException naming the output or input
    """
    for target in outputs:
        if target.numbers[0] in names.params:
            raise AutoDiffException(f"output '{target.name}' is a parameter or state, which no node computes")
    for target in inputs:
        if isinstance(names.params.get(target.numbers[0]), State):
            raise AutoDiffException(f"input '{target.name}' is a running state, which has no gradient")
