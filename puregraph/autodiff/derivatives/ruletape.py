"""RuleTape: the gradient of a rule written in numpy, by running the rule again and going back over its calls.

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

The rule and its gradient run on whatever arrays they are given: those of numpy and CuPy, the tracers of a compiled
step (which merges the second forward pass with the first), Variables and Duals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.autodiff.derivatives.declarations import positioned, refused, vjpOf
from puregraph.autodiff.derivatives.ufuncs import pullbackOf
from puregraph.core.accumulate import differentiable, isArray, shapeOf
from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import Tracer, method
from puregraph.ops.operation import declared
from puregraph.ops.reduction.reference import fit

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction


class RuleValue(Tracer):
    """A value of a rule: an array, and its number on the tape; None if no gradient comes back to it."""

    __slots__ = ("number", "tape", "value")

    def __init__(self, tape: RuleTape, value: Any, number: int | None = None):
        self.tape, self.value, self.number = tape, value, number

    @property
    def carrier(self) -> Any:
        return self.value

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return shapeOf(self.value)

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def strides(self) -> Any:
        return self.value.strides

    def __bool__(self) -> bool:
        return bool(self.value)

    __eq__ = method(np.equal)
    __ne__ = method(np.not_equal)
    __hash__ = object.__hash__

    def handle(self, function: ArrayFunction, arguments: tuple, options: dict[str, Any]) -> Any:
        return self.tape.call(function, arguments, options)


class RuleTape:
    """The calls of one run of a rule, each with its gradient rule, arguments, options, result and numbers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple, dict[str, Any], Any, list[int | None]]] = []
        self.count = 0

    def follow(self, value: Any, needed: bool) -> Any:
        """Return a RuleValue for an array; other values are returned unchanged."""
        if not isArray(value):
            return value
        self.count += 1
        return RuleValue(self, value, self.count if needed and differentiable(value) else None)

    def call(self, function: ArrayFunction, arguments: tuple, options: dict[str, Any]) -> Any:
        """Run a function on the arrays, and note the call if a gradient comes back to an argument.

        Raises    AutoDiffException for a function without a known gradient, or an option that its rule does not support
        """
        arguments, options = positioned(function, arguments, options, isRuleValue)
        plain = values(arguments)
        result = function(*plain, **options)
        needs = bool(numbers(arguments)) and not declared(function, "constant")
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        followed = [self.follow(y, needs) for y in results]
        made = [y.number if isRuleValue(y) else None for y in followed]
        if any(number is not None for number in made):
            rule = vjpOf(function) or pullbackOf(function)
            lost = "this function" if rule is None else refused(function, rule, plain, options)
            if rule is None or lost:
                raise AutoDiffException(f"no gradient is known for {getattr(function, '__name__', function)}: {lost}")
            self.calls.append((rule, arguments, options, result, made))
        return tuple(followed) if isinstance(result, (tuple, list)) else followed[0]

    def back(self, results: list[Any], grads: list[Any]) -> dict[int, Any]:
        """Run backward from the gradients of the results. Returns the gradients of values by number."""
        total: dict[int, Any] = {}
        for y, g in zip(results, grads):
            if isRuleValue(y) and y.number is not None and g is not None:
                add(total, y, g)
        for rule, arguments, options, result, made in reversed(self.calls):
            parts = [None if number is None else total.get(number) for number in made]
            if all(g is None for g in parts):
                continue
            isSeveral = isinstance(result, (tuple, list))
            needs = tuple([bool(numbers((a,))) for a in arguments])
            grad, y = (tuple(parts), tuple(result)) if isSeveral else (parts[0], result)
            spread(total, arguments, rule(grad, y, values(arguments), options, needs))
        return total


def derivedGrad(rule: Callable[..., Any], grad: Any, arguments: tuple, needs: tuple[bool, ...]) -> tuple:
    """The gradient of each argument of a rule that needs one; None for others. Hidden outputs have no gradient.

    `arguments` are those of the rule, one for each of `needs`; whatever follows them is ignored.

    Raises    AutoDiffException if the rule calls a function whose gradient is not known
    """
    tape = RuleTape()
    followed = [tape.follow(a, needed) for a, needed in zip(arguments, needs)]
    result = rule(*followed)
    results = list(result) if type(result) is tuple else [result]
    total = tape.back(results, list(grad) if isinstance(grad, (list, tuple)) else [grad])
    grads = [total.get(x.number) if isRuleValue(x) and x.number is not None else None for x in followed]
    return tuple([zerosFor(x) if g is None and needed else g for x, g, needed in zip(arguments, grads, needs)])


def zerosFor(x: Any) -> Any:
    """The gradient of an argument that the result does not depend on."""
    return np.zeros_like(x)


def isRuleValue(value: object) -> bool:
    """True if a value is one of a RuleTape."""
    return isinstance(value, RuleValue)


def values(arguments: Any) -> Any:
    """Arguments with arrays in place of RuleValues."""
    if isinstance(arguments, RuleValue):
        return arguments.value
    return type(arguments)(map(values, arguments)) if type(arguments) in (tuple, list) else arguments


def numbers(arguments: Any) -> list[int]:
    """Return the numbers of all RuleValues among arguments that get a gradient."""
    if isinstance(arguments, RuleValue):
        return [] if arguments.number is None else [arguments.number]
    return [n for a in arguments for n in numbers(a)] if type(arguments) in (tuple, list) else []


def spread(total: dict[int, Any], arguments: Any, grads: Any) -> None:
    """Add the gradients of arguments, lists among them, to the totals."""
    for a, g in zip(arguments, grads):
        if g is None:
            continue
        if type(a) in (tuple, list):
            spread(total, a, g)
        elif isinstance(a, RuleValue) and a.number is not None:
            add(total, a, g)


def add(total: dict[int, Any], x: RuleValue, grad: Any) -> None:
    """Add a gradient to the total of a value, in its shape and dtype."""
    grad = fit(grad, x.value)
    grad = grad if grad.dtype == x.dtype else grad.astype(x.dtype)
    before = total.get(x.number)  # type: ignore[arg-type]
    total[x.number] = grad if before is None else before + grad  # type: ignore[index]
