"""MpiWindow: memory of the processes of MPI that others read: shared by a machine, else with MPI's Get."""

from __future__ import annotations

from typing import Any

import numpy as np

from puregraph.distributed.collectives.memorywindow import MemoryWindow


class MpiWindow(MemoryWindow):
    """An array of each process, in shared memory of the machine; with `isShared` False, MPI transfers every read.

    Source    MPI Forum 2021, MPI: A Message-Passing Interface Standard 4.0, chapter 12
    """

    def __init__(self, world: Any, size: int, dtype: np.dtype, isShared: bool):
        self.MPI, self.world, self.isShared, self.dtype = world.MPI, world, isShared, np.dtype(dtype)
        itemsize = self.dtype.itemsize
        make = self.MPI.Win.Allocate_shared if isShared else self.MPI.Win.Allocate
        self.win = make(max(size, 1) * itemsize, itemsize, comm=world.comm)
        self.arrays = [self.arrayOf(rank) for rank in range(world.size)] if isShared else []
        self.own = self.arrays[world.rank] if isShared else np.frombuffer(self.win.tomemory(), self.dtype)
        self.own = self.own[:size]
        self.own[...] = 0
        if not isShared:
            self.win.Lock_all()

    def arrayOf(self, rank: int) -> np.ndarray:
        """The array of a process of this machine."""
        memory, _ = self.win.Shared_query(rank)
        return np.frombuffer(memory, self.dtype)

    def read(self, rank: int, begin: int, into: np.ndarray) -> None:
        if self.isShared:
            into[...] = self.arrays[rank][begin : begin + into.size]
            return
        into = into.reshape(-1)
        self.win.Get([into.view(np.uint8), self.MPI.BYTE], rank, [begin, into.nbytes, self.MPI.BYTE])
        self.win.Flush(rank)

    def close(self) -> None:
        self.arrays, self.own = [], np.zeros(0, self.dtype)
        if not self.isShared:
            self.win.Unlock_all()
        self.win.Free()
