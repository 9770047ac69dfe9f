"""Run note: a text that one process of a machine leaves in the folder of the run, and no other one after it."""

from __future__ import annotations

import os
import threading


def leaveNote(folder: str, name: str, text: str) -> bool:
    """Leave a note. Returns True if this process is the first to leave a note of this name.

    Writing is atomic, because the second process may end the first one at once.
    """
    path = os.path.join(folder, name)
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(temporary, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        try:
            os.link(temporary, path)
        finally:
            os.unlink(temporary)
    except FileExistsError:
        return False
    except OSError:  # the folder is gone: better report twice than never
        pass
    return True
