"""Watch: who looks on, in this thread, while rules run."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watch(threading.local):
    """`look(path, module, arguments, outputs)` is called after every rule that runs; None: nobody looks.

    Of a gradient rule that is not a node itself, `look(path, module, [grad, *arguments, *outputs], gradients, True)`.
    """

    look: Callable[..., None] | None = None


WATCH = Watch()
