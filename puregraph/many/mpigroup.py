"""MpiGroup: some of the processes of a world, as a world of their own."""

from __future__ import annotations

from typing import Any

from puregraph.many.mpiworld import MpiWorld


class MpiGroup(MpiWorld):
    """The processes `ranks` of a world, all of which make it; rank i of it is ranks[i] there.

    Who waits in it waits in the world, whose watch sees it; but processes are late by the collectives of all alone.
    """

    def __init__(self, whole: MpiWorld, ranks: list[int]):
        self.whole, self.MPI, self.folder = whole, whole.MPI, whole.folder
        self.comm = whole.comm.Create_group(whole.comm.group.Incl(ranks), ranks[0])
        self.rank, self.size = self.comm.rank, self.comm.size
        self.local, self.locals, self.hasLauncher, self.watch = whole.local, whole.locals, whole.hasLauncher, None
        self.hasCores = whole.hasCores

    @property
    def isOnOneMachine(self) -> bool:
        """Whether all processes of the run are here."""
        return self.whole.isOnOneMachine

    def finished(self) -> None:
        self.whole.exchanged += 1

    @property
    def waiting(self) -> Any:
        """Since when this process waits."""
        return self.whole.waiting

    @waiting.setter
    def waiting(self, since: Any) -> None:
        self.whole.waiting = since

    @property
    def isComputing(self) -> bool:
        """Whether this process computes while a thread waits for others."""
        return self.whole.isComputing

    @isComputing.setter
    def isComputing(self, value: bool) -> None:
        self.whole.isComputing = value
