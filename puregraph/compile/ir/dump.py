"""Dump: with PUREGRAPH_DUMP=FOLDER the schedule after each pass is written as text, one line a call."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from puregraph.compile.ir.printer import listing
from puregraph.core.base.environment import variable

if TYPE_CHECKING:
    from puregraph.compile.trace.schedule import Schedule

COUNTS = itertools.count()


def dumped(schedule: Schedule, name: str) -> Schedule:
    """Return the schedule; if PUREGRAPH_DUMP is set, write it to FOLDER/<graph>/<number>-<pass>.txt first."""
    folder = variable("DUMP")
    if folder:
        directory = Path(folder) / "".join(c if c.isalnum() else "-" for c in schedule.graph.title())
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{next(COUNTS):04}-{name}.txt").write_text(f"{listing(schedule)}\n", encoding="utf-8")
    return schedule
