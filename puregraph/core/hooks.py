"""RuleHooks: functions that are called, in this thread, before or after each rule that runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class RuleHooks(threading.local):
    """`look(path, module, arguments, outputs)` is called after every rule that runs; None for no hook.

    After a gradient rule that is not a node: `look(path, module, [grad, *arguments, *outputs], gradients, True)`. On a
    tape, the function stands for the module, and in the backward pass the node: `look(path, node, grads,
    gradients, True)`. `enter(module)` is called before a module runs on Variables.
    """

    look: Callable[..., None] | None = None
    enter: Callable[[Any], None] | None = None


HOOKS = RuleHooks()
