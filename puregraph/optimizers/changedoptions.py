"""Changed options: settings changed on an optimizer after its construction, which a file stores."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any


def madeWith(optimizer: Any) -> dict[str, Any]:
    """Return the settings that are one number, flag or text, as the constructor set them."""
    args, named = optimizer.initArgs
    if optimizer.members == (optimizer,):
        made = vars(type(optimizer)(*args, **named))
    else:  # a second one cannot have the same members
        bound = inspect.signature(type(optimizer).__init__).bind(None, *args, **named)
        bound.apply_defaults()
        made = bound.arguments
    classes = type(optimizer).__mro__[:-1]  # options passed on to a base class
    names = {name for cls in classes for name in inspect.signature(vars(cls).get("__init__", cls)).parameters}
    if optimizer.whole is not None:
        names -= {"clipNorm"}  # set by the MultiOptimizer
    now = {name: getattr(optimizer, name, made) for name in names & made.keys()}
    return {name: made[name] for name, value in now.items() if isPlain(made[name]) and isPlain(value)}


def changedOptions(optimizer: Any) -> dict[str, Any]:
    """Return the settings that were changed after construction, with their values now."""
    return {name: now for name, made in madeWith(optimizer).items() if (now := getattr(optimizer, name)) != made}


def restoringOptions(optimizer: Any, made: Any, saved: Any) -> tuple[list[Callable[[], Any]], list[str]]:
    """Return the steps that restore an optimizer's saved settings, and a sentence for each setting that is kept.

    `made` is the saved optimizer as its constructor left it. A setting is restored if both were made with the same
    value and it has not been changed here. A value that differs on purpose is kept.
    """
    steps: list[Callable[[], Any]] = []
    kept = []
    every = [dict.fromkeys([o, *o.members]) for o in (optimizer, made, saved)]  # a single optimizer is its only member
    for current, before, after in zip(*every):
        options = madeWith(current)
        for name in options.keys() & madeWith(before).keys():
            now, was = getattr(current, name), getattr(after, name)
            if now == was:
                continue
            if now == options[name] == getattr(before, name):
                steps.append(partial(setattr, current, name, was))
            else:
                kept.append(
                    f"{name}: the run had {was}, it goes on with {now}, as the {type(current).__name__} here has it"
                )
    return steps, sorted(kept)


def isPlain(value: Any) -> bool:
    """True for one number, flag or text, or None."""
    return value is None or isinstance(value, (bool, int, float, str))
