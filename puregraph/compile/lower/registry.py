"""Registry: the rules that lower calls to native kernel calls, by function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puregraph.compile.ir.kind import KINDS
from puregraph.compile.ir.value import copy, fill, nameOf, put, store
from puregraph.compile.trace.numpyrules import kindsOf
from puregraph.ops.kernel import Kernel, declared
from puregraph.ops.native.llvm.kernelcall import KernelCall

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

Lowering = Callable[..., "list[KernelCall] | None"]
OWN = (copy, fill, put, store)  # functions of the intermediate form itself
LOWERINGS: dict[ArrayFunction, Lowering] = {}  # for functions other than Kernels, which declare theirs


def lowers(function: Any) -> Callable[[Any], Any]:
    """Register the rule that lowers a function's calls: `(call, workspace)` returns native kernel calls, or None.

    Raises    ValueError for a function whose calls are never lowered by such a rule, or that has one already
    """
    if function not in OWN and not any(KINDS[kind].isRegistered for kind in kindsOf(function)):
        kinds = " or ".join(kindsOf(function)) or "nothing"
        raise ValueError(
            f"lowers: wanted a Kernel, or a function of numpy that is recorded as a call of its own, got "
            f"{nameOf(function)}, which is recorded as {kinds}; make it a Kernel, or give it a reader with @reads"
        )
    if function in LOWERINGS:
        raise ValueError(f"lowers: {nameOf(function)} has a lowering already")

    def keep(rule: Any) -> Any:
        if isinstance(function, Kernel):
            function.declare(lower=rule)
        else:
            LOWERINGS[function] = rule
        return rule

    return keep


def loweringOf(function: ArrayFunction) -> Lowering | None:
    """The rule that lowers a function's calls to native kernel calls, or None."""
    return declared(function, "lower") or LOWERINGS.get(function)


def isLowered(function: ArrayFunction) -> bool:
    """True if a function has a lowering."""
    return loweringOf(function) is not None
