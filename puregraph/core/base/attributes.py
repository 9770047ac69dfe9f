"""Attributes: refuse to set a misspelt attribute from outside an object, which would have no effect."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from puregraph.core.base.introspection import callerOf
from puregraph.core.errors import ArgumentError, UnknownAttributeError
from puregraph.core.foreign import ForeignAttributes

UNKNOWN = object()  # the class has no such attribute
MISSPELT_SIMILARITY = 0.85  # similarity, from 0 to 1, above which a name counts as misspelt


class Settable(ForeignAttributes):
    """An object with options that users set. Its methods may set any attribute. So may users, unless the name is
    similar to an option, or is another framework's name for one.

    `options`   names that have an effect when set, besides the constructor's arguments
    `elsewhere` names without effect, each with what to do instead
    """

    options: tuple[str, ...] = ()
    elsewhere: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.__dict__:
            known = getattr(type(self), name, UNKNOWN)
            if known is UNKNOWN:
                checkAttribute(self, name, value)
            elif isinstance(known, property) and known.fset is None:
                hint = self.elsewhere.get(name)
                raise UnknownAttributeError(f"{type(self).__name__}: {name} is read-only{hint and f'; {hint}' or ''}")
        super().__setattr__(name, value)

    def insteadOf(self, name: str, value: object) -> str:
        """A hint for an attribute that would have no effect; empty if it may have one."""
        return ""


def checkAttribute(thing: Any, name: str, value: Any) -> None:
    """Refuse a new attribute, set from outside the object's methods, that its class lacks and whose name is similar to
    an option.

    Raises    UnknownAttributeError with what to do instead
    """
    caller = callerOf(2)
    if caller.f_globals.get("__name__", "").startswith("puregraph."):  # first, for it is most often true
        return
    cls: Any = type(thing)
    if hasattr(cls, name) or name.startswith("_") or caller.f_locals.get("self") is thing or isRead(cls, name):
        return
    hint = next((vars(base)["elsewhere"][name] for base in cls.__mro__ if name in vars(base).get("elsewhere", ())), "")
    hint = hint or thing.insteadOf(name, value)
    if not hint:
        arguments = argumentsOf(cls)
        near = nearest(name, [*cls.options, *(a for a in arguments if hasattr(thing, a))], True)
        if near:
            hint = f"set {near}"
        elif name in arguments and cls.__module__.startswith("puregraph."):
            hint = f"it is an argument of {cls.__name__}(...), read only once: make a new one"
    if hint:
        raise UnknownAttributeError(f"{cls.__name__}: setting {name} has no effect; {hint}")


def isRead(cls: type, name: str) -> bool:
    """True if a method of a user-defined class reads this attribute."""
    for base in cls.__mro__:
        if not base.__module__.startswith("puregraph."):
            for value in vars(base).values():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if name in getattr(getattr(function, "__code__", None), "co_names", ()):
                    return True
    return False


def argumentsOf(cls: Any) -> list[str]:
    """The names of the constructor arguments of a class and its bases."""
    signatures = [
        inspect.signature(base.__init__) for base in cls.__mro__ if "__init__" in vars(base) and base is not object
    ]
    names = [p.name for signature in signatures for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    return [name for name in dict.fromkeys(names) if name not in ("self", "name")]


def nearest(name: str, known: Iterable[str], hasPlurals: bool = False) -> str:
    """The known name that is most similar to this one, or an empty text; a plural may be a different name."""
    from difflib import get_close_matches  # needed only for misspelt names

    alike = {candidate.replace("_", "").lower(): candidate for candidate in known}
    plain = name.replace("_", "").lower()
    if hasPlurals and plain.rstrip("s") in alike and plain not in alike:
        return ""
    matches = get_close_matches(plain, alike, 1, MISSPELT_SIMILARITY)
    return alike[matches[0]] if matches else ""


def checkMethods(cls: type, known: Iterable[str], prefix: str, elsewhere: dict[str, str]) -> None:
    """Refuse a class with a method whose name has the prefix but is never called.

    Raises    ArgumentError naming the method, and the one probably meant
    """
    known = list(known)
    for name, value in vars(cls).items():
        if callable(value) and name.startswith(prefix) and name not in known and not hasattr(cls.__base__, name):
            near = elsewhere.get(name) or nearest(name, [method for method in known if method not in vars(cls)])
            if near:
                raise ArgumentError(
                    f"{cls.__name__}: {name} is never called; did you mean {near}? Valid names: {', '.join(known)}"
                )
