"""InitRecorder: base of objects that keep their constructor's arguments, so that a checkpoint can make them again."""

from __future__ import annotations

from puregraph.core.base.keywords import KeepsInitArgs
from puregraph.core.versioning import Versioned


class InitRecorder(KeepsInitArgs, Versioned):
    """`initArgs` holds the constructor's arguments, as (positional, by name)."""
