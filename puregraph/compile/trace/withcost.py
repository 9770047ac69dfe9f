"""With cost: a network and its cost as one graph."""

from __future__ import annotations

from typing import Any

from puregraph.core.traversal import weakenReader
from puregraph.errors import DataError, GraphError
from puregraph.graph import Graph
from puregraph.graph.input import Input

WEIGHT = "sampleWeight"  # the name of the input by which costs take a weight for each sample


def withCost(net: Graph, cost: Any, inputs: int, targets: int, weighed: bool = False) -> Graph:
    """The graph of n inputs and m targets that gives the cost, if there is one, and then the network's outputs.

    With `weighed` the last of the targets has a weight for each sample.

    The cost takes the first output of the network, or all of them if it has an argument for each. The costs that a
    CostSum adds come behind the outputs.

    Raises    GraphError if they do not fit
    """
    if weighed:
        needWeighable(cost)
    taken = {net.name, None if cost is None else cost.name}
    own = [net.paths.get(node, node.module.name) or "" if isinstance(node.module, Input) else "" for node in net.inputs]
    data = inputsNamed("data", inputs, own, taken)
    output = net.node(*data)
    found = [(output, slot) for slot in range(len(net.outputNames))]
    wanted = inputsNamed("target", targets - weighed, [], taken)
    weight = inputsNamed(WEIGHT, int(weighed), [], taken)
    if hasattr(cost, "parts"):
        added = cost.weighed if weighed else cost
        node = added.node(*[found[slot] for slot in cost.slotsIn(net)], *wantedFor(cost, wanted), *weight)
        found = [(node, 0), *found, *[(node, 1 + i) for i in range(len(cost.parts))]]
    elif cost is not None:
        found = [cost.node(*found[: outputsFor(cost, len(found), len(wanted))], *wanted, *weight), *found]
    graph = Graph([*data, *wanted, *weight], found)
    for node in graph.nodes:
        weakenReader(node)
    return graph


def inputsNamed(what: str, count: int, own: list[str], taken: set[str | None]) -> list[Any]:
    """Input nodes with the names that messages know: their own, or target, or target[0], target[1] of several."""
    found = []
    for i in range(count):
        name = own[i] if len(own) == count and own[i] else what if count == 1 else f"{what}[{i}]"
        isFree = name not in taken and "." not in name
        taken.add(name)
        found.append(Input(name=name if isFree else None).node())
    return found


def needWeighable(cost: Any) -> None:
    """Refuse a cost without an input for the weights of samples, and a sum of which one has none."""
    for name, each in getattr(cost, "costs", {"": cost}).items():
        if WEIGHT not in getattr(each, "arguments", ()):
            label = f"the cost of '{name}', {type(each).__name__}," if name else type(each).__name__
            raise DataError(f"{WEIGHT}: {label} takes none; CrossEntropy, MSE, BCE, Abs, SmoothL1 do")


def wantedFor(cost: Any, targets: list[Any]) -> list[Any]:
    """The targets of a CostSum, one for each of its costs."""
    if len(targets) != len(cost.parts):
        raise GraphError(
            f"{type(cost).__name__}: wanted {len(cost.parts)} targets, for {', '.join(cost.parts)}, got {len(targets)}"
        )
    return targets


def outputsFor(cost: Any, outputs: int, targets: int) -> int:
    """How many outputs of a network a cost takes."""
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
        f"{type(cost).__name__} takes {', '.join(names)}; wanted targets that make these together with "
        f"what the network gives, {first}, got {targets} target{'s' * (targets != 1)}{hint}"
    )


def readAs(steps: Any, kind: str) -> set[int]:
    """The values that some module reads as its `indices` or its `fractions`, also through views."""
    found: set[int] = set()
    for step in reversed(steps.items):
        names = step.module.arguments
        for position, number in enumerate(step.args[: step.inputs]):
            if names[min(position, len(names) - 1)] in getattr(step.module, kind):
                found.add(number)
        if step.module.views and found.intersection(step.visible):
            found.add(step.args[0])
    return found
