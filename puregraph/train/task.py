"""Task: a network and its cost as one graph, fed with batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph import device
from puregraph.data import Batch
from puregraph.errors import DataError, GraphError
from puregraph.graph import Graph
from puregraph.input import Input
from puregraph.module import Module
from puregraph.sequential import Sequential

WHOLE = np.dtype(np.int64)


class Task:
    """A network and its cost as one graph: data and targets in; the cost, then the network's outputs, out.

    The graph is made for the first batch, which says how many inputs and targets there are. The cost takes the first
    output of the network, or all of them if it has an argument for each.

    `net`   a Graph or any other Module
    `cost`  a Module of predictions and targets that gives one number; None: the network alone

    Raises    DataError if one of the two is no Module; GraphError if the arrays of a batch do not fit their inputs
    """

    def __init__(self, net: Module, cost: Module | None = None):
        checkKind("net", net, ("node", "trainMode"), "a Module, such as Linear(3, 4)")
        if cost is not None:
            checkKind("cost", cost, ("node", "trainMode"), "a Module, such as MSE()")
        self.net = net if isinstance(net, Graph) else Sequential(net)
        self.cost = cost
        self.graph: Any = None
        self.sizes: tuple[int, int] | None = None

    def build(self, inputs: int, targets: int) -> None:
        """Link network and cost for this many arrays, and note the dtype that each is to have."""
        if self.sizes != (inputs, targets):
            self.sizes = None
            data = [Input().node() for _ in range(inputs)]
            output = self.net.node(*data)
            found = [(output, slot) for slot in range(len(self.net.outputNames))]
            wanted = [Input().node() for _ in range(targets)]
            if self.cost is not None:
                found = [self.cost.node(*found[: self.taken(len(found), targets)], *wanted), *found]
            self.graph = Graph([*data, *wanted], found)
            self.sizes = inputs, targets
        steps = self.graph.steps()
        whole, real = wholeNumbers(steps), np.dtype(self.graph.dtype or np.float32)
        self.dtypes = [WHOLE if number in whole else real for number in steps.inputs]

    def renew(self) -> None:
        """Look again at what network and cost compute in."""
        if self.sizes is not None:
            self.build(*self.sizes)

    def taken(self, outputs: int, targets: int) -> int:
        """How many outputs of the network the cost takes."""
        spec = self.cost.inputSpec
        least = len(spec.names) - len(spec.optional) - spec.variadic
        for count in (1, outputs):
            if least <= count + targets <= len(spec.names) and not spec.variadic:
                return count
        if spec.variadic:
            return outputs
        taken = "its first output" if outputs == 1 else f"its first output or all {outputs}"
        raise GraphError(
            f"{type(self.cost).__name__} takes {', '.join(spec.names)}; wanted targets that make these together with "
            f"what the network gives, {taken}, got {targets} target{'s' * (targets != 1)}"
        )

    def prepare(self, batch: Batch) -> Batch:
        """The batch with the dtypes that the graph computes in; made on the host, in any thread."""
        if self.sizes != (len(batch.data), len(batch.target)):
            self.build(len(batch.data), len(batch.target))
        given = [converted(x, dtype, name) for (name, x), dtype in zip(named(batch), self.dtypes, strict=True)]
        return Batch(given[: len(batch.data)], given[len(batch.data) :], batch.size)

    def run(self, batch: Batch) -> tuple[Any, list[Any]]:
        """The cost (None without one) and the network's outputs for a prepared batch, on the device."""
        found = self.graph([device.toDevice(x) for x in (*batch.data, *batch.target)])
        outputs = found if isinstance(found, list) else [found]
        if self.cost is None:
            return None, outputs
        self.checkCost(outputs[0].shape)
        return outputs[0], outputs[1:]

    def backward(self, share: float, isFirst: bool) -> None:
        """`share` times the gradients of the last batch; added to those there are, unless it is the first."""
        one = np.ones_like(self.graph.data[0])
        grads = [one, *[None] * (len(self.graph.data) - 1)]
        self.graph.backward(grads, updGrad=False, scale=share, momentum=0.0 if isFirst else 1.0)

    def shapesFor(self, batch: Batch) -> None:
        """Check the shapes of a batch and whether the cost is one number, ahead of any pass.

        Raises    ShapeError naming every node that does not fit
        """
        found = self.graph.dataShapeFrom([tuple(x.shape) for x in (*batch.data, *batch.target)])
        if self.cost is not None:
            self.checkCost(found[0])

    def checkCost(self, shape: Any) -> None:
        if shape != ():
            raise GraphError(f"{type(self.cost).__name__}: wanted a cost of one number, got shape {shape}")

    def reset(self) -> None:
        """Let go of the last batch's values."""
        if self.graph is not None:
            self.graph.reset()


def wholeNumbers(steps: Any) -> set[int]:
    """The values that some module reads as whole numbers, through views of them as well."""
    found: set[int] = set()
    for step in reversed(steps.items):
        names = step.module.arguments
        for position, number in enumerate(step.args[: step.inputs]):
            if names[min(position, len(names) - 1)] in step.module.indices:
                found.add(number)
        if step.module.views and found.intersection(step.visible):
            found.add(step.args[0])
    return found


def named(batch: Batch) -> list[tuple[str, Any]]:
    """The arrays of a batch with names for messages: data, target; or data[0], data[1], where there are several."""
    found = []
    for what, arrays in (("data", batch.data), ("target", batch.target)):
        found += [(what if len(arrays) == 1 else f"{what}[{i}]", x) for i, x in enumerate(arrays)]
    return found


def checkKind(what: str, value: Any, wanted: tuple[str, ...], example: str) -> None:
    """Refuse a class in place of what it makes, and whatever cannot do what is wanted."""
    if isinstance(value, type):
        raise DataError(f"{what}: wanted {example}, got the class {value.__name__}; make one, {value.__name__}(...)")
    if not all(hasattr(value, name) for name in wanted):
        raise DataError(f"{what}: wanted {example}, got {value!r:.60}")


def converted(x: Any, dtype: np.dtype, name: str) -> Any:
    """An array in the dtype that is wanted; it comes back itself if it has that one."""
    if dtype is WHOLE and x.dtype.kind == "f":
        wrong = x != np.rint(x)
        if wrong.any():
            raise DataError(f"{name}: wanted whole numbers (labels, token ids), got {x.dtype} with {x[wrong].flat[0]}")
    return x.astype(dtype, copy=False)
