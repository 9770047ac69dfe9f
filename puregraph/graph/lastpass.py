"""Lastpass: one forward pass, the checks that its values are unchanged, and the gradients of its backward pass."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.accumulate import isArray
from puregraph.core.applied import checkMode, isMarked, isModified, modified
from puregraph.core.base.fingerprint import fingerprint
from puregraph.graph.steps import Steps

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray

MODE = attrgetter("module.isTraining")


class Pass(NamedTuple):
    """One forward pass: the steps that ran, all their values, and the modules' modes.

    `saved` has marks of the inputs, outputs and parameters that gradient rules read, to detect later changes.
    """

    steps: Steps
    values: list[Any]
    modes: list[bool]
    saved: list[tuple[int, Any, Any]]

    def check(self) -> None:
        """Check that modes, and the values that gradient rules read, are unchanged since the forward pass.

        Raises    PuregraphError if the mode of a module has changed since, or what gradient rules read was modified
        """
        names = self.steps.names
        for number, value, before in self.saved:
            if isModified(value, before):
                raise modified(self.steps.producer[number], "", f"'{names[number]}'")
        if list(map(MODE, self.steps.items)) != self.modes:
            for step, train in zip(self.steps.items, self.modes, strict=True):
                checkMode(step.module, train, step.path)


def savedOf(steps: Steps, values: list[AnyArray]) -> list[tuple[int, Any, Any]]:
    """Marks or fingerprints of the values that gradient rules read and a user can modify."""
    numbers, stored = steps.saved
    marks: list[tuple[int, Any, Any]] = []
    for n in numbers:
        marks.append((n, values[n], fingerprint(values[n])))
    for n, module, name in stored:
        param = getattr(module, name)
        if isMarked(param):
            marks.append((n, param, param.mark()))
    return marks


def storeGrads(
    grads: list[Any],
    inputs: list[AnyArray],
    paramGrads: list[tuple[Any, Any]],
    scale: float,
    momentum: float,
) -> list[AnyArray | None]:
    """Store the parameter gradients; return the input gradients, in their own memory."""
    taken = {id(g) for g in grads}
    for param, new in paramGrads:
        param.store(new, scale, momentum, alias=id(new) in taken)
        taken.add(id(new))
    return [g.copy() if id(g) in taken and isArray(g) else g for g in inputs]
