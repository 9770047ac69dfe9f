"""InitRecorder: what remembers how it was made, so that a checkpoint can make it again."""

from __future__ import annotations

from typing import Any

from puregraph.base.keywords import checkKeywords
from puregraph.core.versioning import Versioned


class InitRecorder(Versioned):
    """`initArgs` holds the constructor's arguments, as (positional, by name)."""

    initArgs: tuple[tuple, dict]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        checkKeywords(cls, kwargs)
        self = super().__new__(cls)
        self.initArgs = (args, kwargs)
        return self

    def __repr__(self) -> str:
        args, kwargs = self.initArgs
        given = [repr(a) for a in args] + [f"{k}={a!r}" for k, a in kwargs.items()]
        return f"{type(self).__name__}({', '.join(given)})"
