"""The table of derivatives: for each function of numpy and each Kernel its gradient, its tangent, or both at once.

    @vjp(f)          rule(g, y, *arguments as f names them) -> one gradient per argument, None where there is none
    @jvp(f)          rule(function, values, tangents, options) -> (result, its tangent)
    @linear(f)       f is linear in one argument: the rule is its adjoint, which is its gradient; f is its own tangent
    @multilinear(f)  f is linear in each array: the rule gives the gradients, the tangent is the sum over the arrays
    moves(f)         f only moves elements: the gradient follows from where it moves their positions
    constant(f)      f has no derivative

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

from puregraph.autodiff.derivatives.writes import putAt
from puregraph.core.accumulate import combine
from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import dataOf
from puregraph.ops.kernel import declared, needReached

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction

Vjp = Callable[[Any, Any, tuple, dict, tuple], Any]
Jvp = Callable[[Any, list, list, dict], tuple[Any, Any]]
VJPS: dict[ArrayFunction, Vjp] = {}
JVPS: dict[ArrayFunction, Jvp] = {}
CONSTANT: set[ArrayFunction] = set()
WRITING = {np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal}
FRESH = {np.zeros_like, np.ones_like, np.empty_like}  # of the constant ones: to be written into
NAMES = {  # of arguments, where a function's signature does not tell
    operator.getitem: ("x", "key"),
    np.concatenate: ("arrays", "axis"),
    np.where: ("condition", "x", "y"),
    **dict.fromkeys((np.dot, np.inner, np.vdot), ("a", "b")),
}
LEFTOUT = inspect.signature(np.sum).parameters["initial"].default  # numpy's mark of an option that was not given
HARMLESS = {"keepdims", "dtype", "out"}  # the result says it all
PLAIN = {*HARMLESS, "axis", "order", "casting", "subok", "copy", "optimize"}  # of rules that take a call as it is
RAW = ("arguments", "options", "needs")  # what a rule names that takes a call as it is


def vjp(*functions: ArrayFunction) -> Callable[[Callable], Callable]:
    """Register the gradient of functions, as `rule(g, y, *arguments)` or `rule(g, y, arguments, options, needs)`."""

    needReached("gradient", functions, VJPS)

    def keep(rule: Callable) -> Callable:
        for function in functions:
            VJPS[function] = bound(function, rule)
        return rule

    return keep


def jvp(*functions: ArrayFunction) -> Callable[[Jvp], Jvp]:
    """Say how a tangent goes through functions of numpy, or through a Kernel of your own.

        @register_tangent(double)
        def doubled(function, values, tangents, options):
            return function(*values), 2 * tangents[0]

    The rule is asked only if at least one of the tangents is there.

    Raises    ValueError if one of them has a rule, or is no function that a rule would be asked for

    >>> cube = np.frompyfunc(lambda x: x**3, 1, 1)
    >>> @register_tangent(cube)
    ... def cubed(function, values, tangents, options):
    ...     return function(*values), 3 * values[0] ** 2 * tangents[0]
    """

    def keep(rule: Jvp) -> Jvp:
        needReached("tangent rule", functions, JVPS)
        JVPS.update(dict.fromkeys(functions, rule))
        return rule

    return keep


def linear(*functions: ArrayFunction, at: int = 0, drop: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Register the adjoint of functions that are linear in argument `at`; the options of `drop` only add constants."""

    def keep(adjoint: Callable) -> Callable:
        jvp(*functions)(itself(at, drop))
        return vjp(*functions)(adjoint)

    return keep


def vjpOf(function: ArrayFunction) -> Vjp | None:
    """The gradient of a function: of the table, or what a Kernel declares."""
    return VJPS.get(function) or declaredVjp(function)


@cache
def declaredVjp(function: ArrayFunction) -> Vjp | None:
    """The gradient that a Kernel declares, if it does."""
    rules = [declared(function, what) for what in ("vjp", "multilinear", "adjoint")]
    return next((bound(function, rule) for rule in rules if rule is not None), None)


def jvpOf(function: ArrayFunction) -> Jvp | None:
    """The tangent of a function: of the table, or what a Kernel declares; itself where that is its adjoint."""
    rule = JVPS.get(function) or declared(function, "jvp")
    if rule is None and declared(function, "multilinear") is not None:
        return multilinearJvp
    return itself() if rule is None and declared(function, "adjoint") is not None else rule


def itself(at: int = 0, drop: tuple[str, ...] = ()) -> Jvp:
    """The tangent of a function that is linear in one argument: the function of that argument's tangent."""

    def rule(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
        alone(function, tangents, at)
        rest = {name: option for name, option in options.items() if name not in drop}
        return function(*values, **options), function(*values[:at], tangents[at], *values[at + 1 :], **rest)

    return rule


def multilinear(*functions: ArrayFunction) -> Callable[[Callable], Callable]:
    """Register the gradients of functions that are linear in each of their arrays."""

    def keep(rule: Callable) -> Callable:
        jvp(*functions)(multilinearJvp)
        return vjp(*functions)(rule)

    return keep


def multilinearJvp(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """The tangent of a multilinear function: for each array with a tangent, the function of that tangent; summed."""
    terms = [function(*values[:i], t, *values[i + 1 :], **options) for i, t in enumerate(tangents) if t is not None]
    return function(*values, **options), combine(terms)


def moves(*functions: ArrayFunction, at: int = 0) -> None:
    """Register functions that only move elements of argument `at`, some of them to several positions or to none."""
    jvp(*functions)(itself(at))
    needReached("gradient", functions, VJPS)
    for function in functions:
        VJPS[function] = movedBack(function, at)


def movedBack(function: ArrayFunction, at: int) -> Vjp:
    """The gradient of a function that only moves elements: added to the positions that they came from."""

    def rule(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
        x = dataOf(arguments[at])
        positions = np.cumsum(np.ones_like(x, dtype=np.intp)).reshape(x.shape) - 1  # where x is, on a GPU too
        read = function(*arguments[:at], positions, *arguments[at + 1 :], **options)
        pairs = zip(g, read) if type(y) is tuple else [(g, read)]
        placed = [putAt(part, (dataOf(p),), (x.size,)) for part, p in pairs if part is not None]
        return (*[None] * at, combine(placed).reshape(x.shape), *[None] * (len(arguments) - at - 1))

    rule.reads = None  # type: ignore[attr-defined]  # every option belongs to the move
    return rule


def constant(*functions: ArrayFunction) -> None:
    """Register functions that have no derivative, whatever their arguments are."""
    needReached("derivative", functions, CONSTANT)
    CONSTANT.update(functions)


def bound(function: ArrayFunction, rule: Callable) -> Vjp:
    """Call a rule with arguments by name, whether the call passed them by position or by name."""
    wanted = tuple(inspect.signature(rule).parameters)[2:]
    if wanted == RAW:
        return rule
    names = namesOf(function)

    def call(g: Any, y: Any, arguments: tuple, options: dict, needs: tuple) -> Any:
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


def refused(function: ArrayFunction, rule: Vjp, arguments: tuple, options: dict[str, Any]) -> str:
    """The options of a call that change the result and that its rule does not support, for a message; usually none."""
    reads = getattr(rule, "reads", PLAIN)
    if reads is None:
        return ""
    byName = {**dict(zip(namesOf(function), arguments)), **options} if hasattr(rule, "reads") else options
    return ", ".join([f"{k}={v!r:.40}" for k, v in byName.items() if k not in reads and not isDefault(function, k, v)])


def isDefault(function: ArrayFunction, name: str, value: Any) -> bool:
    """True if an option has its default value."""
    if isLeftOut(value):
        return True
    if isinstance(function, np.ufunc):
        return value is True
    parameter = parametersOf(function).get(name)
    return parameter is not None and type(value) is type(parameter.default) and value == parameter.default


def isLeftOut(value: object) -> bool:
    """True if an option was left out."""
    return value is None or value is LEFTOUT


def positioned(
    function: ArrayFunction, arguments: tuple, options: dict[str, Any], isVariable: Callable[[object], bool]
) -> tuple[tuple, dict[str, Any]]:
    """A call with its Variables given by position, whatever it was that the caller gave by name."""
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


def nameOf(function: ArrayFunction) -> str:
    """A function as a message names it."""
    owner = getattr(function, "__self__", None)
    inside = f"{owner.__name__}." if isinstance(owner, np.ufunc) else ""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.removesuffix('.core').split('._')[0]}.{inside}{getattr(function, '__name__', function)}"


def changes(tangents: object) -> bool:
    """True if there is any tangent."""
    if isinstance(tangents, (list, tuple)):
        return any(map(changes, tangents))
    return tangents is not None


def refuse(function: ArrayFunction, options: dict, *names: str) -> None:
    """Raise    AutoDiffException for an option that a rule would drop; one of None or True is none."""
    for name in names:
        value = options.get(name)
        if not (isLeftOut(value) or value is True):
            raise AutoDiffException(f"forward mode knows no tangent of {nameOf(function)} with {name}={value!r:.40}")


def alone(function: ArrayFunction, tangents: list, *positions: int) -> None:
    """Raise    AutoDiffException where an argument moves that a rule takes for a constant."""
    moving = [i for i, t in enumerate(tangents) if changes(t) and i not in positions]
    if moving:
        raise AutoDiffException(
            f"forward mode knows no tangent of {nameOf(function)} along its argument {moving[0]}, only along "
            f"{', '.join(map(str, positions))}"
        )
