"""World: the processes that train together, and their collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from puregraph.distributed.collectives.memorywindow import MemoryWindow

BEGUN = b"\x1epuregraph: all processes have begun\n"  # a line that rank 0 prints, which the launcher removes
Result = TypeVar("Result")
LASTWORDS = "last-words"  # the note in which the first process to fail writes the reason


class Pending:
    """A started collective. This base class is one that is over already."""

    def isDone(self) -> bool:
        """True if it is over."""
        return True

    def wait(self) -> None:
        """Wait until it is over."""


OVER = Pending()


class World:
    """The processes that train together; this class is a world of a single process.

    `rank`, `size`     the number of this process, and the number of processes
    `local`, `locals`  the same among the processes of this machine

    Every process calls the same collectives in the same order. Arrays are contiguous; reductions take float32, float64
    or int64. `start...` returns a Pending at once; do not touch the array before that is over.
    """

    rank = local = 0
    size = locals = 1
    survives = False  # True if the other processes continue after a loss
    isEnding = False  # True if all processes have agreed to exit by themselves
    isComputing = False  # True while this process computes and a thread waits for others
    hasCores = True  # True if each process of this machine has a core
    bucket = ""  # description of the running exchange
    label = ""  # the purpose of the next collectives, for reports of the watchdog

    def startAllReduce(self, array: np.ndarray) -> Pending:
        """Begin to replace an array by its sum over all processes."""
        return OVER

    def startReduceScatter(self, array: np.ndarray, cuts: list[int]) -> Pending:
        """Begin to replace array[cuts[rank] : cuts[rank + 1]] by its sum; the other elements are then undefined."""
        return OVER

    def startAllGather(self, array: np.ndarray, cuts: list[int]) -> Pending:
        """Begin to fill an array with the piece array[cuts[r] : cuts[r + 1]] of each process r."""
        return OVER

    def startAllGatherOn(self, channel: int, array: np.ndarray, cuts: list[int]) -> Pending:
        """Begin an all-gather on a channel; with different channels, processes may begin several in any order."""
        return self.startAllGather(array, cuts)

    def startAllToAll(self, sent: list[np.ndarray], received: list[np.ndarray]) -> Pending:
        """Begin to send sent[r] to each process r, and to fill received[r] with the array that it sends."""
        received[0][...] = sent[0]
        return OVER

    def startBroadcast(self, array: np.ndarray, root: int = 0) -> Pending:
        """Begin to replace an array by that of `root`."""
        return OVER

    def startBarrier(self) -> Pending:
        """Begin to wait for all processes."""
        return OVER

    def allReduce(self, array: np.ndarray) -> None:
        """Replace an array by its sum over all processes."""
        self.startAllReduce(array).wait()

    def reduceScatter(self, array: np.ndarray, cuts: list[int]) -> None:
        """Replace array[cuts[rank] : cuts[rank + 1]] by its sum over all processes."""
        self.startReduceScatter(array, cuts).wait()

    def allGather(self, array: np.ndarray, cuts: list[int]) -> None:
        """Fill an array with the piece array[cuts[r] : cuts[r + 1]] of each process r."""
        self.startAllGather(array, cuts).wait()

    def allToAll(self, sent: list[np.ndarray], received: list[np.ndarray]) -> None:
        """Send sent[r] to each process r, and fill received[r] with the array that it sends."""
        self.startAllToAll(sent, received).wait()

    def broadcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace an array by that of `root`."""
        self.startBroadcast(array, root).wait()

    def barrier(self) -> None:
        """Wait for all processes."""
        self.startBarrier().wait()

    def window(self, size: int, dtype: np.dtype) -> MemoryWindow:
        """Allocate an array of n elements that all other processes can read; n may differ by process."""
        return MemoryWindow(size, dtype)

    def sharedMemory(self, sizes: list[int]) -> list[np.ndarray] | None:
        """Allocate `sizes[r]` shared zero bytes for each process r; None without shared memory. All call it."""
        return None

    def startSend(self, array: np.ndarray, to: int, channel: int = 0) -> Pending:
        """Begin to give an array to one process, which receives it by the same channel."""
        raise ValueError(f"there is no process {to} in a world of {self.size}")

    def startReceive(self, array: np.ndarray, source: int, channel: int = 0) -> Pending:
        """Begin to receive an array from one process; arrays of one channel arrive in the order of sending."""
        raise ValueError(f"there is no process {source} in a world of {self.size}")

    def send(self, array: np.ndarray, to: int) -> None:
        """Give an array to one process, which calls `receive`."""
        self.startSend(array, to).wait()

    def receive(self, array: np.ndarray, source: int) -> None:
        """Fill an array with what one process sends."""
        self.startReceive(array, source).wait()

    def group(self, ranks: Sequence[int]) -> World:
        """Return these processes as a world; all of them call it with the same ranks."""
        return self

    def gather(self, data: bytes) -> list[bytes]:
        """Gather bytes of any length from every process, on all of them."""
        sizes = np.zeros(self.size + 1, np.int64)
        sizes[self.rank + 1] = len(data)
        self.allGather(sizes[1:], list(range(self.size + 1)))
        cuts = np.cumsum(sizes).tolist()
        received = np.empty(cuts[-1], np.uint8)
        received[cuts[self.rank] : cuts[self.rank + 1]] = np.frombuffer(data, np.uint8)
        self.allGather(received, cuts)
        return [received[begin:end].tobytes() for begin, end in zip(cuts, cuts[1:])]

    def survive(self, action: Callable[[], Result]) -> Result:
        """Run an action with collectives; after a loss, repeat it with the remaining processes, see `SurvivingWorld`.

        It returns on all processes or on none, with the action's result. This base class survives no loss.
        """
        return action()

    def isFirst(self, name: str, text: str = "") -> bool:
        """True if this process is the first on its machine to leave a note of this name, with this text."""
        return True

    def abort(self, code: int = 1) -> None:
        """End all processes at once."""
        raise SystemExit(code)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: process {self.rank} of {self.size}>"
