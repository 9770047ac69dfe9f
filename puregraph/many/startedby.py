"""Started by: what a launcher of MPI has said to this process."""

from __future__ import annotations

import os

SIZES = {"PMI_SIZE": "MPICH", "OMPI_COMM_WORLD_SIZE": "Open MPI"}  # what launchers tell those that they start
RANKS = {"PMI_SIZE": "PMI_RANK", "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK"}


def launcherRank() -> int:
    """Which of its processes a launcher of MPI has said that this is."""
    given = launcherSize()
    return 0 if given is None else int(os.environ.get(RANKS[given[0]], "0"))


def launcherSize() -> tuple[str, int] | None:
    """The variable by which a launcher of MPI has said how many processes it starts, and the number."""
    for name in SIZES:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return name, int(text)
    return None
