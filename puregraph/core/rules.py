"""Selection of a node's gradient rule: one lookup for the library; the order of imports has no effect.

    1. the rule named on the node                       `Linear(3, 4).node(x, rule="mine")`
    2. a rule registered for the module's type          `@registerRule(Linear)`, `@BackwardImplementation.register(...)`
       that can be applied: nearest type first, then "default", then by name
    3. the module's own `updateGrad`
    4. the derivative of its `formula`
    5. an error that lists what was tried and what to write

(A node that is a Graph needs no rule: it is replaced by its own nodes.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from puregraph.core.arguments import AnyFunction, Text, takes
from puregraph.core.errors import ArgumentError, AutoDiffException
from puregraph.core.versioning import COUNTER

if TYPE_CHECKING:
    from puregraph.graph.module import Module
    from puregraph.graph.node import Node

Rule = Callable[..., Any]
ArrayFunction = Callable[..., Any]  # a ufunc or function of numpy, a Kernel, an Interpreter, or a rule
DEFAULT = "default"  # the name of a rule that was registered without one


class RuleContext(NamedTuple):
    """The location of a gradient request; unknown entries are None.

    It has the node, its graph, the backward graph under construction, and per output whether it has a gradient.
    """

    node: Any = None
    graph: Any = None
    backward: Any = None
    hasGrad: tuple[bool, ...] | None = None


NOWHERE = RuleContext()


class Registered(NamedTuple):
    """A registered gradient rule: `make` builds `(grad, *arguments, *outputs)`, `applies` tests a context, and an
    `asked` rule is used only by name."""

    make: Callable[[Any, tuple[bool, ...], RuleContext], Rule]
    applies: Callable[[Any, RuleContext], bool]
    asked: bool = False


REGISTRY: dict[tuple[type | str, str], Registered] = {}  # by (type, or its name or operator; name of the rule)


@takes(name=Text | None, applies=AnyFunction)
def registerRule(
    moduleType: type, name: str | None = None, applies: Callable[[Any], bool] = lambda module: True
) -> Callable:
    """Register a gradient rule `(module, grad, *arguments, *outputs[, needs])` for a type of module.

    It is for all its nodes, or with a name for the nodes that name it.

    Raises    ValueError if a rule of that name is registered for that type already
    """

    if not isinstance(moduleType, (type, str)):
        raise ArgumentError(f"registerRule: wanted the class of a module, such as Linear, got {moduleType!r:.60}")

    def keep(rule: Rule) -> Rule:
        def make(module: Module, needs: tuple[bool, ...], context: RuleContext) -> Rule:
            return withNeeds(partial(rule, module), rule, needs)

        asked = name not in (None, DEFAULT)
        register(moduleType, name or DEFAULT, Registered(make, lambda module, context: applies(module), asked))
        return rule

    return keep


def register(kind: type | str, name: str, registered: Registered) -> None:
    """Put a rule into the registry: for a type of module, or for types of that name.

    Raises    ValueError if there is one of that name
    """
    if (kind, name) in REGISTRY:
        label = kind if isinstance(kind, str) else kind.__name__
        raise ValueError(f"a gradient rule {name!r} for {label} is registered already: give this one another name")
    REGISTRY[kind, name] = registered
    COUNTER.version = object()


def rulesFor(nodes: Iterable[Node]) -> tuple:
    """The state that determines the gradient rules of nodes: while it is equal, a backward pass stays valid."""
    return tuple(REGISTRY.items()), tuple([(node.rule, node.module.updateGrad) for node in nodes])


def readBy(module: Any, rule: str | None) -> tuple[str, ...] | None:
    """Return the names of the arguments and outputs that a node's gradient rule reads; None if that is unknown until
    the rule is made, so that it may read all."""
    return None if rule is not None or candidates(module) else module.reads


def candidates(module: Module) -> list[tuple[str, Registered]]:
    """The names and rules registered for a module, in the order in which they are tried."""
    if not REGISTRY:
        return []
    moduleType: Any = type(module)
    rank = kinds(moduleType, getattr(module, "operator", None))
    ranked = [(rank[kind], name != DEFAULT, name) for kind, name in REGISTRY if kind in rank]
    order = list(rank)
    return [(name, REGISTRY[order[distance], name]) for distance, _, name in sorted(ranked)]


@cache
def kinds(moduleType: type, operator: str | None = None) -> dict[Any, int]:
    """The keys under which rules for a type may be registered, nearest first.

    They are the type, the operator of ONNX that a module of it was read from, the type's name, and its bases.
    """
    names = [moduleType.__name__] if operator in (None, moduleType.__name__) else [operator, moduleType.__name__]
    return {kind: i for i, kind in enumerate((moduleType, *names, *moduleType.__mro__[1:]))}


def gradientRule(module: Any, needs: tuple[bool, ...], name: str | None = None, context: RuleContext = NOWHERE) -> Rule:
    """The rule `(grad, *arguments, *outputs) -> one gradient per argument` of a module at a node.

    Raises    AutoDiffException if there is none; the message lists what was tried and what to write
    """
    label = type(module).__name__
    rules = candidates(module)
    tried = [(n, r) for n, r in rules if (n == name if name is not None else not r.asked)]
    for _, registered in tried:
        if registered.applies(module, context):
            return registered.make(module, needs, context)
    if name is not None:
        known = ", ".join(dict.fromkeys(n for n, _ in rules)) or "none"
        why = "it says that it cannot be applied here" if tried else f"known for {label}: {known}"
        raise AutoDiffException(f"no gradient rule named {name!r} for {label}: {why}")
    if getattr(module, "isDiscrete", False):
        return lambda grad, *values: (None,) * (len(values) - len(module.outputNames) - len(module.hidden))
    if module.updateGrad is not None:
        return withNeeds(module.updateGrad, module.updateGrad, needs)
    if getattr(module, "formula", None) is not None:
        return withNeeds(module.derivative, module.derivative, needs)
    refused = ", ".join(f"{n!r} says that it cannot be applied here" for n, _ in tried) or "none"
    raise AutoDiffException(
        f"{label} has no gradient: tried a registered rule ({refused}), its own updateGrad (not defined), "
        f"the derivative of a formula (it has none); write {label}.updateGrad(grad, *arguments, *outputs), "
        f"or register one with @registerRule({label}) or @BackwardImplementation.register(op={label!r}, name=...)"
    )


def withNeeds(call: Rule, signed: Rule, needs: tuple[bool, ...]) -> Rule:
    """Bind `needs` where the rule asks for it."""
    return partial(call, needs=needs) if takesNeeds(getattr(signed, "__func__", signed)) else call


@cache
def takesNeeds(rule: Rule) -> bool:
    """True if a rule takes the argument `needs`."""
    return "needs" in inspect.signature(rule).parameters
