"""Budget: limits on the work that an untrusted file may cause, so that a small file cannot cause much.

Each limit grows with the size of the file. Counts give the same answer on every machine. The time limit is a last
resort, and counts only this thread's time.
"""

from __future__ import annotations

import time

from puregraph.core.errors import CheckpointError

MEGABYTE = 1 << 20

# by item, the count that any file may have, and the additional count per byte
LIMITS = {
    "bytes of arrays": (32 * MEGABYTE, 16),
    "bytes of structure": (MEGABYTE, 32),
    "lists in its JSON": (50_000, 0.2),
    "nodes": (4_000, 0.1),
    "characters of paths": (4 * MEGABYTE, 8),
    "outputs": (20_000, 0.1),
    "parameters and states": (4_000, 0.004),
    "inputs of nodes": (20_000, 0.3),
}
MAX_GRAPH_LEVELS = 200  # nesting of graphs
SECONDS = (1.5, 2e-5)


class BudgetError(CheckpointError):
    """A file asks for more than its size allows; reading it stops."""


class Budget:
    """Budget left for a file of `size` bytes; messages call it `of`."""

    def __init__(self, size: int, of: str = "it"):
        self.of = of
        self.limits = {what: int(most + perByte * size) for what, (most, perByte) in LIMITS.items()}
        self.spent = dict.fromkeys(LIMITS, 0)
        self.seconds = SECONDS[0] + SECONDS[1] * size
        self.started = time.thread_time(), time.perf_counter()

    def spend(self, what: str, amount: int = 1) -> None:
        """Count items before they are read or built.

        Raises    CheckpointError if the file asks for more than its size allows, or takes too long
        """
        self.spent[what] += amount
        if self.spent[what] > self.limits[what]:
            raise BudgetError(
                f"{self.of} asks for {self.spent[what]:,} {what} or more, a file of its size may have "
                f"{self.limits[what]:,}"
            )
        isLate = time.perf_counter() - self.started[1] > self.seconds  # reading the thread's time is slower
        if isLate and time.thread_time() - self.started[0] > self.seconds:
            raise BudgetError(f"{self.of} takes more than {self.seconds:.1f} s to read, too long for its size")
