"""InitRecorder: what remembers how it was made, so that a checkpoint can make it again."""

from __future__ import annotations

from puregraph.base.keywords import KeepsInitArgs
from puregraph.core.versioning import Versioned


class InitRecorder(KeepsInitArgs, Versioned):
    """`initArgs` holds the constructor's arguments, as (positional, by name)."""

    def __repr__(self) -> str:
        args, kwargs = self.initArgs
        given = [repr(a) for a in args] + [f"{k}={a!r}" for k, a in kwargs.items()]
        return f"{type(self).__name__}({', '.join(given)})"
