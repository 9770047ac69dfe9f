"""Arguments: the requirements on arguments of constructors and functions, checked before these run.

Constructors of modules declare them by annotations, everything else by a decorator:

    def __init__(self, p: Probability = 0.5, k: Count | None = None, mode: Annotated[str, choice("a", "b")] = "a"):

    @takes(patience=Size, monitor=Text)
    def __init__(self, monitor: str = "val loss", patience: int = 5):

A subclass that calls `super().__init__` with such an argument is checked as well.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from puregraph.core.base.keywords import refuseKeyword
from puregraph.core.errors import ArgumentError, Fault, PuregraphError, ShapeError, SizeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

WINDOW_SIZE_LIMIT = 1 << 31  # exclusive bound of window sizes, so that products fit in 64 bits
F = TypeVar("F", bound=Callable[..., Any])


class Argument:
    """The requirement on an argument: its words, a test, and the error and hint for other values."""

    def __init__(
        self, wanted: str, holds: Callable[[Any], bool], error: type[PuregraphError] = ArgumentError, hint: str = ""
    ):
        self.wanted, self.holds, self.error, self.hint = wanted, holds, error, hint

    def check(self, owner: str, name: str, value: object, hint: str = "") -> None:
        """Refuse a value that fails the test.

        Raises    ArgumentError, or ShapeError for a size
        """
        if not self.holds(value):
            if isinstance(value, type):
                hint = f"make one: {value.__name__}(...)"
            fault = Fault(f"{name} as {self.wanted}", f"{value!r:.200}", hint or self.hint, module=owner)
            raise self.error(fault) if issubclass(self.error, ShapeError) else self.error(str(fault))

    def __or__(self, other: None) -> Argument:
        """The same requirement, or None: `Count | None`."""
        if other is not None:
            return NotImplemented
        return Argument(
            f"{self.wanted}, or None", lambda value: value is None or self.holds(value), self.error, self.hint
        )

    def __repr__(self) -> str:
        return self.wanted


def isWhole(value: object, least: int) -> bool:
    """True for a whole number of at least `least`."""
    isInteger = type(value) is int or isinstance(value, Integral) and not isinstance(value, bool)  # ABCs are slow
    return isInteger and int(value) >= least  # type: ignore[call-overload]


def areWhole(value: object, least: int = 1 - WINDOW_SIZE_LIMIT) -> bool:
    """True for a tuple or list of whole numbers, each at least `least` and small enough for numpy."""
    return isinstance(value, (tuple, list)) and all(isWhole(n, least) and n < WINDOW_SIZE_LIMIT for n in value)


def isNumber(value: object) -> bool:
    """True for a single finite number."""
    isReal = type(value) in (int, float) or isinstance(value, Real) and not isinstance(value, bool)
    return isReal and math.isfinite(value)  # type: ignore[arg-type]


def isSpan(value: object) -> bool:
    """True for two finite numbers, the first of which is not the larger."""
    isPair = isinstance(value, (tuple, list)) and len(value) == 2 and all(map(isNumber, value))
    return isPair and value[0] <= value[1]  # type: ignore[index]


def isType(value: Any) -> bool:
    """True if numpy knows this dtype; None, which numpy reads as float64, is refused."""
    try:
        return value is not None and bool(np.dtype(value).itemsize)
    except (TypeError, ValueError):
        return False


def isPath(value: object) -> bool:
    """True for a valid path, without NUL characters."""
    return isinstance(value, (str, os.PathLike)) and "\0" not in os.fsdecode(value)


if TYPE_CHECKING:
    # To a type checker a requirement is the type of the values that it accepts.
    Flag: TypeAlias = bool
    Number: TypeAlias = float
    NotNegative: TypeAlias = float
    Positive: TypeAlias = float
    Scalar: TypeAlias = float
    Fraction: TypeAlias = float
    Probability: TypeAlias = float
    AnyFunction: TypeAlias = Callable[..., Any]
    ModuleLike: TypeAlias = Any
    GraphLike: TypeAlias = Any
    Optimizers: TypeAlias = Any
    OptimizerLike: TypeAlias = Any
    Dtype: TypeAlias = DTypeLike
    Types: TypeAlias = Sequence[DTypeLike]
    Shapes: TypeAlias = list[Any]
    FilePath: TypeAlias = str | os.PathLike[str]
    FileSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview
    Text: TypeAlias = str
    Texts: TypeAlias = str | Sequence[str]
    Whole: TypeAlias = int
    Items: TypeAlias = Sequence[Any]
    Span: TypeAlias = float | Sequence[float]
    Axes: TypeAlias = Sequence[int]
    Wholes: TypeAlias = Sequence[int]
    Counts: TypeAlias = Sequence[int]
    Pairs: TypeAlias = Sequence[Sequence[int]]
    Bytes: TypeAlias = int
    Size: TypeAlias = int
    Count: TypeAlias = int
else:
    Flag = Argument("True or False", lambda value: isinstance(value, (bool, np.bool_)))
    Number = Argument("a finite number", isNumber)
    NotNegative = Argument("a finite number of at least 0", lambda value: isNumber(value) and value >= 0)
    Positive = Argument("a finite number above 0", lambda value: isNumber(value) and value > 0)
    Scalar = Argument("a number", lambda value: isNumber(value) or isinstance(value, Real) and math.isinf(value))
    Fraction = Argument("a number from 0 to 1", lambda value: isNumber(value) and 0 <= value <= 1)
    Probability = Argument("a probability with 0 <= p < 1", lambda value: isNumber(value) and 0 <= value < 1)
    AnyFunction = Argument("a function", lambda value: callable(value) and not isinstance(value, type))
    ModuleLike = Argument(
        "a module, such as Linear(3, 4)", lambda value: not isinstance(value, type) and hasattr(value, "dataShapeFrom")
    )
    GraphLike = Argument("a graph", lambda value: not isinstance(value, type) and getattr(value, "isGraph", False))
    Optimizers = Argument(
        "an optimizer, such as Adam(), or a dict of several",
        lambda value: not isinstance(value, type) and (hasattr(value, "setupOn") or isinstance(value, dict)),
    )
    OptimizerLike = Argument(
        "an optimizer, such as Adam()", lambda value: not isinstance(value, type) and hasattr(value, "setupOn")
    )
    Dtype = Argument(
        "a dtype of numbers, such as np.float32",
        lambda value: isType(value) and (np.dtype(value).kind in "fiub" or np.dtype(value).name == "bfloat16"),
    )
    Types = Argument(
        "a list of dtypes, one for each input",
        lambda value: isinstance(value, (tuple, list)) and all(map(Dtype.holds, value)),
    )
    Shapes = Argument(
        "a list of shapes, one for each input",
        lambda value: isinstance(value, list) and all(isinstance(shape, (tuple, list)) for shape in value),
    )
    FilePath = Argument("a path", lambda value: isPath(value))
    FileSource = Argument(
        "a path, or the bytes of a file",
        lambda value: isPath(value) or isinstance(value, (bytes, bytearray, memoryview)),
    )
    Text = Argument("a text", lambda value: isinstance(value, str))
    Texts = Argument(
        "a text, or a tuple of texts",
        lambda value: all(isinstance(text, str) for text in (value if isinstance(value, (tuple, list)) else (value,))),
    )
    Whole = Argument(
        "a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool), ShapeError
    )
    Span = Argument("a number, or two numbers (low, high)", lambda value: isNumber(value) or isSpan(value))
    Items = Argument("a tuple or a list", lambda value: isinstance(value, (tuple, list)), ShapeError)
    Axes = Argument("a tuple of axes, such as (0, 2, 1)", lambda value: isinstance(value, (tuple, list)), ShapeError)
    Wholes = Argument("a list of whole numbers", lambda value: areWhole(value), ShapeError)
    Counts = Argument("a list of whole numbers from 1 to 2^31 - 1", lambda value: areWhole(value, 1), ShapeError)
    Pairs = Argument(
        "a list of pairs of whole numbers",
        lambda value: isinstance(value, (tuple, list)) and all(areWhole(pair) and len(pair) == 2 for pair in value),
        ShapeError,
    )
    Bytes = Argument("a whole number of bytes of at least 1", lambda value: isWhole(value, 1))
    Size = Argument("a whole number of at least 0", lambda value: isWhole(value, 0), SizeError)
    Count = Argument("a whole number of at least 1", lambda value: isWhole(value, 1), SizeError)


def meets(kind: Any, value: object) -> bool:
    """True if a value satisfies a requirement."""
    return kind.holds(value)


def hinted(kind: Any, hint: str) -> Argument:
    """The same requirement, with a hint."""
    return Argument(kind.wanted, kind.holds, kind.error, hint)


def choice(*values: str) -> Argument:
    """The requirement to be one of these texts."""
    return Argument(f"one of {', '.join(map(repr, values))}", lambda value: isinstance(value, str) and value in values)


def takes(**kinds: Any) -> Callable[[F], F]:
    """Decorate a function to check its arguments by parameter name before it runs.

    @takes(patience=Size, mode=choice("min", "max"))
    """

    def misplaced(kind: Any, value: object, number: int, name: str, later: tuple[str, ...]) -> str:
        """The hint for a wrong value at the position of a flag, text or path: the argument that was probably meant."""
        if kind not in (Flag, Text, FilePath):
            return ""
        if kind is FilePath and isinstance(value, (str, os.PathLike)):
            return "no path has NUL characters"
        fits = [candidate for candidate in later if candidate in kinds and kinds[candidate].holds(value)]
        other = fits[0] if fits and kind is not Flag else ""  # a flag's value may be meant for any argument
        meant = f"did you mean {other}={value!r}?" if other else "give another one by its name"
        return f"argument {number} is {name}: {meant}"

    def decorate(function: F) -> F:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount]
        known = None if code.co_flags & inspect.CO_VARKEYWORDS else (*names, *(function.__kwdefaults__ or ()))
        isMethod, hasTooMany = names[:1] == ("self",), not code.co_flags & inspect.CO_VARARGS
        required = names[isMethod : code.co_argcount - len(function.__defaults__ or ())]
        first = next((i for i, name in enumerate(names) if name in kinds), len(names))

        def check(args: tuple, kwargs: Mapping[str, object]) -> None:
            owner = owners(args)
            for i, (name, value) in enumerate(zip(names, args)):
                kind = kinds.get(name)
                if kind is not None and not kind.holds(value):
                    kind.check(owner, name, value, misplaced(kind, value, i + 1 - isMethod, name, names[i + 1 :]))
            for name, value in kwargs.items():
                if name in kinds:
                    kinds[name].check(owner, name, value)
                elif known is not None and name not in known:
                    refused = owner if function.__name__ == "__init__" else function.__name__
                    refuseKeyword(refused, name, known[isMethod:], type(args[0]) if isMethod and args else None)

        def owners(args: tuple) -> str:
            return type(args[0]).__name__ if isMethod and args else function.__name__

        @functools.wraps(function)
        def checkedFirst(*args: object, **kwargs: object) -> Any:
            if kwargs or len(args) > first:  # otherwise there is nothing to check
                check(args, kwargs)
            try:
                return function(*args, **kwargs)
            except TypeError:
                if hasTooMany and len(args) > len(names):
                    fault = tooMany(
                        type(args[0]).__name__ if isMethod else "", function, names[isMethod:], args[isMethod:]
                    )
                    raise fault from None
                placed = dict(zip(names[isMethod:], args[isMethod:]))
                twice = next((name for name in kwargs if name in placed), None)
                if twice is not None:
                    raise ArgumentError(
                        f"{owners(args)}: wanted {twice} once, got {placed[twice]!r:.60} by position and "
                        f"{twice}={kwargs[twice]!r:.60}"
                    ) from None
                bound = placed | kwargs
                if all(name in bound for name in required):
                    raise
                fault = missing(type(args[0]).__name__ if isMethod and args else "", function, required, bound)
            raise fault

        return checkedFirst  # type: ignore[return-value]

    return decorate


def missing(owner: str, function: Any, required: tuple[str, ...], arguments: Mapping[str, object]) -> ArgumentError:
    """The error for a call without a required argument."""
    isConstructor = function.__name__ == "__init__"
    name = owner if isConstructor else function.__name__
    got = ", ".join(f"{key}={value!r:.40}" for key, value in arguments.items()) or "nothing"
    sizes = (
        "; sizes are never taken from the data" if isConstructor and {"insize", "inmaps", "maps"} & {*required} else ""
    )
    return ArgumentError(f"{name}: wanted {', '.join(required)}, got {got}: write {name}({', '.join(required)}){sizes}")


def tooMany(owner: str, function: Any, names: tuple[str, ...], arguments: tuple[object, ...]) -> ArgumentError:
    """The error for a call with too many positional arguments."""
    name = owner if function.__name__ == "__init__" else function.__name__
    hint = "; several arrays are one argument, a list: [a, b]" if names[:1] == ("data",) else ""
    got = ", ".join(f"{value!r:.40}" for value in arguments)
    return ArgumentError(f"{name}: wanted {', '.join(names) or 'nothing'} by position, got {got}{hint}")


def checked(construct: Any) -> Any:
    """Wrap a constructor to check the arguments annotated with an Argument; without any, return it unchanged."""
    annotations = construct.__annotations__
    for name, kind in annotations.items():  # Annotated[str, choice("min", "max")] holds the Argument beside the type
        annotations[name] = next(
            (item for item in getattr(kind, "__metadata__", ()) if isinstance(item, Argument)), kind
        )
    kinds = {name: kind for name, kind in annotations.items() if isinstance(kind, Argument)}
    return takes(**kinds)(construct) if kinds else construct
