"""Registry: the rules that lower calls to native kernel calls, by function; imported when the first is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.compile.trace.numpyrules import kindsOf
from puregraph.core.late import Late
from puregraph.ops.ir.kind import KINDS
from puregraph.ops.ir.value import OWN, nameOf
from puregraph.ops.operation import declared, op

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction


LOWERINGS = Late("puregraph.compile.lower.lowerings")


def lowers(function: Any) -> Callable[[Any], Any]:
    """Declare the rule that lowers a function's calls: `(call, workspace)` returns native kernel calls, or None.

    Raises    ValueError for a function whose calls are never lowered by such a rule, or that has one already
    """
    if function not in OWN and not any(KINDS[kind].isRegistered for kind in kindsOf(function)):
        kinds = " or ".join(kindsOf(function)) or "nothing"
        raise ValueError(
            f"lowers: wanted a Kernel, or a function of numpy that is recorded as a call of its own, got "
            f"{nameOf(function)}, which is recorded as {kinds}; make it a Kernel, or declare how it is recorded"
        )
    LOWERINGS.load()
    return op(function).lower


def isLowered(function: ArrayFunction) -> bool:
    """True if a function has a lowering."""
    return loweringFor(function) is not None


def loweringFor(function: Any, what: str = "lower") -> Any:
    """The rule "lower", "tiling" or "untiled" of a function; None without one."""
    LOWERINGS.load()
    return declared(function, what)
