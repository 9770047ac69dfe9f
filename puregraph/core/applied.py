"""Applied: one call of a rule, kept for its gradient, and the checks that its arguments are unchanged since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.base.fingerprint import fingerprint
from puregraph.core.errors import PuregraphError
from puregraph.core.param import Param

if TYPE_CHECKING:
    from puregraph.graph.module import Module


class Applied(NamedTuple):
    """One call of a module's rule: its arguments, its outputs, and the module's mode.

    `saved` detects later changes of values that the gradient rule reads, by name: parameters with their marks, other
    arguments and visible outputs with their fingerprints.
    """

    arguments: list[Any]
    outputs: tuple
    train: bool
    saved: list[tuple[str, Any, Any]]

    def check(self, module: Module, name: str) -> None:
        """Raise    PuregraphError if the mode, or anything that the gradient rule reads, has changed since."""
        checkMode(module, self.train, name)
        checkSaved(module, self.saved, name)


def checkMode(module: Module, train: bool, name: str) -> None:
    """Check that a module is still in the mode of the forward pass.

    Raises    PuregraphError if the mode has changed
    """
    if module.isTraining is not train:
        before, now = ("trainMode", "evalMode") if train else ("evalMode", "trainMode")
        raise PuregraphError(
            f"at '{name}' ({module.label}), backward: the forward pass was in {before}, the module is in {now} by now; "
            "go backward before the mode is changed, or run the forward pass again"
        )


def checkSaved(module: Module, saved: list[tuple[str, Any, Any]], name: str) -> None:
    """Check that the values that a module's gradient rule reads are unchanged since the forward pass.

    Raises    PuregraphError if one was modified in place
    """
    for what, value, before in saved:
        if isModified(value, before):
            raise modified(name, f" ({module.label})", what)


def isModified(value: Any, before: Any) -> bool:
    """True if a parameter differs from its mark, or an array from its fingerprint."""
    if isMarked(value):
        return not value.isAsMarked(before)
    return before is not None and fingerprint(value) != before


def modified(name: str, label: str, what: str) -> PuregraphError:
    """Return the error for a value that was modified since the forward pass."""
    return PuregraphError(
        f"at '{name}'{label}, backward: {what} was modified in place since the forward pass, and the gradient rule "
        "reads it; go backward before it is changed, change a copy, or run the forward pass again"
    )


def isMarked(value: Any) -> bool:
    """True if a value has a version that a pass marks: parameters do; states do not, they change in every pass."""
    return isinstance(value, Param)


def asGrads(result: Any, count: int, label: str) -> tuple:
    """Check a gradient rule's result: one gradient per argument."""
    grads = result if type(result) is tuple else (result,)
    if len(grads) != count:
        raise PuregraphError(
            f"the gradient rule of {label} returned {len(grads)} gradients for {count} arguments; "
            "return one per input and parameter, None where there is none"
        )
    return grads
