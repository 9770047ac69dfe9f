"""Versioning: a counter that changes whenever an attribute that compiled steps depend on is set.

A compiled step is validated before each run. Checking everything that it depends on would take longer than a small
step. So every relevant object sets a new version when it changes, and an unchanged version needs no further check.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from puregraph.core.base.attributes import Settable, checkAttribute

if TYPE_CHECKING:
    from puregraph.core.param import Stored


class VersionCounter:
    """A `version` that is a new object after every change anywhere; an unchanged version means no change.

    Read the version before the values that it covers: then a change in between is noticed the next time.
    """

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = object()


COUNTER = VersionCounter()
ARRAYVERSIONS = count(1)  # unique version numbers of arrays, for all threads


class LastUpdate:
    """The version at the last optimizer update. Older gradients belong to a finished pass, such as a discriminator's
    gradients in the generator's step."""

    version = 0


class Kept:
    """The base of attribute values that check the value that replaces them."""

    def checkSuccessor(self, owner: object, name: str, value: object) -> None:
        """Check a value that will replace this one."""


class Versioned(Settable):
    """An object with attributes that compiled steps depend on. Attributes in `unversioned` are set during every run."""

    unversioned: frozenset[str] = frozenset()

    def checkAbsent(self, name: str, value: Any) -> None:
        """Refuse a value for an attribute that was None."""

    def __setattr__(self, name: str, value: object) -> None:
        attributes = self.__dict__
        if name not in attributes:
            checkAttribute(self, name, value)
        elif isinstance(held := attributes[name], Kept):
            held.checkSuccessor(self, name, value)
        elif held is None and value is not None:
            self.checkAbsent(name, value)
        object.__setattr__(self, name, value)
        if name not in self.unversioned:
            COUNTER.version = object()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        COUNTER.version = object()


class VersionedAttribute:
    """An attribute, set to a new value now and then, of objects whose other attributes are set in every run.

    It is read from where all attributes are, at no further cost, for there is no `__get__`.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, owner: Stored, value: Any) -> None:
        vars(owner)[self.name] = value
        COUNTER.version = object()

    def __delete__(self, owner: object) -> None:
        del vars(owner)[self.name]
        COUNTER.version = object()


def isVersioned(thing: object) -> bool:
    """True if every attribute that is set on an object is recorded: its class does not override __setattr__."""
    ways: list[Any] = [type(thing).__setattr__, type(thing).__delattr__]
    return ways == [Versioned.__setattr__, Versioned.__delattr__]
