"""Partition: split the steps of a graph into pieces where sizes depend on the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.param import FixedState, State
from puregraph.core.shape import symbols, valueOf
from puregraph.graph.inference import StepShapes
from puregraph.graph.steps import ABSENT, GraphStep, Steps

if TYPE_CHECKING:
    from puregraph.core.shape import Shape


class Partition(NamedTuple):
    """Steps that run one after another: `sizes` are the symbols in their shapes.

    `isOpen` is True for a single step whose result size is known only after it has run.
    """

    rows: list[StepShapes]
    sizes: tuple[str, ...]
    isOpen: bool

    @property
    def items(self) -> list[GraphStep]:
        """The steps."""
        return [row.step for row in self.rows]


def openSteps(rows: Sequence[StepShapes]) -> set[GraphStep]:
    """The steps whose results have new, data-dependent sizes; the input shapes are numbers."""
    seen: set[str] = set()
    opens = set()
    for row in rows:
        new = symbolsIn(row.shapes or ())
        if not new <= seen:
            opens.add(row.step)
            seen |= new
    return opens


def symbolsIn(shapes: Iterable[Shape | None]) -> set[str]:
    """The symbols in some shapes, and in values whose elements are known."""
    names: set[str] = set()
    for shape in shapes:
        if shape is not None:
            names.update(symbols(shape))
            names.update(symbols(()) if valueOf(shape) is None else symbols(valueOf(shape).ravel().tolist()))
    return names


def partition(rows: Sequence[StepShapes], isOpen: set[GraphStep], steps: Steps) -> list[Partition]:
    """Split steps into pieces, in an order in which every piece can run.

    An open step is a piece by itself; other steps share a piece if their shapes have the same symbols. A step is in the
    first piece of its kind after everything it reads. Steps that share a state keep their order.
    """
    states = {n for n, module, name in steps.params if isWritten(getattr(module, name))}
    home: dict[int, tuple[int, Any]] = {}  # by value, the piece that makes it, or last wrote to the state
    pieces: dict[tuple[int, Any], list[StepShapes]] = {}
    for row in rows:
        step = row.step
        kind: Any = step if step in isOpen else tuple(sorted(symbolsIn([*row.inshapes, *(row.shapes or ())])))
        before = [home[n] for n in step.args if n in home]
        key = max([depth + (other != kind) for depth, other in before], default=0), kind
        pieces.setdefault(key, []).append(row)
        home.update(dict.fromkeys([*step.outs, *states.intersection(step.args)], key))
    partitions = []
    for depth, kind in sorted(pieces, key=lambda key: key[0]):
        members = pieces[depth, kind]
        isAlone = isinstance(kind, GraphStep)
        sizes = tuple(sorted(symbolsIn(members[0].shapes or ()))) if isAlone else kind
        partitions.append(Partition(members, sizes, isAlone))
    return partitions


def isWritten(stored: object) -> bool:
    """True if a rule may write to a parameter or state."""
    return isinstance(stored, State) and not isinstance(stored, FixedState)


def withKnown(piece: Partition, rows: Sequence[StepShapes], isOpen: set[GraphStep]) -> list[GraphStep]:
    """The steps of a piece, preceded by those that compute values it reads from shapes alone.

    In a program these values are constants, never inputs.
    """
    known = {n: row.step for row in rows if isKnown(row) and row.step not in isOpen for n in row.step.visible}
    items, wanted = set(piece.items), set()
    waiting = [n for step in piece.items for n in step.args]
    while waiting:
        step = known.get(waiting.pop())
        if step is not None and step not in items and step not in wanted:
            wanted.add(step)
            waiting += step.args
    return [row.step for row in rows if row.step in wanted] + piece.items


def isKnown(row: StepShapes) -> bool:
    """True if the elements of all results of a step are known without data."""
    return bool(row.shapes) and all(valueOf(shape) is not None for shape in row.shapes or ())


def stepsOf(steps: Steps, items: Sequence[GraphStep], inputs: Sequence[int], outputs: Sequence[int]) -> Steps:
    """Steps of a subset of steps, with the same value numbers; a run frees values after their last use."""
    subset = Steps()
    subset.items = [GraphStep(s.path, s.node, s.args, s.outs, s.inputs) for s in items]
    subset.inputs, subset.outputs = list(inputs), list(outputs)
    read = {n for step in items for n in step.args}
    subset.params = [row for row in steps.params if row[0] in read]
    subset.producer, subset.names, subset.count = steps.producer, steps.names, steps.count
    subset.makesBfloat16 = steps.makesBfloat16
    subset.freeAfterLastUse(argumentsOf)
    return subset


def argumentsOf(step: GraphStep) -> tuple[int, ...]:
    """The values that a step reads."""
    return step.args


def entering(steps: Steps, items: Sequence[GraphStep]) -> list[int]:
    """The values that these steps read but do not make."""
    made = {ABSENT, *(n for n, _, _ in steps.params), *(n for step in items for n in step.outs)}
    return list(dict.fromkeys(n for step in items for n in step.args if n not in made))
