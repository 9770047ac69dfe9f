"""SurvivingWorld: processes that continue when some of them are lost, by Open MPI's ULFM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.distributed.collectives.exchangethread import EXCHANGING
from puregraph.distributed.worlds.mpiworld import MpiWorld
from puregraph.distributed.worlds.world import Result

ENABLED = "OMPI_MCA_mpi_ft_enable"  # set by `mpiexec --with-ft ulfm`


class SurvivingWorld(MpiWorld):
    """An MpiWorld that shrinks when a process is lost. Ranks and size change, and the new first rank writes files.

    A process that notices the loss revokes the communicator, so that no other waits for the lost one. After every
    action of `survive`, all agree if it succeeded on every process: they all continue, or all repeat it.

    Source    Bland, Bouteiller, Herault, Bosilca, Dongarra 2013, Post-failure recovery of MPI communication capability
    """

    survives = True

    def survive(self, action: Callable[[], Result]) -> Result:
        while True:
            try:
                result, isDone = action(), True
            except self.MPI.Exception as error:
                if not self.isLoss(error):
                    raise
                isDone = False
            if self.agreed(isDone):
                return result
            self.shrink()

    def agreed(self, isDone: bool) -> bool:
        """True if all processes are done, and none was lost. All remaining processes get the same answer."""
        if not isDone:
            self.comm.Revoke()
        flag = np.array([isDone], np.int32)
        try:
            self.started(self.comm.Iagree(flag), flag).wait()
        except self.MPI.Exception as error:
            if not self.isLoss(error):
                raise
            return False
        return bool(flag[0])

    def shrink(self) -> None:
        """Become a world of the remaining processes."""
        before = self.comm
        EXCHANGING.settle()  # all running exchanges have failed: their communicator is revoked
        if self.watch is not None:
            self.watch.drop()
        self.waiting, self.done, self.isComputing, self.bucket = None, 0, False, ""
        while not self.moved(self.comm.Shrink()):  # False if another process was lost meanwhile
            pass
        self.watch = self.watchOver()
        if self.rank == 0:
            self.say(self.lossOf(before))

    def moved(self, comm: Any) -> bool:
        """Take a rank in another communicator. Returns True if all processes have done so."""
        self.comm, isDone = comm, True
        try:
            self.settle().Free()
        except self.MPI.Exception as error:
            if not self.isLoss(error):
                raise
            isDone = False
        return self.agreed(isDone)

    def lossOf(self, before: Any) -> str:
        """Report in one line the lost processes of a communicator."""
        gone = self.MPI.Group.Difference(before.group, self.comm.group)
        ranks = self.MPI.Group.Translate_ranks(gone, None, before.group)
        where = f" in {self.label}" if self.label else ""
        who = f"{'ranks' if len(ranks) > 1 else 'rank'} {' and '.join(map(str, ranks))} of {before.size}"
        left = f"{self.size} processes are" if self.size > 1 else "one process is"
        return f"puregraph: {who} {'are' if len(ranks) > 1 else 'is'} lost{where}; {left} left"

    def isLoss(self, error: Any) -> bool:
        """True if an error of MPI reports a lost process, or a communicator that was revoked after a loss."""
        MPI = self.MPI
        lost = MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED
        return error.Get_error_class() in (*lost, MPI.ERR_IN_STATUS)  # ERR_IN_STATUS: from several requests at once

    def reason(self, error: BaseException) -> str:
        if isinstance(error, self.MPI.Exception) and self.isLoss(error):
            return "a process is lost without which the others cannot go on here; resume from the last checkpoint"
        return super().reason(error)

    def close(self) -> None:
        """Wait for the remaining processes. After a loss, skip MPI's Finalize, which would wait for the lost ones."""
        self.survive(self.barrier)
        if self.comm.size == self.MPI.COMM_WORLD.size:
            super().close()
        elif self.watch is not None:
            self.watch.drop()
