"""Derivatives of declared operations: the gradient and the tangent that an Operation declares, ready to call.

    @op(f).vjp          rule(g, y, *arguments as f names them) -> one gradient per argument, None where there is none
    @op(f).jvp          rule(function, values, tangents, options) -> (result, its tangent)
    @op(f).adjoint      f is linear in its first argument: the rule is its gradient; f is its own tangent
    @op(f).multilinear  f is linear in each array: the rule gives the gradients, the tangent is the sum over the arrays
    declare(moves=0)    f only moves elements: the gradient follows from where it moves their positions
    declare(constant=True)

`g` is the gradient of the result `y` (a tuple of them where there are several). A gradient's rule that is given
Variables records itself, so second derivatives need no further table. Of ufuncs and Formulas both modes follow from the
derivative of the formula (`ufuncs`). A tangent of None is zero; lists among the values are lists among the tangents.

Source    Griewank, Walther 2008, Evaluating Derivatives, ch. 3
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.accumulate import combine
from puregraph.core.errors import AutoDiffException
from puregraph.ops.gather.writes import movedBack
from puregraph.ops.operation import ITSELF, MULTILINEAR, declared, op
from puregraph.ops.tangents import alone, isLeftOut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from puregraph.core.protocols import AnyArray
    from puregraph.core.rules import ArrayFunction

Vjp = Callable[[Any, Any, tuple, dict, tuple], Any]
Jvp = Callable[[Any, list, list, dict], tuple[Any, Any]]
VJPS: dict[ArrayFunction, Vjp] = {}  # the declared gradients, bound to the names of their functions' arguments
WRITING = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}
FRESH = {np.zeros_like, np.ones_like, np.empty_like}  # constant, but arrays to write into
NAMES = {  # argument names of functions without a signature
    operator.getitem: ("x", "key"),
    np.concatenate: ("arrays", "axis"),
    np.where: ("condition", "x", "y"),
    **dict.fromkeys((np.dot, np.inner, np.vdot), ("a", "b")),
}
HARMLESS = {"keepdims", "dtype", "out"}  # visible in the result
PLAIN = {*HARMLESS, "axis", "order", "casting", "subok", "copy", "optimize"}  # supported by rules without `reads`
RAW = ("arguments", "options", "needs")  # parameters of a rule that takes arguments and options unbound


def jvp(*functions: ArrayFunction) -> Callable[[Jvp], Jvp]:
    """Register the tangent rule of functions of numpy, or of a Kernel of your own.

        @register_tangent(double)
        def doubled(function, values, tangents, options):
            return function(*values), 2 * tangents[0]

    The rule is called only if at least one of the tangents is not None.

    Raises    ValueError if one of them has a rule already, or is not a function that can have one

    >>> cube = np.frompyfunc(lambda x: x**3, 1, 1)
    >>> @register_tangent(cube)
    ... def cubed(function, values, tangents, options):
    ...     return function(*values), 3 * values[0] ** 2 * tangents[0]
    """
    return op(*functions).jvp


def vjpOf(function: ArrayFunction) -> Vjp | None:
    """The gradient that a function declares, bound to its arguments' names; None without one."""
    rule = VJPS.get(function)
    if rule is None:
        rule = declaredVjp(function)
        if rule is not None:
            VJPS[function] = rule
    return rule


def declaredVjp(function: ArrayFunction) -> Vjp | None:
    """Bind the gradient that a function declares."""
    for what in ("vjp", "multilinear", "adjoint"):
        rule = declared(function, what)
        if rule is not None:
            return bound(function, rule)
    at = declared(function, "moves")
    return None if at is None else moving(function, at)


def jvpOf(function: ArrayFunction) -> Jvp | None:
    """Return the tangent rule of a function: the declared one, or the function itself if it is linear."""
    rule = declared(function, "jvp")
    if rule is None and declared(function, "multilinear") is not None or rule == MULTILINEAR:
        return multilinearJvp
    if rule is None and declared(function, "adjoint") is not None or rule == ITSELF:
        return itself(drop=declared(function, "additive") or ())
    at = declared(function, "moves")
    return itself(at) if rule is None and at is not None else rule


def simplerCall(function: ArrayFunction, rule: Callable[..., Any], arguments: tuple, options: Mapping[str, Any]) -> Any:
    """Call the composition of a function; NotImplemented if an option that changes the result is not one of its own."""
    names = parametersOf(rule)
    known = {name: option for name, option in options.items() if name in names}
    lost = [name for name, option in options.items() if name not in names and not isDefault(function, name, option)]
    isOpen = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
    return NotImplemented if lost and not isOpen else rule(*arguments, **(options if isOpen else known))


def itself(at: int = 0, drop: tuple[str, ...] = ()) -> Jvp:
    """The tangent of a function that is linear in one argument: the function of that argument's tangent."""

    def rule(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[AnyArray, AnyArray]:
        alone(function, tangents, at)
        kept = {name: option for name, option in options.items() if name not in drop}
        return function(*values, **options), function(*values[:at], tangents[at], *values[at + 1 :], **kept)

    return rule


def multilinearJvp(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of a multilinear function: for each array with a tangent, the function of that tangent; summed."""
    terms = [function(*values[:i], t, *values[i + 1 :], **options) for i, t in enumerate(tangents) if t is not None]
    return function(*values, **options), combine(terms)


def moving(function: ArrayFunction, at: int) -> Vjp:
    """The gradient of a function that only moves elements of argument `at`."""

    def rule(g: AnyArray, y: AnyArray, arguments: tuple, options: dict, needs: tuple) -> tuple[AnyArray | None, ...]:
        return movedBack(function, g, y, arguments, options, at)

    rule.reads = None  # type: ignore[attr-defined]  # every option belongs to the move
    return rule


def bound(function: ArrayFunction, rule: Callable) -> Vjp:
    """Call a rule with arguments by name, whether the call passed them by position or by name."""
    wanted = tuple(inspect.signature(rule).parameters)[2:]
    if wanted == RAW:
        return rule
    names = namesOf(function)

    def call(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> tuple[AnyArray | None, ...]:
        byName = {**dict(zip(names, arguments)), **options}
        grads = rule(g, y, **{name: byName[name] for name in wanted if name in byName})
        return tuple(grads) if type(grads) is tuple else (grads,) + (None,) * (len(arguments) - 1)

    call.reads = {*wanted, *(names if hasattr(function, "reference") else HARMLESS)}  # type: ignore[attr-defined]
    return call


def namesOf(function: ArrayFunction) -> tuple[str, ...]:
    """The names of a function's arguments, in order."""
    known = NAMES.get(function)
    if known is None:
        known = NAMES[function] = tuple(parametersOf(function))
    return known


@cache
def parametersOf(function: ArrayFunction) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; none where it does not tell."""
    try:
        return dict(inspect.signature(getattr(function, "reference", function)).parameters)
    except (TypeError, ValueError):  # a ufunc, or something else written in C
        return {}


def refused(function: ArrayFunction, rule: Vjp, arguments: tuple, options: Mapping[str, object]) -> str:
    """The options of a call that change the result and that its rule does not support, for a message; usually none."""
    reads = getattr(rule, "reads", PLAIN)
    if reads is None:
        return ""
    byName = {**dict(zip(namesOf(function), arguments)), **options} if hasattr(rule, "reads") else options
    return ", ".join([f"{k}={v!r:.40}" for k, v in byName.items() if k not in reads and not isDefault(function, k, v)])


def isDefault(function: ArrayFunction, name: str, value: object) -> bool:
    """True if an option has its default value."""
    if isLeftOut(value):
        return True
    if isinstance(function, np.ufunc):
        return value is True
    parameter = parametersOf(function).get(name)
    return parameter is not None and type(value) is type(parameter.default) and value == parameter.default


def positioned(
    function: ArrayFunction, arguments: tuple, options: dict[str, Any], isVariable: Callable[[object], bool]
) -> tuple[tuple, dict[str, Any]]:
    """Return the positional arguments and options of a call, with Variables passed by name moved to their positions."""
    late = [k for k, v in options.items() if k != "out" and holds(v, isVariable)]
    if not late:
        return arguments, options
    names = namesOf(function)
    if not set(late) <= set(names):
        raise AutoDiffException(f"{function.__name__}: a Variable cannot be given as {', '.join(late)}")
    options, placed = dict(options), list(arguments)
    parameters = parametersOf(function)
    for name in names[len(arguments) : 1 + max(map(names.index, late))]:
        parameter = parameters.get(name)
        isLost = parameter is None and name not in options
        if isLost or parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            raise AutoDiffException(f"{function.__name__}: a Variable cannot be given as {', '.join(late)}")
        placed.append(options.pop(name) if name in options else parameter.default)  # type: ignore[union-attr]
    return tuple(placed), options


def holds(value: Any, isVariable: Callable[[object], bool]) -> bool:
    """True if a value is a Variable, or a sequence with one inside."""
    return isVariable(value) or type(value) in (list, tuple) and any(holds(v, isVariable) for v in value)
