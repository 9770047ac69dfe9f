"""Objective: a network and its cost as one graph, fed with batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from puregraph.compile import Program, Programs, Updater, withCost
from puregraph.compile.gpu.runtime.h2d import SAME_STREAM_BYTES, Pinner
from puregraph.compile.trace.costchecks import lastBefore, warnOf
from puregraph.compile.trace.updaterule import isPlain
from puregraph.core import device
from puregraph.core.base.dtype import isByte, isFloating
from puregraph.core.base.mutex import Mutex
from puregraph.core.errors import DataError, GraphError, GraphWarning, show
from puregraph.core.errors.userwarning import warnUser
from puregraph.core.versioning import COUNTER
from puregraph.data.batches import Batch, Names
from puregraph.data.nonfinite import named
from puregraph.graph import Graph
from puregraph.graph.module import Module
from puregraph.graph.sequential import Sequential
from puregraph.train.announcing import compiling

WHOLE = np.dtype(np.int64)


class Objective:
    """A network and its cost as one graph, from data and targets to the cost and the network's outputs.

    The graph is made for the first batch, which has the number of inputs and targets. The cost takes the first
    output of the network, or all of them if it has an argument for each.

    `net`      a Graph or any other Module
    `cost`     a Module of predictions and targets that returns one number; None: the network alone
    `compile`  True to compile passes

    Raises    DataError if one of the two is not a Module; GraphError if the arrays of a batch do not fit their inputs
    """

    def __init__(self, net: Module, cost: Module | None = None, compile: bool = True):
        checkKind("net", net, ("node", "trainMode"), "a Module, such as Linear(3, 4)")
        if cost is not None:
            checkKind("cost", cost, ("node", "trainMode"), "a Module, such as MSE()")
        self.net = net if isinstance(net, Graph) else Sequential(net)
        anyCost: Any = cost
        self.cost: Any = anyCost.inOrderOf(self.net) if hasattr(anyCost, "inOrderOf") else anyCost
        self.compile = compile
        self.names = Names(self.net.arguments, getattr(self.cost, "parts", ()))
        self.graph: Any = None
        self.buckets: Any = None  # gradient buckets, which are all-reduced during backward
        self.deviceExchange: Any = None  # the all-reduce on a GPU
        self.weights: Any = None  # sharded weights
        self.split: Any = None  # the tensor-parallel network
        self.say: Callable[[str], Any] | None = None  # reports long compilations
        self.sizes: tuple[int, int, bool] | None = None
        self.mutex = Mutex()

    def build(self, inputs: int, targets: int, weighed: bool) -> None:
        """Link network and cost for these numbers of inputs and targets, and clear the cached dtypes."""
        with self.mutex.lock:
            if self.sizes != (inputs, targets, weighed):
                self.sizes = None
                self.graph = withCost(self.net, self.cost, inputs, targets, weighed)
                self.programs = Programs(self.graph, partial(checkShapes, self.graph, self.cost))
                if self.say is not None:
                    self.programs.around = partial(compiling, self.net, self.cost, self.say)
                self.updaters: list[Updater] = []
            self.mark = COUNTER.version  # before the values that it covers are read
            self.taken: dict[tuple[Any, ...], list[Any]] = {}
            self.sizes = inputs, targets, weighed  # last, because other threads check it

    def renew(self) -> None:
        """Rebuild if a setting of network or cost may have changed."""
        if self.sizes is not None and not (self.graph.isVersioned and self.mark is COUNTER.version):
            self.build(*self.sizes)

    def ready(self, batches: Iterable[Batch], isAhead: bool) -> Iterator[Batch]:
        """Prepare batches for the graph. `isAhead` is True if another thread prepares them during steps; it then uses
        pinned memory, from which a GPU reads."""
        pinner = Pinner() if isAhead and self.compile and device.name() == "cuda" else None
        return (self.prepare(batch, pinner) for batch in batches)

    def prepare(self, batch: Batch, pinner: Pinner | None = None) -> Batch:
        """Convert a batch to the dtypes of the graph, on the host, in any thread."""
        sizes = len(batch.data), len(batch.target), batch.isWeighed
        if self.sizes != sizes:
            self.build(*sizes)
        dtypes = self.dtypesOf([*batch.data, *batch.target])
        if self.compile and device.name() == "cuda":  # images are copied to a GPU as bytes, which the step converts
            dtypes = [*map(keptType, batch.data, dtypes), *dtypes[len(batch.data) :]]
        arrays = [converted(x, dtype, name, pinner) for (name, x), dtype in zip(named(batch), dtypes, strict=True)]
        return batch._replace(data=arrays[: len(batch.data)], target=arrays[len(batch.data) :])

    def dtypesOf(self, arrays: list[Any]) -> list[Any]:
        """Return the dtypes to convert arrays to: their own if the graph's rules accept them."""
        dtypes = tuple([x.dtype for x in arrays])
        if dtypes not in self.taken:
            self.taken[dtypes] = self.graph.inputTypes(len(dtypes), list(dtypes))
        return self.taken[dtypes]

    def run(self, batch: Batch, compiled: bool = True) -> tuple[Any, list[Any]]:
        """Return the cost (None without one) and the network's outputs for a prepared batch, on the device."""
        program = self.program(batch) if compiled else None
        if program is not None:
            return self.parted(program.run(*batch.data, *batch.target, copy=not program.isAhead))
        return self.parted(self.graph([device.toDevice(x) for x in (*batch.data, *batch.target)]))

    def parted(self, results: Any) -> tuple[Any, list[Any]]:
        """Split the results of the graph into the cost and the network's outputs."""
        outputs = results if isinstance(results, list) else [results]
        if self.cost is None:
            return None, outputs
        checkCost(self.cost, outputs[0].shape)
        return outputs[0], outputs[1:]

    def program(self, batch: Batch, isAlways: bool = False, **options: Any) -> Program | None:
        """Return the compiled step for such a batch; None to run the graph eagerly."""
        if not self.compile:
            return None
        if self.weights is not None:
            options["weights"] = self.weights
        if any(isByte(x.dtype) for x in batch.data):
            options["converts"] = True
        return self.programs.get([*batch.data, *batch.target], isAlways, **options)

    def learner(
        self, batch: Batch, slots: set[int], optimizer: Any, isLone: bool, isFirst: bool, isAlways: bool = False
    ) -> Program | None:
        """Return the compiled step that computes the gradients of a batch, and with `isLone` also updates.

        `slots` are the outputs to return. Gradients of several batches are scaled, and added to existing ones unless
        `isFirst`. If the cost is not finite, there is no update. `isAlways` compiles shapes at their first occurrence,
        because processes that see shapes in different order must do the same.
        """
        count = len(self.graph.steps(len(batch.data) + len(batch.target)).outputs)
        wanted = (True, *(slot in slots for slot in range(count - 1)))
        options: dict[str, Any] = {"grads": "one", "updGrad": False, "wanted": wanted, "guarded": True}
        if isLone:
            return self.program(batch, optimizer=optimizer, **options)
        owner = optimizer if isPlain(optimizer) else None
        if self.buckets is not None:
            options |= {"buckets": self.buckets, "keepGrads": not self.buckets.isPassing}
        return self.program(batch, isAlways, scaled=True, added=not isFirst, owner=owner, **options)

    def update(self, optimizer: Any) -> None:
        """Update with the current gradients, in a compiled step if `compile` is set."""
        if not self.compile:
            optimizer.update()
            return
        if not self.updaters or self.updaters[0].optimizer is not optimizer:
            self.updaters = [Updater(self.graph, optimizer)]
        self.updaters[0].run()

    def backward(self, share: float, isFirst: bool) -> None:
        """Compute `share` times the gradients of the last batch, added to existing ones unless `isFirst`."""
        one = np.ones_like(self.graph.data[0])
        grads = [one, *[None] * (len(self.graph.data) - 1)]
        self.graph.backward(grads, updGrad=False, scale=share, momentum=0.0 if isFirst else 1.0)

    def shapesFor(self, batch: Batch) -> None:
        """Check the shapes of a batch, and that the cost is one number, before any pass.

        Raises    ShapeError naming every node that does not fit
        """
        checkShapes(self.graph, self.cost, [tuple(x.shape) for x in (*batch.data, *batch.target)])

    def warn(self, batch: Batch, metrics: Iterable[Any] = ()) -> None:
        """Warn of a combination of network, cost and metrics that is probably a mistake."""
        shapes = [tuple(x.shape) for x in (*batch.data, *batch.target)]
        warnOf(self.graph, self.cost, shapes)
        outshapes = self.graph.dataShapeFrom(shapes)
        costs = list(getattr(self.cost, "costs", {}).values()) or [self.cost]
        for slot, target, cost in zip(costSlots(self.net, self.cost), batch.target, costs):
            last, x = lastBefore(self.graph, cost, len(shapes)), outshapes[1 + slot]
            label = "the network" if last is None else f"'{last.path}' ({last.module.label})"
            for metric in metrics:
                text = metricDoubt(metric, cost, last, label, x, tuple(target.shape)) if metric.which == slot else ""
                if text:
                    warnUser(f"{metric.name}: {text}", GraphWarning)

    def reset(self) -> None:
        """Free the last batch's values."""
        if self.graph is not None:
            self.graph.reset()


def checkShapes(graph: Graph, cost: Module | None, shapes: list[Any]) -> None:
    """Infer the shapes of a graph for a batch. The first output, the cost, must be one number."""
    outputs = graph.dataShapeFrom(shapes)
    if cost is not None:
        checkCost(cost, outputs[0])


def checkCost(cost: Module, shape: Any) -> None:
    """Refuse a cost that is more than one number.

    Raises    GraphError naming it
    """
    if shape != ():
        hint = '; give it reduction="mean" or "sum"' if getattr(cost, "reduction", "") == "none" else ""
        raise GraphError(f"{type(cost).__name__}: wanted a cost of one number, got shape {shape}{hint}")


def costSlots(net: Any, cost: Any) -> list[int]:
    """Return the slots of the outputs that have a cost, in the order of their targets."""
    return cost.slotsIn(net) if hasattr(cost, "slotsIn") else [0]


def metricDoubt(metric: Any, cost: Any, last: Any, label: str, x: Any, target: Any) -> str:
    """Return a doubt about a metric that reads an output otherwise than its cost does; empty if they agree."""
    kind, takes = type(metric).__name__, getattr(cost, "takes", "")
    gives = "" if last is None else last.module.gives
    if gives == "probabilities" and getattr(metric, "probabilities", None) is False:
        return f"{label} gives probabilities, not scores: write {kind}(probabilities=True)"
    if x == target and gives == "probabilities" and getattr(metric, "threshold", None) == 0.0:
        return f"{label} gives probabilities, all above the threshold 0: write {kind}(threshold=0.5)"
    if x == target and takes and gives != "probabilities" and metric.comparesValues:
        return f"{label} gives logits, as {type(cost).__name__} takes them, which cannot be compared with targets"
    axis = getattr(metric, "axis", None)
    if takes == "scores" and axis is not None and len(x) > 2 and axis % len(x) != cost.axis % len(x):
        return (
            f"{type(cost).__name__} has the classes on axis {cost.axis} of {show(x)}, {kind} on axis {axis}: "
            f"write {kind}(axis={cost.axis})"
        )
    return ""


def checkKind(what: str, value: Any, wanted: tuple[str, ...], example: str) -> None:
    """Refuse a class in place of an instance, and a value without the wanted methods."""
    if isinstance(value, type):
        raise DataError(f"{what}: wanted {example}, got the class {value.__name__}; make one, {value.__name__}(...)")
    if not all(hasattr(type(value), name) or hasattr(value, name) for name in wanted):
        hint = "; a formula is PointwiseCost(formula='(x - target) ** 2'), any other cost a Module"
        isFunction = what == "cost" and callable(value)
        raise DataError(f"{what}: wanted {example}, got {value!r:.60}{hint * isFunction}")


def keptType(x: Any, wanted: np.dtype) -> np.dtype:
    """Return the dtype in which to pass an array to a step: bytes stay bytes if the step converts them to floats."""
    return x.dtype if isByte(x.dtype) and isFloating(wanted) else wanted


def converted(x: Any, dtype: np.dtype, name: str, pinner: Pinner | None = None) -> Any:
    """Return an array converted to a dtype, in pinned memory if there is a Pinner; itself if it has that dtype."""
    if dtype == WHOLE and isFloating(x.dtype):
        wrong = device.toHost(x != np.rint(x))
        if wrong.any():
            first = device.toHost(x)[wrong].flat[0]
            raise DataError(f"{name}: wanted whole numbers (labels, token ids), got {x.dtype} with {first}")
    if dtype == np.bool_ and x.dtype != dtype:
        raise DataError(
            f"{name}: wanted booleans, got {x.dtype}; compare it, as in x != 0, or convert with .astype(bool)"
        )
    isSmall = not (isFloating(dtype) or isByte(dtype)) or x.size * dtype.itemsize <= SAME_STREAM_BYTES
    if pinner is None or type(x) is not np.ndarray or isSmall:
        return x.astype(dtype, copy=False)
    made = pinner(x.shape, dtype)
    np.copyto(made, x, casting="unsafe")
    return made
