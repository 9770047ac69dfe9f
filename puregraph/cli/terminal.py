"""Terminal: JSON, colours and columns of what the command line prints."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any


def printJson(value: object, out: Any) -> None:
    """Plain data as indented JSON."""
    print(json.dumps(value, indent=2, default=str), file=out, flush=True)


def terminalWidth() -> int | None:
    """The number of columns of the terminal; None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def hasColor() -> bool:
    """True if the output goes to a terminal whose user wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str) -> str:
    """The text in a terminal style if colours are on, otherwise unchanged."""
    return f"\x1b[{style}m{text}\x1b[0m" if style and hasColor() else text


def aligned(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> list[str]:
    """Rows as lines with their columns one under another."""
    wide = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, wide))).rstrip()
        for row in rows
    ]
