"""GraphHolder: a Module that runs graphs inside its rules, and has their parameters by their paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from puregraph.core.param import Param, State
from puregraph.core.parameterized import StoredArrays
from puregraph.graph.graph import Graph
from puregraph.graph.lookup import setInside
from puregraph.graph.module import Module
from puregraph.graph.steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self

    from puregraph.core.protocols import AnyArray

Location = tuple[Module, str]  # a module, and the attribute name of a parameter or state


class GraphHolder(Module):
    """A Module that holds graphs. They are not part of the surrounding graph; only the holder's rules run them.

    `held` maps path prefixes to graphs or single modules: for {"then": graph}, `then.fc.W` is the parameter W of the
    graph's node `fc`. The holder has their parameters and states, without repeats; setting its mode or precision sets
    theirs.
    """

    def __init__(self, held: dict[str, Module], name: str | None = None):
        vars(self)["held"] = held
        super().__init__(name)
        self.knownLocations: tuple[list[Steps], dict[str, Location]] | None = None

    def inside(self) -> Iterator[tuple[str, Module]]:
        """The modules inside, each by its path."""
        for prefix, part in self.held.items():
            rows = [(s.path, s.module) for s in part.steps().items] if isinstance(part, Graph) else [("", part)]
            for path, module in rows:
                yield joined(prefix, path), module

    # Parameters and states --------------------------------------------------------------------------------------------

    @property
    def locations(self) -> dict[str, Location]:
        """The module and attribute name of each parameter and state that the rules take, without repeats."""
        steps = [part.steps() for part in self.held.values() if isinstance(part, Graph)]
        known, located = self.knownLocations or (None, {})
        if known is None or len(steps) != len(known) or any(a is not b for a, b in zip(steps, known)):
            rows: dict[tuple[int, str], tuple[str, Location]] = {}
            for path, module in self.inside():
                for name in (*module.params, *module.states):
                    rows.setdefault((id(module), name), (joined(path, name), (module, name)))
            located = dict(rows.values())
            vars(self)["knownLocations"] = steps, located
        return located

    def __getattr__(self, name: str) -> Any:
        if "held" in vars(self) and "knownLocations" in vars(self):
            location = self.locations.get(name)
            if location is not None:
                return getattr(*location)
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def storedInside(self, kind: type) -> dict[str, Any]:
        """The parameters or states, by path."""
        arrays = {path: getattr(*location) for path, location in self.locations.items()}
        return StoredArrays((path, stored) for path, stored in arrays.items() if isinstance(stored, kind))

    @property
    def params(self) -> dict[str, Param]:
        return self.storedInside(Param)

    @property
    def states(self) -> dict[str, State]:
        return self.storedInside(State)

    @property
    def ruleNames(self) -> tuple[str, ...]:
        return (*self.params, *self.states)

    @property
    def ruleArrays(self) -> list[Param | State]:
        """The parameters and states that the rules take, in the order of `ruleNames`."""
        stored = [getattr(*location) for location in self.locations.values()]
        return [s for kind in (Param, State) for s in stored if isinstance(s, kind)]

    def wants(self, param: Any) -> bool:
        """True if any module that holds the parameter wants its gradient."""
        return any(m.wants(param) for m, name in self.locations.values() if getattr(m, name) is param)

    def numbered(self, steps: Steps, stored: dict[str, AnyArray]) -> dict[int, AnyArray]:
        """Convert arrays by their names here to arrays by their value numbers in the steps of a graph."""
        arrays = {id(getattr(self, name)): array for name, array in stored.items()}
        numbers = {number: id(getattr(module, name)) for number, module, name in steps.params}
        return {n: arrays[key] for n, key in numbers.items() if key in arrays}

    def inOrder(self, gradients: dict[int, AnyArray | None]) -> list[AnyArray | None]:
        """Order gradients by parameter id like `ruleNames`; a shared parameter's gradient goes to its first name."""
        left = dict(gradients)
        return [left.pop(id(stored), None) for stored in self.ruleArrays]

    # Modes ------------------------------------------------------------------------------------------------------------

    @property
    def isTraining(self) -> bool:
        """True if all held graphs and modules are in trainMode; setting it sets their modes."""
        return all(part.isTraining for part in self.held.values())

    @isTraining.setter
    def isTraining(self, mode: bool) -> None:
        for part in self.held.values():
            part.isTraining = mode

    def calcMode(self, mode: Any) -> Self:
        for part in self.held.values():
            part.calcMode(mode)
        return self

    def followFloats(self, usual: Any, dtype: Any) -> None:
        for part in self.held.values():
            part.followFloats(usual, dtype)

    @property
    def precision(self) -> str:
        return next(part.precision for part in self.held.values())

    @precision.setter
    def precision(self, precision: str) -> None:
        for part in self.held.values():
            if isinstance(part, Graph):
                setInside(part, "precision", precision)
            part.precision = precision


def joined(*steps: str) -> str:
    """A path from its steps, without those that are empty."""
    return ".".join(filter(None, steps))


def leavesIn(holder: Module, path: str) -> Iterable[tuple[str, Module]]:
    """The modules of a node and all that they hold, at any depth, each by its path."""
    yield path, holder
    if isinstance(holder, GraphHolder):
        for inner, module in holder.inside():
            yield from leavesIn(module, joined(path, inner))
