"""Which gradient rule a node gets. One lookup, used by everything; the order of imports decides nothing.

    1. the rule named on the node                       `Linear(3, 4).node(x, rule="mine")`
    2. a rule registered for the module's type          `@registerRule(Linear)`
    3. the module's own `updateGrad`
    4. the derivative of its `formula`
    5. an error that lists what was tried and what to write

(A node that is a Graph never asks: it unfolds into its own nodes.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from puregraph.errors import AutoDiffException

Rule = Callable[..., Any]


class Registered(NamedTuple):
    """A rule `(module, grad, *arguments, *outputs[, needs])`, and a test whether it can be applied to a module."""

    rule: Rule
    applies: Callable[[Any], bool]


REGISTRY: dict[tuple[type, str | None], Registered] = {}


def registerRule(
    moduleType: type, name: str | None = None, applies: Callable[[Any], bool] = lambda module: True
) -> Callable:
    """Register a gradient rule for a type of module: for all its nodes, or under a name for those that ask for it.

    Raises    ValueError if a rule of that name is registered for that type already
    """

    def keep(rule: Rule) -> Rule:
        if (moduleType, name) in REGISTRY:
            label = f"named {name!r} " if name else ""
            raise ValueError(
                f"a gradient rule {label}for {moduleType.__name__} is registered already: give this one another name"
            )
        REGISTRY[moduleType, name] = Registered(rule, applies)
        return rule

    return keep


def gradientRule(module: Any, needs: tuple[bool, ...], name: str | None = None) -> Rule:
    """The rule `(grad, *arguments, *outputs) -> one gradient per argument` of a module at a node.

    Raises    AutoDiffException if there is none; the message lists what was tried and what to write
    """
    label = type(module).__name__
    registered = REGISTRY.get((type(module), name))
    if name is not None and (registered is None or not registered.applies(module)):
        known = sorted(n for t, n in REGISTRY if t is type(module) and n)
        why = (
            "it says that it cannot be applied here"
            if registered
            else f"known for {label}: {', '.join(known) or 'none'}"
        )
        raise AutoDiffException(f"no gradient rule named {name!r} for {label}: {why}")
    if registered is not None and registered.applies(module):
        return withNeeds(partial(registered.rule, module), registered.rule, needs)
    if module.updateGrad is not None:
        return withNeeds(module.updateGrad, module.updateGrad, needs)
    if getattr(module, "formula", None) is not None:
        return withNeeds(module.derivative, module.derivative, needs)
    raise AutoDiffException(
        f"{label} has no gradient: tried a registered rule (none), its own updateGrad (not defined), "
        f"the derivative of a formula (it has none); write {label}.updateGrad(grad, *arguments, *outputs) "
        f"or register one with @registerRule({label})"
    )


def withNeeds(call: Rule, signed: Rule, needs: tuple[bool, ...]) -> Rule:
    """Bind `needs` where the rule asks for it."""
    return partial(call, needs=needs) if takesNeeds(getattr(signed, "__func__", signed)) else call


@cache
def takesNeeds(rule: Rule) -> bool:
    """Whether a rule asks which gradients are needed."""
    return "needs" in inspect.signature(rule).parameters
