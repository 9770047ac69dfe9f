"""With cost: a network and its cost as one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puregraph.core.errors import DataError, GraphError
from puregraph.core.traversal import weakenReader
from puregraph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.node import Node
from puregraph.graph.pointwise import Pointwise

if TYPE_CHECKING:
    from typing import Any

    from puregraph.graph.module import Module
    from puregraph.graph.steps import Steps

WEIGHT = "sampleWeight"  # the cost input that takes a weight for each sample


def withCost(net: Graph, cost: Any, inputs: int, targets: int, weighed: bool = False) -> Graph:
    """The graph of inputs and targets whose outputs are the cost, if any, and then the network's outputs.

    With `weighed` the last target is a weight for each sample.

    The cost takes the network's first output, or all of them if it has an argument for each. The terms of a
    CostSum come after the outputs.

    Raises    GraphError if they do not fit
    """
    if weighed:
        needWeighable(cost)
    taken = {net.name, None if cost is None else cost.name}
    names = [
        net.paths.get(node, node.module.name) or "" if isinstance(node.module, Input) else "" for node in net.inputs
    ]
    data = inputsNamed("data", inputs, names, taken)
    output = net.node(*data)
    outputs = [(output, slot) for slot in range(len(net.outputNames))]
    wanted = inputsNamed("target", targets - weighed, [], taken)
    weight = inputsNamed(WEIGHT, int(weighed), [], taken)
    if hasattr(cost, "parts"):
        added = cost.weighed if weighed else cost
        node = added.node(*[outputs[slot] for slot in cost.slotsIn(net)], *wantedFor(cost, wanted), *weight)
        outputs = [(node, 0), *outputs, *[(node, 1 + i) for i in range(len(cost.parts))]]
    elif cost is not None:
        outputs = [cost.node(*outputs[: outputsFor(cost, len(outputs), len(wanted))], *wanted, *weight), *outputs]
    kind = PenalizedGraph if cost is not None and penaltiesIn(output.module.steps(inputs)) else Graph
    graph = kind([*data, *wanted, *weight], outputs)
    for node in graph.nodes:
        weakenReader(node)
    return graph


class PenalizedGraph(Graph):
    """A network and its cost, to which what modules inside add to it is added; these terms are the last outputs."""

    def unfold(self, sizes: list[int]) -> Steps:
        """The steps with one more, the sum."""
        flat = super().unfold(sizes)
        numbers = list(penaltiesIn(flat).values())
        cost, *others = flat.outputs
        total = Node(Pointwise(formula=" + ".join(f"c{i}" for i in range(len(numbers) + 1))))
        flat.outputs = [*flat.add("total", total, (cost, *numbers)), *others, *numbers]
        return flat


def penaltiesIn(steps: Steps) -> dict[str, int]:
    """By the path of each module that adds to the cost the number of that term, unless another step reads it."""
    read = {n for step in steps.items for n in step.args[: step.inputs]}
    terms = {step.path: step.outs[step.module.addedCost] for step in steps.items if step.module.addedCost}
    return {path: n for path, n in terms.items() if n not in read}


def inputsNamed(what: str, count: int, names: list[str], taken: set[str | None]) -> list[Node]:
    """Input nodes named for messages: by `names`, or "target", or "target[0]", "target[1]" if there are several."""
    nodes = []
    for i in range(count):
        name = names[i] if len(names) == count and names[i] else what if count == 1 else f"{what}[{i}]"
        isFree = name not in taken and "." not in name
        taken.add(name)
        nodes.append(Input(name=name if isFree else None).node())
    return nodes


def needWeighable(cost: Module | None) -> None:
    """Refuse a cost, or a term of a CostSum, without an input for sample weights."""
    for name, term in getattr(cost, "costs", {"": cost}).items():
        if WEIGHT not in getattr(term, "arguments", ()):
            label = f"the cost of '{name}', {type(term).__name__}," if name else type(term).__name__
            raise DataError(f"{WEIGHT}: {label} takes none; CrossEntropy, MSE, BCE, Abs, SmoothL1 do")


def wantedFor(cost: Any, targets: list[Node]) -> list[Node]:
    """The targets of a CostSum, one for each of its costs."""
    if len(targets) != len(cost.parts):
        raise GraphError(
            f"{type(cost).__name__}: wanted {len(cost.parts)} targets, for {', '.join(cost.parts)}, got {len(targets)}"
        )
    return targets


def outputsFor(cost: Module, outputs: int, targets: int) -> int:
    """The number of network outputs that a cost takes."""
    spec = cost.inputSpec
    names = [name for name in spec.names if name != WEIGHT]
    least = len(spec.names) - len(spec.optional) - spec.variadic
    for count in (1, outputs):
        if least <= count + targets <= len(names) and not spec.variadic:
            return count
    if spec.variadic:
        return outputs
    hint = (
        "; weights of samples are given as (data, target, sampleWeight), or as sampleWeight="
        if WEIGHT in spec.names and targets > 1
        else ""
    )
    first = "its first output" if outputs == 1 else f"its first output or all {outputs}"
    raise GraphError(
        f"{type(cost).__name__} takes {', '.join(names)}; the network provides {first}, so wanted "
        f"a target for each other input, got {targets} target{'s' * (targets != 1)}{hint}"
    )


def readAs(steps: Steps, kind: str) -> set[int]:
    """The numbers of values that a module reads as its `indices` or `fractions`, also through views."""
    numbers: set[int] = set()
    for step in reversed(steps.items):
        names = step.module.arguments
        for position, number in enumerate(step.args[: step.inputs]):
            if names[min(position, len(names) - 1)] in getattr(step.module, kind):
                numbers.add(number)
        if step.module.views and numbers.intersection(step.visible):
            numbers.add(step.args[0])
    return numbers
