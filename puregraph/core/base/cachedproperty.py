"""CachedProperty: an attribute that is computed when it is first read, without a lock.

Until Python 3.12 `functools.cached_property` computes under a lock of the class: a process that is forked meanwhile
would wait for it for ever. Here two threads may both compute, and one result stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CachedProperty(Generic[T]):
    """`@CachedProperty` above a method without arguments. The value then replaces it in the object."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, thing: object, owner: type | None = None) -> T:
        if thing is None:
            return self  # type: ignore[return-value]
        value = vars(thing)[self.name] = self.compute(thing)
        return value
