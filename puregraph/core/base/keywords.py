"""Keywords: refuse an unknown constructor argument, and suggest the one that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from puregraph.core.base.attributes import nearest
from puregraph.core.errors import ArgumentError
from puregraph.core.foreign import INSTEAD, KEYWORDS

if TYPE_CHECKING:
    from typing_extensions import Self

GIVESPARAMS = "a Trainer gives an optimizer its parameters, as setupOn(net) does"


@functools.cache
def keywords(cls: type) -> tuple[str, ...] | None:
    """The names of a class's constructor arguments; None if its constructors check them themselves.

    A constructor passes unknown arguments on as `**options`, and supplies the next one's required arguments itself.
    """
    names: list[str] = []
    for base in cls.__mro__:
        if "__init__" not in vars(base) or base is object:
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names += [p.name for p in named if not names or p.default is not p.empty]
        variadic = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        if variadic != ["options"]:
            return None if variadic else tuple(dict.fromkeys(names))
    return None


def checkKeywords(cls: type, arguments: Any) -> None:
    """Refuse an unknown constructor argument.

    Raises    ArgumentError with the name probably meant, and the valid ones
    """
    known = keywords(cls) if arguments else None
    if known is not None:
        for name in arguments:
            if name not in known:
                refuseKeyword(cls.__name__, name, known)


@functools.cache
def positions(cls: Any) -> tuple[str, ...] | None:
    """Return the names of a class's positional constructor arguments; None for any number."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD)


def checkPositions(cls: type, arguments: tuple) -> None:
    """Refuse too many positional arguments, and a number in place of the name, as from a tuple without brackets.

    Raises    ArgumentError with the valid ones
    """
    known = positions(cls)
    if known is None or len(arguments) < 2 or arguments[: len(known)] == arguments and not isNumbered(known, arguments):
        return
    got = ", ".join(f"{value!r:.40}" for value in arguments)
    isShape = all(isinstance(value, int) for value in arguments)
    hint = f"; several sizes or axes are one tuple: {cls.__name__}(({got}))" if isShape else ""
    hint += f"; {GIVESPARAMS}" * (hasattr(cls, "setupOn") and holdsParams(arguments[0]))
    raise ArgumentError(f"{cls.__name__}: wanted {', '.join(known) or 'nothing'} by position, got {got}{hint}")


def holdsParams(value: object) -> bool:
    """True for a network or parameters, as other frameworks' optimizers take."""
    return hasattr(value, "params") or isinstance(value, (dict, list, tuple)) or type(value).__name__ == "dict_values"


def isNumbered(known: tuple[str, ...], arguments: tuple) -> bool:
    """True if a number is passed in the position of the name."""
    return "name" in known[: len(arguments)] and isinstance(arguments[known.index("name")], int)


def refuseKeyword(owner: str, name: str, known: Iterable[str], maker: type | None = None) -> None:
    """Refuse an unknown argument; `maker` is a class whose constructor may have it.

    Raises    ArgumentError with the name that was probably meant, and the valid names
    """
    hint = "valid"
    other = similar(name, known)
    if not other and name in INSTEAD:
        hint = f"{INSTEAD[name]}. Valid"
    elif other:
        hint = f"did you mean {other}? Valid"
    elif maker is not None and (other := similar(name, keywords(maker) or ())):
        hint = f"{other} is an argument of {maker.__name__}(...). Valid"
    names = ", ".join(known) or "none"
    raise ArgumentError(f"{owner}: there is no argument {name}; {hint} arguments: {names}")


def similar(name: str, known: Iterable[str]) -> str:
    """Return the argument that a misspelt or foreign name stands for; empty if there is none."""
    words = (name, *KEYWORDS.get(name, ()))
    return next((word for word in words if word in known), "") or nearest(name, known)


class ChecksKeywords:
    """A class that refuses unknown keyword arguments."""

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        checkKeywords(cls, kwargs)
        if len(args) > 1:
            checkPositions(cls, args)
        return super().__new__(cls)


class KeepsInitArgs(ChecksKeywords):
    """A class that keeps its constructor's arguments: `initArgs`, as (positional, by name)."""

    initArgs: tuple[tuple, dict]

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        vars(self)["initArgs"] = (args, kwargs)  # bypasses __setattr__, as the object is new
        return self

    def __repr__(self) -> str:
        return self.written()

    def written(self, without: tuple[str, ...] = ()) -> str:
        """Return the constructor call that made this object, without some arguments."""
        args, kwargs = self.initArgs
        parts = [repr(a) for a in args] + [f"{k}={v!r}" for k, v in kwargs.items() if k not in without]
        return f"{type(self).__name__}({', '.join(parts)})"

    def brief(self) -> str:
        """The constructor call without name and initial values: `Linear(3, 4)`, `Relu`."""
        return self.written(("name", "initscheme", "wscale")).removesuffix("()")
