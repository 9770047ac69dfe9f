"""MpiGroup: some of the processes of a world, as a world of their own."""

from __future__ import annotations

from typing import Any

from puregraph.distributed.worlds.mpiworld import MpiWorld


class MpiGroup(MpiWorld):
    """The group of a world's processes `ranks`, created by all of them; rank i of it is ranks[i] of the world.

    Waiting in the group counts as waiting in the world, so the watch sees it. Lateness is measured by the world's
    collectives alone.
    """

    def __init__(self, whole: MpiWorld, ranks: list[int]):
        self.whole, self.MPI, self.folder = whole, whole.MPI, whole.folder
        self.comm = whole.comm.Create_group(whole.comm.group.Incl(ranks), ranks[0])
        self.rank, self.size = self.comm.rank, self.comm.size
        self.local, self.locals, self.hasLauncher, self.watch = whole.local, whole.locals, whole.hasLauncher, None
        self.hasCores = whole.hasCores

    @property
    def isOnOneMachine(self) -> bool:
        """True if all processes of the run are on this machine."""
        return self.whole.isOnOneMachine

    def finished(self) -> None:
        self.whole.exchanged += 1

    @property
    def waiting(self) -> Any:
        """The time since which this process waits; None if it does not."""
        return self.whole.waiting

    @waiting.setter
    def waiting(self, since: Any) -> None:
        self.whole.waiting = since

    @property
    def isComputing(self) -> bool:
        """True if this process computes while a thread waits for others."""
        return self.whole.isComputing

    @isComputing.setter
    def isComputing(self, value: bool) -> None:
        self.whole.isComputing = value
