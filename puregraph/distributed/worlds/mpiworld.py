"""MpiWorld: processes that an MPI launcher has started, through mpi4py."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from puregraph.core.base.environment import variable
from puregraph.core.errors import PuregraphError
from puregraph.core.late import Late
from puregraph.distributed.collectives.backoff import Backoff
from puregraph.distributed.collectives.mpiwindow import MpiWindow
from puregraph.distributed.collectives.sharedmemory import sharedMemory
from puregraph.distributed.launch.rankfile import finish, writeRankFile
from puregraph.distributed.launch.runnote import leaveNote
from puregraph.distributed.launch.watch import Watch
from puregraph.distributed.worlds.startedby import SIZES, launcherSize
from puregraph.distributed.worlds.world import Pending, World

PEER_SECONDS = 60.0  # seconds that a process waits for others before the run ends
GATHERING, CHANNELS = 1 << 14, 1 << 13  # the first tag of all-gathers on channels, and the number of tags
CHANNEL = 2  # the first tag of sends to one process
MOSTCORES = 4096  # of one machine
ABORTING = 5.0  # seconds for MPI to end all processes, before this one exits by itself
INHERITED = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "MPI_LOCAL")  # would make a child process a rank


class MpiPending(Pending):
    """A started collective of MPI. `wait` polls it with pauses."""

    def __init__(self, world: MpiWorld, request: Any, kept: Any = None):
        self.world, self.request, self.kept = world, request, kept

    def isDone(self) -> bool:
        return bool(self.request.Test())

    def wait(self) -> None:
        backoff = Backoff(self.world)
        self.world.waiting = time.monotonic()
        while not self.request.Test():
            backoff.pause()
        self.world.waiting = None
        self.world.finished()


class MpiWorld(World):
    """The processes of this run, as MPI sees them.

    Two threads use MPI: one communicates for the training, the watchdog on its own communicator.

    Raises    PuregraphError if mpi4py is missing, or another MPI's launcher has started this process
    """

    groupType: Any = Late("puregraph.distributed.worlds.mpigroup", "MpiGroup")

    def __init__(self) -> None:
        self.MPI = MPI = initialised()
        self.comm = MPI.COMM_WORLD.Dup()
        self.waiting: float | None = None  # since when this process waits
        self.done = self.exchanged = 0  # finished collectives of all processes, and of groups
        self.groups: dict[tuple[int, ...], World] = {}
        node = self.settle()
        self.guests: list[Any] = []  # to be closed before MPI
        self.hasChosen = False  # True once chooseNccl was called
        self.windows: dict[int, Any] = {}  # MPI windows by number; `unused`: garbage here
        self.unused: set[int] = set()
        self.made = 0
        self.folder, self.hasLauncher = sharedFolder(node)  # for notes of the processes on this machine
        node.Free()
        writeRankFile(self.folder, self.rank)
        self.begun = self.rank  # the rank at the start, which the launcher knows
        self.watch = self.watchOver()
        for name in list(os.environ):
            if name.startswith(INHERITED):
                del os.environ[name]

    def settle(self) -> Any:
        """Set this process's rank in the communicator, and on its machine. Returns the machine's communicator."""
        self.rank, self.size = self.comm.rank, self.comm.size
        node = self.comm.Split_type(self.MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local, self.locals = node.rank, node.size
        self.hasCores = self.locals <= coresOf(self.MPI, node)
        return node

    def watchOver(self) -> Watch | None:
        """Start a watchdog if there are several processes."""
        return Watch(self, variable("PATIENCE", PEER_SECONDS)) if self.size > 1 else None

    def started(self, request: Any, kept: Any = None) -> MpiPending:
        """Wrap a request of MPI; `kept` must stay alive until it is done."""
        return MpiPending(self, request, kept)

    def startAllReduce(self, array: np.ndarray) -> Pending:
        return self.started(self.comm.Iallreduce(self.MPI.IN_PLACE, array), array)

    def startReduceScatter(self, array: np.ndarray, cuts: list[int]) -> Pending:
        shard = array[cuts[self.rank] : cuts[self.rank + 1]]
        counts = [end - begin for begin, end in zip(cuts, cuts[1:])]
        sent = array.copy()
        return self.started(self.comm.Ireduce_scatter(sent, shard, counts), (sent, shard))

    def startAllGather(self, array: np.ndarray, cuts: list[int]) -> Pending:
        data, itemsize = array.view(np.uint8), array.itemsize
        counts = [itemsize * (end - begin) for begin, end in zip(cuts, cuts[1:])]
        offsets = [itemsize * begin for begin in cuts[:-1]]
        into = [data, counts, offsets, self.MPI.BYTE]
        return self.started(self.comm.Iallgatherv(self.MPI.IN_PLACE, into), into)

    def startAllToAll(self, sent: list[np.ndarray], received: list[np.ndarray]) -> Pending:
        if received[self.rank] is not sent[self.rank]:
            received[self.rank][...] = sent[self.rank]
        return self.startSwap(1, sent, received)

    def startAllGatherOn(self, channel: int, array: np.ndarray, cuts: list[int]) -> Pending:
        pieces = [array[begin:end] for begin, end in zip(cuts, cuts[1:])]
        return self.startSwap(GATHERING + channel % CHANNELS, [pieces[self.rank]] * self.size, pieces)

    def startSwap(self, tag: int, sent: list[np.ndarray], received: list[np.ndarray]) -> Pending:
        """Begin to send an array to each other process, and to receive one from each."""
        others = [(self.rank + k) % self.size for k in range(1, self.size)]
        requests = [self.comm.Irecv(bytesOf(received[r]), r, tag) for r in others if received[r].size]
        requests += [self.comm.Isend(bytesOf(sent[r]), r, tag) for r in others if sent[r].size]
        return self.started(Several(self.MPI, requests), (sent, received))

    def startBroadcast(self, array: np.ndarray, root: int = 0) -> Pending:
        return self.started(self.comm.Ibcast(bytesOf(array), root), array)

    def startBarrier(self) -> Pending:
        return self.started(self.comm.Ibarrier())

    def window(self, size: int, dtype: np.dtype) -> MpiWindow:
        """Allocate an array of n elements that all other processes can read; its length may differ by process.

        Raises    PuregraphError if no shared memory is left for it
        """
        self.closeUnused()
        allocated = MpiWindow(self, size, dtype, self.locals == self.size)
        self.windows[self.made] = allocated.win
        weakref.finalize(allocated, self.unused.add, self.made)
        self.made += 1
        return allocated

    def sharedMemory(self, sizes: list[int]) -> list[np.ndarray] | None:
        return sharedMemory(self, sizes) if self.isOnOneMachine and not self.survives else None

    @property
    def isOnOneMachine(self) -> bool:
        """True if all processes of the run are on this machine."""
        return self.locals == self.size

    def closeUnused(self) -> None:
        """Free the windows that no process uses any more."""
        rows = [
            np.frombuffer(data, np.int64) for data in self.gather(np.array(sorted(self.unused), np.int64).tobytes())
        ]
        for number in sorted(set.intersection(*[set(row.tolist()) for row in rows])):
            self.unused.discard(number)
            freeWindow(self.windows.pop(number))

    def startSend(self, array: np.ndarray, to: int, channel: int = 0) -> Pending:
        return self.started(self.comm.Isend(bytesOf(array), to, CHANNEL + channel), array)

    def startReceive(self, array: np.ndarray, source: int, channel: int = 0) -> Pending:
        return self.started(self.comm.Irecv(bytesOf(array), source, CHANNEL + channel), array)

    def group(self, ranks: Sequence[int]) -> World:
        key = tuple(ranks)
        if key not in self.groups:
            self.groups[key] = World() if len(key) == 1 else self.groupType(self, list(key))
        return self.groups[key]

    def finished(self) -> None:
        """Count a collective that is over."""
        self.done += 1

    def swap(self, sent: np.ndarray, received: np.ndarray, other: int) -> None:
        """Exchange arrays with another process."""
        requests = [self.comm.Irecv(bytesOf(received), other, 2), self.comm.Isend(bytesOf(sent), other, 2)]
        self.started(Several(self.MPI, requests), (sent, received)).wait()

    def isFirst(self, name: str, text: str = "") -> bool:
        """True if this process is the first on its machine to leave a note of this name, with this text."""
        return leaveNote(self.folder, name, text)

    def reason(self, error: BaseException) -> str:
        """Describe an exception that ends the run, in a line."""
        return f"{type(error).__name__}: {error}".removesuffix(": ")

    def say(self, text: str) -> None:
        """Print a message to the user on stderr."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Wait for all processes, and leave MPI. A process that waits inside MPI would keep a core busy."""
        for guest in self.guests:
            guest.close()
        self.barrier()
        for number in sorted(self.windows):
            freeWindow(self.windows[number])
        if self.watch is not None:
            self.watch.close()
        finish(self.folder, self.begun)
        self.MPI.Finalize()
        if not self.hasLauncher and self.local == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def abort(self, code: int = 1) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.MPI.COMM_WORLD.Abort(code)  # MPICH's Abort returns without effect if its launcher cannot be reached
        time.sleep(ABORTING)
        os._exit(code)


class Several:
    """Several requests of MPI as a single one."""

    def __init__(self, MPI: Any, requests: list[Any]):
        self.MPI, self.requests = MPI, requests

    def Test(self) -> bool:
        """True if all requests are done."""
        return bool(self.MPI.Request.Testall(self.requests))


def sharedFolder(node: Any) -> tuple[str, bool]:
    """Return a folder for the processes of one machine, and True if the launcher made it; otherwise the first one
    makes it."""
    inherited = variable("RUN")
    if inherited is not None and os.path.isdir(inherited):
        return inherited, True
    made = tempfile.mkdtemp(prefix="puregraph-") if node.rank == 0 else ""
    text = np.frombuffer(made.encode().ljust(4096, b"\0"), np.uint8).copy()
    node.Bcast(text)
    return text.tobytes().rstrip(b"\0").decode(), False


def coresOf(MPI: Any, node: Any) -> int:
    """Count the CPUs that the processes of one machine may use together."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    isUsed = np.zeros(MOSTCORES, np.uint8)
    isUsed[[core for core in os.sched_getaffinity(0) if core < MOSTCORES]] = 1
    isUsedByAny = np.zeros_like(isUsed)
    node.Allreduce(isUsed, isUsedByAny, MPI.MAX)
    return int(np.count_nonzero(isUsedByAny))


def freeWindow(window: Any) -> None:
    """Free a window of MPI, unless that was done before; all processes call it."""
    if window:
        window.Free()


def bytesOf(array: np.ndarray) -> np.ndarray:
    """Return the bytes of an array, which MPI can send for any dtype."""
    return array.reshape(-1).view(np.uint8)


def initialised() -> Any:
    """mpi4py's MPI, initialised for threads.

    Raises    PuregraphError if it is missing, or differs from the MPI whose launcher started this process
    """
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # refuseForeign reports foreign launchers
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise PuregraphError(
            f"several processes take mpi4py and an MPI: pip install 'puregraph[mpich]' ({error})"
        ) from error
    refuseForeign("Open MPI" if "Open MPI" in MPI.Get_library_version() else "MPICH")
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_MULTIPLE)
    return MPI


def refuseForeign(library: str) -> None:
    """Refuse a process started by the launcher of another MPI, with which each process would have rank 0 of 1.

    Raises    PuregraphError with the command that would work
    """
    launcher = launcherSize()
    if launcher is None or SIZES[launcher[0]] == library:
        return
    name, count = launcher
    raise PuregraphError(
        f"this process was started by an mpiexec of {SIZES[name]} ({name}={count}), but mpi4py uses {library}: "
        f"run  puregraph launch -n {count} SCRIPT.py, which takes the mpiexec that is installed beside {sys.executable}"
    )
