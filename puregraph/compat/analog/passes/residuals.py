"""Records: the values that a forward pass stores for each node's gradient, with the source of every input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.compat.analog.argskwargs import ArgsKwargs, InputOutput
from puregraph.compat.analog.structure.edges import Edge, Port
from puregraph.compat.analog.structure.graphenum import GraphEnum
from puregraph.core.accumulate import combine

if TYPE_CHECKING:
    from collections.abc import Hashable


Pull = Callable[[ArgsKwargs, "ParamGrads"], ArgsKwargs]  # gradients of a node's outputs -> those of its inputs


class Taken(NamedTuple):
    """One input of a node's call: its position there, its producer's port, and the edge between them."""

    position: Port
    port: Port
    edge: Edge


class Record(InputOutput):
    """One node of a forward pass: inputs, outputs, where the inputs came from, and how to pull a gradient back.

    Each input's origin is recorded when the call is assembled; it is never inferred by comparing values.
    """

    __slots__ = ("_by_edge", "_by_source", "pull", "rank", "taken")

    def __init__(self, inputs: ArgsKwargs, outputs: ArgsKwargs, taken: list[Taken], pull: Pull | None, rank: int):
        super().__init__(inputs, outputs)
        self.taken, self.pull, self.rank = taken, pull, rank
        self._by_edge: dict[Edge, list[tuple[int, Taken]]] | None = None
        self._by_source: dict[Hashable, list[tuple[int, Taken]]] = {}

    def index(self) -> None:
        by_edge, by_source = defaultdict(list), defaultdict(list)
        for position, taken in enumerate(self.taken):
            by_edge[taken.edge].append((position, taken))
            by_source[taken.edge.source].append((position, taken))
        self._by_edge, self._by_source = by_edge, by_source

    def along(self, edge: Edge) -> list[tuple[int, Taken]]:
        """The inputs that came along an edge, with their positions among all inputs."""
        if self._by_edge is None:
            self.index()
        return (self._by_edge or {}).get(edge, [])

    def taken_from(self, source: Hashable) -> list[tuple[int, Taken]]:
        """The inputs that came from a node."""
        if self._by_edge is None:
            self.index()
        return self._by_source.get(source, [])


class ParamGrads:
    """The gradients of parameters, collected through one pass and stored when all of it has succeeded."""

    def __init__(self) -> None:
        self.found: dict[Hashable, list[tuple[int, int, Any, Any]]] = defaultdict(list)

    def add(self, group: Any, rank: int, position: int, param: Any, grad: Any) -> None:
        """Record one contribution; the contributions of a group are added in forward order."""
        if grad is not None:
            self.found[group].append((rank, position, param, grad))

    def totals(self) -> list[tuple[Any, Any]]:
        """Each parameter with the sum of its gradients, in forward order; a shared parameter appears once."""
        sums: dict[int, tuple[Any, Any]] = {}
        for _, rows in sorted(self.found.items()):
            param, new = rows[0][2], combine([grad for _, _, _, grad in sorted(rows, key=lambda row: row[:2])])
            old = sums.get(id(param))
            sums[id(param)] = param, new if old is None else old[1] + new
        return list(sums.values())


class Residuals:
    """A forward pass of a ForwardGraph, with the interface that its backward graph uses."""

    def __init__(self, records: dict[Hashable, Record]):
        self.records = records

    def __contains__(self, node: Hashable) -> bool:
        return node in self.records

    def rank(self, node: Hashable) -> float:
        """Return the position of a node in the forward pass; infinity if it did not run."""
        record = self.records.get(node)
        return float("inf") if record is None else record.rank

    def outputs(self, node: Hashable) -> ArgsKwargs:
        """A node's outputs in the forward pass."""
        return self.records[node].outputs

    def along(self, consumer: Any, edge: Edge) -> list[tuple[int, Taken]]:
        record = self.records.get(consumer)
        return [] if record is None else record.along(edge)

    def taken_from(self, consumer: Hashable, source: Hashable) -> list[tuple[int, Taken]]:
        record = self.records.get(consumer)
        return [] if record is None else record.taken_from(source)

    def record(self, node: Hashable) -> Record:
        return self.records[node]

    def pull(self, node: Hashable, grads: ArgsKwargs, params: ParamGrads) -> ArgsKwargs:
        """Compute a node's input gradients from its output gradients."""
        record = self.records[node]
        return ArgsKwargs() if record.pull is None else record.pull(grads, params)

    @property
    def inputs(self) -> ArgsKwargs:
        return self.records[GraphEnum.INPUT].outputs
