"""GradientGraph: gradients of any values by any others, from forward values that are stored or recomputed."""

from __future__ import annotations

from typing import Any

from puregraph.autodiff.joint.backwardimplementation import BackwardResult
from puregraph.autodiff.joint.freeinggraph import FreeingGraph
from puregraph.autodiff.joint.remat import Parameter, rematerialized
from puregraph.autodiff.joint.valuenames import _Target
from puregraph.core.errors import AutoDiffException
from puregraph.core.linkednode import Edge
from puregraph.graph import Graph
from puregraph.graph.backward import Accumulate, BackwardGraph, Gradient, inputNames, needsOf
from puregraph.graph.input import Input
from puregraph.graph.lookup import few
from puregraph.graph.node import Node
from puregraph.graph.steps import ABSENT, GraphStep, Steps


class GradientGraph(FreeingGraph, BackwardGraph):
    """The gradient nodes from some values of a graph back to others; the forward values are stored or recomputed.

    `keep` are the numbers of the values that the forward pass stores. Any other value is recomputed from stored ones by
    clones of the forward nodes when a gradient node first reads it, and freed after its last reader.

    Source    Chen, Xu, Zhang, Guestrin 2016, arXiv:1604.06174, algorithm 1
    """

    def __init__(self, graph: Graph, outputs: list[_Target], inputs: list[_Target], keep: set[int]):
        FreeingGraph.__init__(self)
        self.forwardGraph, self.forwardSteps = graph, graph.steps()
        self.keep = keep
        self.params_by_number = {number: (module, name) for number, module, name in self.forwardSteps.params}
        self.maker = {n: i for i, step in enumerate(self.forwardSteps.items) for n in step.outs}
        self.external: dict[int, Edge] = {}  # edges of stored values, which enter this backward pass
        self.again: dict[int, Edge] = {}  # edges of recomputed values
        self.remade: list[GraphStep] = []
        self.read: dict[int, None] = {}  # the stored values whose data is read
        self.inputTargets, self.outputTargets = inputs, outputs
        targets, wanted = [t.numbers[0] for t in outputs], [n for t in inputs for n in t.numbers]
        self.check(*connected(self.forwardSteps, targets, wanted))
        plan = self.plan(targets, wanted)
        self.prepare()
        self.follow(plan)
        edges = [self.gradient(target) for target in inputs]
        self.grad_names = tuple(self.fresh(f"gradient_{target.name}") for target in inputs)
        self.required = tuple(self.forwardSteps.names[t.numbers[0]] for t in inputs)
        self.result = BackwardResult(
            dict(zip([t.name for t in inputs], self.grad_names)),
            dict(zip([t.name for t in outputs], [seed.name for seed in self.seeds])),
        )
        self.finish(edges)
        self.optional += getattr(graph, "optional", ())
        self.grad_names += getattr(graph, "grad_names", ())
        self.required += getattr(graph, "required", ())

    @property
    def forwarded(self) -> list[str]:
        """The names of the values of the forward pass that the backward pass reads, without parameters."""
        return [self.forwardSteps.names[n] for n in self.read if n not in self.params_by_number]

    def check(self, reached: set[int], led: set[int]) -> None:
        """Check that a gradient reaches every input, and that every output depends on some input.

        Raises    AutoDiffException naming the input or output that fails
        """
        outputs, inputs = (few([t.name for t in targets]) for targets in (self.outputTargets, self.inputTargets))
        for target in self.inputTargets:
            if reached.isdisjoint(target.numbers):
                why = self.whole(target) or f"none of the outputs {outputs} depends on it"
                raise AutoDiffException(f"no gradient reaches input '{target.name}': {why}; leave it out")
        for target in self.outputTargets:
            if led.isdisjoint(target.numbers):
                raise AutoDiffException(f"output '{target.name}' depends on none of the inputs {inputs}; leave it out")

    def whole(self, target: _Target) -> str:
        """The node that reads a value as integers, for a message; empty if none does."""
        for step in self.forwardSteps.items:
            for name, number in zip(inputNames(step.module, step.inputs), step.args):
                if name in step.module.indices and number in target.numbers:
                    return f"'{step.path}' ({step.label}) reads it as whole numbers"
        return ""

    def prepare(self) -> None:
        """Add the nodes before the gradients; none by default."""

    def finish(self, edges: list[Edge]) -> None:
        """Link the graph, with these gradients as its last outputs."""
        raise NotImplementedError

    def gradient(self, target: _Target) -> Edge:
        """Return the edge of an input's gradient; for a shared parameter, the sum over all modules."""
        edges: list[Any] = [self.total(n) for n in target.numbers if n in self.reached]
        return edges[0] if len(edges) == 1 else (self.grow(Accumulate(), edges, f"sum:{target.name}"), 0)

    def seed(self, position: int) -> Node:
        target = self.outputTargets[position]
        node = self.grow(Input(), None, f"gradient_{target.name}")
        self.contributions[target.numbers[0]].append(((len(self.forwardSteps.items), position), (node, 0)))
        return node

    # Values of the forward pass ---------------------------------------------------------------------------------------

    def taken(self, step: GraphStep, module: Gradient, grads: list[Edge | None]) -> list[Edge | None]:
        """Return the arguments of a gradient rule; its gradient replaces an output that is read only for its shape."""
        numbers, flags = (*step.args, *step.outs), module.readsData[module.grads :]
        like = dict(zip(step.visible, grads))
        return [self.value(n) if reads else like.get(n) or self.shape(n) for n, reads in zip(numbers, flags)]

    def value(self, number: int) -> Any:
        """The edge of a value whose data is read."""
        if number == ABSENT:
            return None
        if number in self.keep:
            self.read[number] = None
            return self.outside(number)
        if number not in self.again:
            self.make_again(number)
        return self.again[number]

    def shape(self, number: int) -> Edge | None:
        """The edge of a value that is read only for its shape."""
        return self.value(number)

    def outside(self, number: int) -> Edge:
        """Return the edge of a stored value; a parameter is read directly."""
        if number not in self.external:
            label = self.forwardSteps.names[number]
            if number in self.params_by_number:
                node = self.grow(Parameter(*self.params_by_number[number]), None, f"value:{label}")
            else:
                node = self.grow(Input(), None, label)
            self.external[number] = node, 0
        return self.external[number]

    def make_again(self, number: int) -> None:
        """Clone the steps that compute a value from stored or already recomputed ones."""
        items = self.forwardSteps.items
        todo, indices = [number], set()
        while todo:
            index = self.maker[todo.pop()]
            if index not in indices:
                indices.add(index)
                inputs = items[index].args[: items[index].inputs]
                todo += [n for n in inputs if n != ABSENT and n not in self.keep and n not in self.again]
        for index in sorted(indices):
            self.remade.append(items[index])
            made = rematerialized(items[index], self.value, self.grow, f"again:{items[index].path}")
            self.again |= {n: edge for n, edge in made.items() if n not in self.keep}


def connected(flat: Steps, outputs: list[int], inputs: list[int]) -> tuple[set[int], set[int]]:
    """Return the values that gradients of the outputs reach, and the values that depend on the inputs."""
    led = dict.fromkeys(inputs, True)
    ways = []
    for step in flat.items:
        needs = needsOf(step, led)
        if any(needs):
            led.update(dict.fromkeys(step.outs, True))
            ways.append((step, needs))
    reached = set(outputs)
    for step, needs in reversed(ways):
        if not reached.isdisjoint(step.visible):
            reached.update(n for n, needed in zip(step.args, needs) if needed)
    return reached, set(led)
