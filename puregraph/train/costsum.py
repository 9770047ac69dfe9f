"""CostSum: a weighted sum of costs, one for each of several outputs of a network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from puregraph.compile.trace.withcost import WEIGHT, penaltiesIn
from puregraph.core.arguments import Text, takes
from puregraph.core.errors import ArgumentError, DataError, GraphError
from puregraph.core.param import State
from puregraph.graph.graph import Graph
from puregraph.graph.input import Input
from puregraph.graph.module import Module
from puregraph.graph.pointwise import Pointwise
from puregraph.modules.costs.counted import countedIn
from puregraph.train.metrics.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class CostSum(Graph):
    """cost = the sum over outputs of weight * cost(output, target), for networks with several tasks.

        Trainer(net, CostSum({"digit": CrossEntropy(), "area": MSE()}, weights={"area": 0.1}), Adam())

    `costs`    the cost of each output, by name; an output without a cost is not trained
    `weights`  by the same names, by default 1: a factor of at least 0; a function of the step, such as a Schedule; or
               the name of an output of the network, one number s: cost exp(-s) + s / 2 is added, so that a trained
               `Weight((), name="s")` becomes the logarithm of the variance of the task

    A trainer also accepts the dict of costs, with all weights 1. Targets are in the order of the outputs, or a dict by
    their names; a `sampleWeight` multiplies the contribution of its sample to each cost. Trainer and Validator
    report each cost as `"digit loss"`, without its weight in the sum, beside their `loss`.

    Shapes    the outputs, those that weights name, then the targets -> the sum, then each cost
    Source    Kendall, Gal, Cipolla 2018, arXiv:1705.07115, eq. 10, for weights that are learned
    Raises    ArgumentError for anything but costs of an output and a target, and for weights with unknown names
    """

    @takes(name=Text | None)
    def __init__(self, costs: Any, weights: Any = None, name: str | None = None):
        parts = checkedCosts(costs)
        factors = checkedWeights(weights, parts)
        total = WeightedTotal(factors)
        super().__init__(*addedUp(costs, total), name)
        self.costs, self.parts, self.weights, self.total = dict(costs), parts, factors, total

    @property
    def weighed(self) -> Graph:
        """Return the sum as a graph with another input, the sample weights, which all costs take."""
        return Graph(*addedUp(self.costs, self.total, [Input(name=WEIGHT).node()]), self.name)

    @property
    def schedules(self) -> list[Any]:
        """Return the weights that are functions of the step."""
        return [weight for weight in self.weights if callable(weight)]

    def setStep(self, step: int) -> None:
        """Set the weights that are functions of the step to their values at this one."""
        for i, weight in enumerate(self.weights):
            if callable(weight):
                getattr(self.total, f"w{i}").materialize()[...] = weight(step)

    def inOrderOf(self, net: Graph) -> CostSum:
        """Return the sum with its costs in the order of the network's outputs, which is the order of targets."""
        ordered = [net.outputNames[slot] for slot in sorted(self.slotsIn(net)[: len(self.parts)])]
        if ordered == list(self.parts):
            return self
        return CostSum({name: self.costs[name] for name in ordered}, dict(zip(self.parts, self.weights)), self.name)

    def slotsIn(self, net: Graph) -> list[int]:
        """Return the slots of the network's outputs that have a cost, then of those that are weights.

        Raises    GraphError for a name that is not an output
        """
        outputs, wanted = list(net.outputNames), [*self.parts, *self.total.learned]
        unknown = [name for name in wanted if name not in outputs]
        if unknown:
            raise GraphError(
                f"{type(self).__name__}: wanted costs for outputs of {net.title()}, which are {', '.join(outputs)}; "
                f"got one for {', '.join(map(repr, unknown))}"
            )
        return [outputs.index(name) for name in wanted]

    def meanOf(self, means: dict[str, float]) -> float | None:
        """Return the cost over several batches, from the mean of each part by the name of its figure; None if weights
        change."""
        if not all(isinstance(weight, float) for weight in self.weights):
            return None
        return sum(weight * means[f"{name} loss"] for name, weight in zip(self.parts, self.weights))


class WeightedTotal(Pointwise):
    """y = sum of factor_i c_i, where a factor is a number, a State that follows a function of the step, or exp(-s_i) of
    an input s_i, beside which s_i / 2 is added

    Shapes    c_i (), then s_i () -> y ()
    Source    Kendall, Gal, Cipolla 2018, arXiv:1705.07115, eq. 10
    """

    def __init__(self, weights: list[Any], name: str | None = "total"):
        terms = []
        for i, weight in enumerate(weights):
            factor = f"w{i}" if callable(weight) else f"exp(-s{i})" if isinstance(weight, str) else repr(weight)
            terms.append(f"{factor} * c{i}" + (f" + s{i} / 2" if isinstance(weight, str) else ""))
        super().__init__(name, " + ".join(terms))
        self.learned = [weight for weight in weights if isinstance(weight, str)]
        numbers = [i for i, weight in enumerate(weights) if isinstance(weight, str)]
        self.inputs = (*(f"c{i}" for i in range(len(weights))), *(f"s{i}" for i in numbers))
        for i, weight in enumerate(weights):
            if callable(weight):
                self.inputs = (*self.inputs, f"w{i}")
                setattr(self, f"w{i}", State(()))

    @classmethod
    def examples(cls) -> Iterator[tuple[WeightedTotal, list[tuple[int, ...]]]]:
        yield cls([1.0, 0.5]), [(), ()]
        yield cls([0.5, "s"]), [(), (), ()]


def addedUp(
    costs: dict[str, Any], total: WeightedTotal, weight: Sequence[object] | None = None
) -> tuple[list[Any], list[Any]]:
    """Return the inputs and outputs of a sum of costs. All costs take the node of sample weights, if there is one."""
    more = weight or []
    predictions = [Input(name=output).node() for output in costs]
    learned = [Input(name=f"weight {i}").node() for i in range(len(total.learned))]
    targets = [Input(name=f"target {output}").node() for output in costs]
    parts = [cost.node(x, t, *more) for cost, x, t in zip(costs.values(), predictions, targets)]
    return [*predictions, *learned, *targets, *more], [total.node(*parts, *learned), *parts]


class PartLoss(Metric):
    """The mean of one cost of a CostSum, or with `isAdded` of what a module of the network adds to the cost."""

    better = "min"

    def __init__(self, cost: Module, number: int, which: int, name: str, isAdded: bool = False):
        super().__init__(which, name)
        self.cost, self.target, self.isAdded = cost, number, isAdded

    def share(self, prediction: Any, target: Any) -> tuple[float, float]:
        weight = float(countedIn(self.cost, target, len(target)))
        return float(prediction) * weight, weight


def checkedCosts(costs: Any) -> tuple[str, ...]:
    """Return the names of the costs, after checking these."""
    if not isinstance(costs, dict) or not costs or not all(isinstance(name, str) for name in costs):
        raise ArgumentError(f"costs: wanted a dict of a cost for each output by its name, got {costs!r:.80}")
    for name, cost in costs.items():
        isCost = isinstance(cost, Module) and not isinstance(cost, CostSum)
        if not isCost or len(cost.inputSpec.names) - len(cost.inputSpec.optional) != 2:
            raise ArgumentError(
                f"costs[{name!r}]: wanted a cost of an output and its target, such as MSE(), got {cost!r:.60}"
            )
    return tuple(costs)


def checkedWeights(weights: Any, names: tuple[str, ...]) -> list[Any]:
    """The weight of each cost."""
    byName = {} if weights is None else weights
    if not isinstance(byName, dict) or not set(byName) <= set(names):
        raise ArgumentError(f"weights: wanted a dict by some of the names {', '.join(names)}, got {weights!r:.80}")
    for name, weight in byName.items():
        isReal = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        isChanging = isinstance(weight, str) or callable(weight) and not isinstance(weight, type)
        if not isChanging and (not isReal or not math.isfinite(weight) or weight < 0):
            raise ArgumentError(f"weights[{name!r}]: wanted a number from 0 on, got {weight!r:.60}")
    return [w if isinstance(w, str) or callable(w) else float(w) for w in (byName.get(name, 1.0) for name in names)]


def costFrom(cost: Module) -> Module:
    """Convert a dict of costs to their CostSum; other costs are returned unchanged.

    Raises    DataError for None
    """
    if cost is None:
        raise DataError(
            "cost: wanted a Module of predictions and targets, such as MSE(), got None; a network that gives its own "
            "cost, one number, is trained by net.compile(shapes, optimizer=Adam()), whose run(...) is a step"
        )
    return CostSum(cost) if isinstance(cost, dict) else cost


def partLosses(net: Graph, cost: Module) -> list[Metric]:
    """Return the metrics of the costs of a CostSum, then of penalties, which follow the outputs of the network."""
    first, costs = len(net.outputNames), getattr(cost, "costs", {})
    parts: list[Metric] = [PartLoss(part, i, first + i, f"{name} loss") for i, (name, part) in enumerate(costs.items())]
    paths = penaltiesIn(net.steps()) if cost is not None else ()
    return parts + [PartLoss(cost, 0, first + len(parts) + i, f"{path} loss", True) for i, path in enumerate(paths)]
