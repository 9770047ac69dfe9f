"""Dual: a value and its tangent, in place of an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from puregraph.autodiff.derivatives.declarations import jvpOf, simplerCall
from puregraph.autodiff.derivatives.ufuncs import throughFormulas
from puregraph.autodiff.functionalcall import Pure
from puregraph.core.errors import AutoDiffException
from puregraph.core.tracer import Tracer, changingAs, method
from puregraph.graph.module import Module
from puregraph.ops.formula.interpreter import Interpreter
from puregraph.ops.fourier.complexpair import ComplexPair, complexRefusal
from puregraph.ops.kernel import REFERENCE
from puregraph.ops.operation import declared
from puregraph.ops.tangents import changes, nameOf

if TYPE_CHECKING:
    from puregraph.core.rules import ArrayFunction


class Dual(Tracer):
    """x + t e with e e = 0: an array and the direction in which it changes.

    Functions of Duals return Duals, by their tangent rules. A `tangent` of None means zero. A Dual may be written to by
    index, as `y[key] = x`, unless it is a view of another. Nested `jvp` calls have different levels; Duals of a higher
    `level` contain those of lower ones.

    >>> y = np.sin(Dual(np.zeros(2), np.ones(2)))
    >>> y.value, y.tangent
    (array([0., 0.]), array([1., 1.]))
    """

    __slots__ = ("level", "owns", "tangent", "value")
    __hash__ = None  # type: ignore[assignment]  # equality is that of arrays

    def __init__(self, value: Any, tangent: Any = None, level: int = 0):
        self.value, self.tangent, self.level = value, tangent, level
        self.owns = False  # True if no other Dual shares the tangent

    @property
    def carrier(self) -> Any:
        return self.value

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def base(self) -> Any:
        return self.value.base

    def handle(self, function: Callable[..., Any], arguments: tuple, options: dict[str, Any]) -> Any:
        pair = next((a for a in arguments if isinstance(a, ComplexPair)), None)
        if pair is not None:  # which has Duals as its parts
            return pair.handle(function, arguments, options)
        level = max(levels((arguments, *options.values())))
        if isinstance(function, Module):
            return Pure(function, arguments).call(arguments, lambda x: Dual(x, None, level))
        values, tangents = part(arguments, level)
        out = options.pop("out", None)
        settings, named = part(tuple(options.values()), level)
        wrong = [name for name, t in zip(options, named) if t is not None]
        if wrong:
            raise AutoDiffException(f"forward mode wants {', '.join(wrong)} of {function.__name__} by position")
        result, tangent = push(function, values, tangents, dict(zip(options, settings)))
        isComplex = isinstance(result, (np.ndarray, np.generic)) and result.dtype.kind == "c"
        if isComplex and changes(tangents) and not declared(function, "constant"):
            raise complexRefusal(nameOf(function))
        dual = whole(result, tangent, level)
        return dual if out is None else write(dual, out[0] if type(out) is tuple else out)

    def changingAs(self, x: Any) -> Dual:
        """Return the value of this Dual with the tangent of another one of its level, or with none."""
        other = x if isDual(x, self.level) else None
        value, tangent = (None, None) if other is None else (other.value, other.tangent)
        return Dual(changingAs(self.value, value), tangent, self.level)

    def __setitem__(self, key: Any, new: Any) -> None:
        if self.value.base is not None:
            raise AutoDiffException("forward mode can write to a whole array by index, not to a view of another")
        value, tangent = (new.value, new.tangent) if isDual(new, self.level) else (new, None)
        if tangent is None and self.tangent is None:
            self.value[key] = value
            return
        if not self.owns:
            self.tangent = np.zeros_like(self.value) if self.tangent is None else self.tangent.copy()
            self.owns = True
        self.value[key] = value
        self.tangent[key] = 0 if tangent is None else tangent

    def flatten(self) -> Any:
        return self.reshape(-1)

    def refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise AutoDiffException(
            "a value that is being differentiated does not become an array, a number or a list: "
            "use numpy's functions on it, which keep its tangent"
        )

    __array__ = __float__ = __complex__ = item = tolist = refuse

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.tangent!r})"

    __eq__ = method(np.equal)
    __ne__ = method(np.not_equal)
    sort = method(np.sort)
    cumprod = method(np.cumprod)
    nonzero = method(np.nonzero)


def push(function: ArrayFunction, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Compute a function's result and its tangent; None if the result is constant.

    Raises    AutoDiffException for a function without a tangent rule
    """
    if not changes(tangents) or declared(function, "constant"):
        return function(*values, **options), None
    simpler = declared(function, "composed")
    if simpler is not None:
        result = throughDuals(partial(simplerCall, function, simpler), values, tangents, options)
        if result is not None:
            return result
    rule: Any = throughFormulas if isinstance(function, Interpreter) else jvpOf(function)
    if rule is REFERENCE:
        rule = throughReference
    if rule is not None:
        return rule(function, values, tangents, options)
    if isinstance(function, np.ufunc):
        result = function(*values, **options)
        if all(y.dtype.kind != "f" for y in (result if type(result) is tuple else (result,))):
            return result, None  # comparisons and the like do not change
    raise AutoDiffException(
        f"forward mode knows no tangent of {nameOf(function)}: write the rule in functions of numpy that it knows, "
        "or register one with @register_tangent(...)"
    )


def isDual(x: object, level: int) -> bool:
    """True for a Dual of this level; Duals of lower levels are plain values here."""
    return isinstance(x, Dual) and x.level == level


def levels(values: Any) -> list[int]:
    """Collect the levels of all Duals in values, also in lists and tuples."""
    collected = []
    for x in values:
        if isinstance(x, Dual):
            collected.append(x.level)
        elif type(x) in (list, tuple):
            collected += levels(x)
    return collected


def part(arguments: Any, level: int) -> tuple[list, list]:
    """Split arguments into a list of values and a list of tangents."""
    values: list[Any] = []
    tangents: list[Any] = []
    for x in arguments:
        if isinstance(x, ComplexPair):
            (real, imag), changes = part((x.real, x.imag), level)
            values.append(ComplexPair(real, imag))
            tangents.append(changes)
        elif isDual(x, level):
            values.append(x.value)
            tangents.append(x.tangent)
        elif type(x) in (list, tuple) and levels(x):
            inner, changes = part(x, level)
            values.append(type(x)(inner))
            tangents.append(changes)
        else:
            values.append(x)
            tangents.append(None)
    return values, tangents


def whole(result: Any, tangent: Any, level: int) -> Any:
    """Pair results with their tangents as Duals; values without floats are returned unchanged."""
    if type(result) in (tuple, list):
        changes = [None] * len(result) if tangent is None else tangent
        return type(result)([whole(y, t, level) for y, t in zip(result, changes)])
    if isinstance(result, ComplexPair):
        changes = [None, None] if tangent is None else tangent
        parts = zip((result.real, result.imag), changes)
        return ComplexPair(*[whole(y, t, level) for y, t in parts])
    kind = getattr(getattr(result, "dtype", None), "kind", None)
    return Dual(result, tangent, level) if kind == "f" else result


def write(result: Any, out: Any) -> Any:
    """Write a result into its `out` array; a Dual takes the tangent too."""
    value = result.value if isinstance(result, Dual) else result
    target = out.value if isinstance(out, Dual) else out
    target[...] = value
    tangent = result.tangent if isinstance(result, Dual) else None
    if isinstance(out, Dual):
        out.tangent, out.owns = tangent, False
        return out
    return Dual(target, tangent, result.level) if isinstance(result, Dual) else target


def throughDuals(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any] | None:
    """Run a function on Duals of these values and tangents; None if it gives NotImplemented."""
    level = max([0, *(known + 1 for known in levels(values))])
    result = function(dualsOf(values, tangents, level), options)
    if result is NotImplemented:
        return None
    (y,), (t,) = part((result,), level)
    return y, t


def dualsOf(values: Any, tangents: Any, level: int) -> tuple:
    """Values and tangents as Duals, those in lists, too."""
    return tuple(
        [
            type(x)(dualsOf(x, t, level)) if type(t) is list else x if t is None else Dual(x, t, level)
            for x, t in zip(values, tangents)
        ]
    )


def throughReference(function: Any, values: list, tangents: list, options: dict) -> tuple[Any, Any]:
    """Run the kernel's numpy reference on Duals; its functions have tangents."""
    pair: Any = throughDuals(lambda duals, known: function.reference(*duals, **known), values, tangents, options)
    y, t = pair
    return tuple(y), [None] * len(y) if t is None else t
