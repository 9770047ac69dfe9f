"""NcclWorld: processes with a GPU each. MPI starts them and exchanges host arrays, NCCL exchanges GPU arrays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakSet

import numpy as np

from puregraph.core import device
from puregraph.core.base.environment import variable
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.distributed.nccl.agreedcall import AgreedCall
from puregraph.distributed.nccl.deviceprogress import DeviceProgress
from puregraph.distributed.nccl.graphcapture import GraphCapture
from puregraph.distributed.nccl.ncclwatch import NcclWatch
from puregraph.distributed.worlds.mpiworld import ABORTING, PEER_SECONDS, MpiWorld
from puregraph.distributed.worlds.world import OVER, Pending, World
from puregraph.ops.cuda.libraries.nccl import ncclModule
from puregraph.ops.cuda.runtime.sidestream import SideStream

IDBYTES = 128  # of NCCL's unique id
SUM, BYTE = 0, 1  # ncclSum, ncclUint8
SUMMED = {"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "int64": 4}  # ncclDataType_t as numbers, because
# older versions of CuPy do not name ncclBfloat16

Part = tuple[Any, int]


class NcclPending(Pending):
    """A collective on the side stream. `wait` lets the current stream wait for it, not the host."""

    def __init__(self, event: Any):
        self.event = event

    def isDone(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        sys.modules["cupy"].cuda.get_current_stream().wait_event(self.event)


def forwarded(name: str) -> Any:
    """Return a property that reads and sets the attribute of `self.host`."""
    return property(lambda self: getattr(self.host, name), lambda self, value: setattr(self.host, name, value))


class NcclWorld(World):
    """The processes of an MpiWorld, which exchange GPU arrays by NCCL, and host arrays by MPI.

    A collective runs on a side stream, after the work that the current stream has by then; `wait` lets the current
    stream wait for it. Reductions take float16, float32, float64, bfloat16 or int64. Before each collective outside a
    captured graph, all processes compare over MPI what they are about to call.

    All processes create and close it together. Before it closes, it drops all graphs that contain its collectives.

    Raises    PuregraphError if NCCL cannot connect the processes; from a collective, if processes call different ones,
              or one captures alone
    """

    label, bucket, isEnding, isComputing = map(forwarded, ("label", "bucket", "isEnding", "isComputing"))

    def __init__(self, host: MpiWorld):
        self.host, self.MPI, self.comm = host, host.MPI, host.comm
        self.rank, self.size, self.local, self.locals = host.rank, host.size, host.local, host.locals
        self.hasLauncher, self.say = host.hasLauncher, host.say
        self.side = SideStream()
        self.nccl = ncclModule()
        with reporting("NCCL cannot connect the processes"):
            self.communicator = self.nccl.NcclCommunicator(self.size, self.uniqueId(), self.rank)
        self.holders: WeakSet[Any] = WeakSet()  # of captured graphs
        self.capture: GraphCapture | None = None  # the current capture
        self.isClosed = False
        self.progress = DeviceProgress()
        self.watch = NcclWatch(self, variable("PATIENCE", PEER_SECONDS))
        host.guests.append(self)

    def uniqueId(self) -> bytes:
        """Return the name of the communicator, which the first process makes."""
        message = np.zeros(IDBYTES + 1, np.uint8)
        if self.rank == 0:
            with suppress(Exception):  # all ranks raise below
                message[:IDBYTES] = np.frombuffer(self.nccl.get_unique_id(), np.uint8)
                message[IDBYTES] = 1
        self.host.broadcast(message)
        if not message[IDBYTES]:
            raise PuregraphError("NCCL on rank 0 has no name for a communicator; NCCL_DEBUG=INFO has it say why")
        return message[:IDBYTES].tobytes()

    # Collectives ------------------------------------------------------------------------------------------------------

    def startAllReduce(self, array: Any) -> Pending:
        if not device.isDeviceArray(array):
            return self.host.startAllReduce(array)
        kind, at = typeOf(array, "allReduce"), addressOf(array)
        return self.start("allReduce", array, lambda to: self.communicator.allReduce(at, at, array.size, kind, SUM, to))

    def startReduceScatter(self, array: Any, cuts: list[int]) -> Pending:
        if not device.isDeviceArray(array):
            return self.host.startReduceScatter(array, cuts)
        kind, at, itemsize = typeOf(array, "reduceScatter"), addressOf(array), array.itemsize
        pieces = list(zip(cuts, cuts[1:]))

        def put(to: int) -> None:
            if isEven(cuts):
                count = cuts[1]
                self.communicator.reduceScatter(at, at + self.rank * count * itemsize, count, kind, SUM, to)
                return
            with self.together():
                for r, (begin, end) in enumerate(pieces):
                    if begin < end:
                        piece = at + begin * itemsize
                        self.communicator.reduce(piece, piece, end - begin, kind, SUM, r, to)

        return self.start("reduceScatter", array, put)

    def startAllGather(self, array: Any, cuts: list[int]) -> Pending:
        if not device.isDeviceArray(array):
            return self.host.startAllGather(array, cuts)
        at, itemsize = addressOf(array), array.itemsize

        def put(to: int) -> None:
            if isEven(cuts):
                count = cuts[1] * itemsize
                self.communicator.allGather(at + self.rank * count, at, count, BYTE, to)
                return
            with self.together():
                for r, (begin, end) in enumerate(zip(cuts, cuts[1:])):
                    if begin < end:
                        piece = at + begin * itemsize
                        self.communicator.broadcast(piece, piece, (end - begin) * itemsize, BYTE, r, to)

        return self.start("allGather", array, put)

    def startBroadcast(self, array: Any, root: int = 0) -> Pending:
        if not device.isDeviceArray(array):
            return self.host.startBroadcast(array, root)
        at = addressOf(array)
        return self.start(
            "broadcast", array, lambda to: self.communicator.broadcast(at, at, array.nbytes, BYTE, root, to), root
        )

    def startAllToAll(self, sent: list[Any], received: list[Any]) -> Pending:
        if not device.isDeviceArray(sent[0]):
            return self.host.startAllToAll(sent, received)
        return self.startExchange([(x, r) for r, x in enumerate(sent)], [(x, r) for r, x in enumerate(received)])

    def startExchange(self, sends: list[Part], receives: list[Part]) -> Pending:
        """Begin to send some arrays, each to a process, and to receive some, each from one; all processes call it.

        Arrays from one process to another one arrive in their order; their sizes are not compared.
        """

        def put(to: int) -> None:
            with self.together():
                for array, r in sends:
                    self.communicator.send(addressOf(array), array.nbytes, BYTE, r, to)
                for array, r in receives:
                    self.communicator.recv(addressOf(array), array.nbytes, BYTE, r, to)

        return self.start("allToAll", None, put)

    def startBarrier(self) -> Pending:
        return self.host.startBarrier()

    def send(self, array: Any, to: int) -> None:
        if not device.isDeviceArray(array):
            self.host.send(array, to)
            return
        self.agreeWith(to, array)
        self.put(lambda stream: self.communicator.send(addressOf(array), array.nbytes, BYTE, to, stream)).wait()

    def receive(self, array: Any, source: int) -> None:
        if not device.isDeviceArray(array):
            self.host.receive(array, source)
            return
        self.agreeWith(source, array)
        self.put(lambda stream: self.communicator.recv(addressOf(array), array.nbytes, BYTE, source, stream)).wait()

    def start(self, name: str, array: Any, put: Callable[[int], None], root: int = -1) -> Pending:
        """Begin a collective, once all processes are about to begin the same."""
        self.agree(AgreedCall.of(name, array, root))
        return OVER if array is not None and array.size == 0 else self.put(put)

    def put(self, put: Callable[[int], None]) -> Pending:
        """Put calls of NCCL on the side stream, after the work of the current stream."""
        self.side.fork()
        event = sys.modules["cupy"].cuda.Event(disable_timing=True)
        with self.underway(self.side.stream), reporting("NCCL has failed"):
            put(self.side.stream.ptr)
        event.record(self.side.stream)
        return NcclPending(event)

    def underway(self, stream: Any = None) -> Any:
        """Return a context: work put on a stream inside it is an exchange, and is watched."""
        return self.progress.noting(stream) if self.capture is None else nullcontext()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Group calls of NCCL, so that one that waits for another process does not block the next."""
        self.nccl.groupStart()
        try:
            yield
        finally:
            self.nccl.groupEnd()

    # Agreement --------------------------------------------------------------------------------------------------------

    def agree(self, own: AgreedCall, number: int = 0) -> list[int]:
        """Return the numbers that all ranks pass, after checking that all are about to make the same call.

        Raises    PuregraphError, on all ranks, if they are not; if a stream captures outside `capturing`; in a closed
                  world
        """
        self.checkUse(own)
        if self.capture is not None:
            self.capture.calls.append(own)  # compared at the end of the capture
            return []
        width = len(own) + 1
        rows = np.zeros((self.size, width), np.int64)
        rows[self.rank] = *own, number
        self.host.allGather(rows.reshape(-1), [r * width for r in range(self.size + 1)])
        calls = [AgreedCall(*row) for row in rows[:, :-1].tolist()]
        other = next((r for r in range(self.size) if calls[r] != calls[0]), None)
        if other is not None:
            raise PuregraphError(calls[0].differs(0, calls[other], other))
        return rows[:, -1].tolist()

    def agreeWith(self, other: int, array: Any) -> None:
        """Wait until the other process is about to receive what this one sends, or the other way round.

        Raises    PuregraphError, on both of them, if sizes or dtypes differ
        """
        if not 0 <= other < self.size or other == self.rank:
            raise ArgumentError(f"rank {self.rank} of {self.size}: there is no other process {other} to exchange with")
        ours = AgreedCall.of("send and receive", array, -1)
        self.checkUse(ours)
        if self.capture is not None:  # a capture compares its own list of calls
            return
        theirs = np.zeros(len(ours), np.int64)
        self.host.swap(np.array(ours, np.int64), theirs, other)
        if AgreedCall(*theirs.tolist()) != ours:
            raise PuregraphError(ours.differs(self.rank, AgreedCall(*theirs.tolist()), other))

    def checkUse(self, own: AgreedCall) -> None:
        """Refuse a call that would wait forever."""
        if self.isClosed:
            raise PuregraphError(f"{own.text()}: the NCCL communicator of this world is closed, and so are its graphs")
        if self.capture is None and sys.modules["cupy"].cuda.get_current_stream().is_capturing():
            raise PuregraphError(
                f"{own.text()}: rank {self.rank} captures it alone; all processes capture together, within "
                "`with world.capturing(holder)`, where holder.drop() drops the graph before the communicator ends"
            )

    def capturing(self, holder: Any) -> GraphCapture:
        """Return a context in which all processes capture collectives; `holder.drop()` drops the graph."""
        return GraphCapture(self, holder)

    # The end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Drop all graphs, then free the communicator. All processes call it.

        Raises    PuregraphError while a stream captures
        """
        if self.isClosed:
            return
        if self.capture is not None:
            raise PuregraphError("the NCCL communicator cannot be closed while a stream captures its collectives")
        self.isClosed = True
        sys.modules["cupy"].cuda.Device().synchronize()
        for holder in list(self.holders):
            holder.drop()
        self.watch.close()
        self.communicator.destroy()

    def isFirst(self, name: str, text: str = "") -> bool:
        return self.host.isFirst(name, text)

    def checkHealth(self) -> None:
        """Raise    PuregraphError if NCCL says that a process is gone"""
        with reporting("NCCL has failed"):
            self.communicator.check_async_error()

    def abort(self, code: int = 1) -> None:
        ending = threading.Thread(target=self.communicator.abort, name="puregraph abort", daemon=True)
        ending.start()  # may hang with an unresponsive GPU
        ending.join(ABORTING)
        self.host.abort(code)


@contextmanager
def reporting(what: str) -> Iterator[None]:
    """Raise errors of NCCL as PuregraphError. A communicator that has failed cannot be used any more."""
    try:
        yield
    except ncclModule().NcclError as error:
        raise PuregraphError(f"{what}: {error}; NCCL_DEBUG=INFO has it say more") from error


def typeOf(array: Any, name: str) -> int:
    """Return NCCL's number for a dtype.

    Raises    ArgumentError for a dtype that cannot be summed
    """
    if array.dtype.name not in SUMMED:
        wanted = ", ".join(SUMMED)
        raise ArgumentError(f"NcclWorld.{name}: wanted an array of {wanted}, got {array.dtype}")
    return SUMMED[array.dtype.name]


def addressOf(array: Any) -> int:
    """Return the address of an array's first element.

    Raises    ArgumentError if it has gaps
    """
    if not array.flags.c_contiguous:
        raise ArgumentError(f"NcclWorld: wanted a contiguous array, got one of shape {array.shape} with gaps")
    return array.data.ptr


def isEven(cuts: list[int]) -> bool:
    """True if all pieces of an array have the same size."""
    return all(end - begin == cuts[1] for begin, end in zip(cuts, cuts[1:])) and cuts[0] == 0
