"""Run note: a text that one process of a machine leaves in the folder of the run, and no other one after it."""

from __future__ import annotations

import os
import threading


def leaveNote(folder: str, name: str, text: str) -> bool:
    """Whether this is the first process that leaves a note of this name.

    The note is there with its whole text, or not at all: who comes second may end the first at once.
    """
    path = os.path.join(folder, name)
    own = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(own, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        try:
            os.link(own, path)
        finally:
            os.unlink(own)
    except FileExistsError:
        return False
    except OSError:  # the folder is gone, and whatever is said is better said twice than never
        pass
    return True
