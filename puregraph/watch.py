"""Watch: who looks on, in this thread, while rules run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Watch(threading.local):
    """`look(path, module, arguments, outputs)` is called after every rule that a graph runs; None: nobody looks."""

    look: Callable[[str, Any, Any, Any], None] | None = None


WATCH = Watch()
