"""CountingWorld: a simulated world, whose collectives only count bytes and predict time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from puregraph.core.errors import ArgumentError
from puregraph.distributed.collectives.memorywindow import MemoryWindow
from puregraph.distributed.worlds.world import OVER, Pending, World


class LinkSpeed(NamedTuple):
    """The speed of a link between processes: bandwidth in bytes per second, latency in seconds."""

    bandwidth: float = 25e9
    latency: float = 5e-6


class Collective(NamedTuple):
    """A collective that was called: its name, the bytes that each process sends, and the seconds it would take."""

    name: str
    nbytes: int
    seconds: float


class CountingWorld(World):
    """Process `rank` of `size` simulated ones: arrays are not changed, and `calls` lists the collectives.

    A reduction of n bytes among p takes 2 log2(p) latencies and 2 (p - 1) / p n / bandwidth, by halving and doubling;
    a gathering half of that.

    Source    Thakur, Rabenseifner, Gropp 2005, Optimization of Collective Communication Operations in MPICH
    Raises    ArgumentError for a rank outside 0 to size - 1
    """

    def __init__(self, size: int, rank: int = 0, link: LinkSpeed | None = None):
        if not 0 <= rank < size:
            raise ArgumentError(f"CountingWorld: wanted a rank from 0 to below size {size}, got {rank}")
        self.size, self.rank, self.link = size, rank, link or LinkSpeed()
        self.calls: list[Collective] = []

    @property
    def nbytes(self) -> int:
        """The bytes that this process would have sent."""
        return sum(call.nbytes for call in self.calls)

    @property
    def seconds(self) -> float:
        """The time that all calls would have taken, one after the other."""
        return sum(call.seconds for call in self.calls)

    def count(self, name: str, nbytes: float, rounds: int) -> Pending:
        """Record a collective that sends n bytes in a number of rounds."""
        seconds = rounds * self.link.latency + nbytes / self.link.bandwidth
        self.calls.append(Collective(name, round(nbytes), seconds))
        return OVER

    def share(self, nbytes: float) -> float:
        """Return the bytes that a process sends if every piece of n bytes goes around the ring once."""
        return nbytes * (self.size - 1) / self.size

    @property
    def doublings(self) -> int:
        """The number of doublings from one process to `size`, rounded up."""
        return (self.size - 1).bit_length()

    def startAllReduce(self, array: np.ndarray) -> Pending:
        return self.count("allReduce", 2 * self.share(array.nbytes), 2 * self.doublings)

    def startReduceScatter(self, array: np.ndarray, cuts: list[int]) -> Pending:
        return self.count("reduceScatter", self.share(array.nbytes), self.doublings)

    def startAllGather(self, array: np.ndarray, cuts: list[int]) -> Pending:
        return self.count("allGather", self.share(array.nbytes), self.doublings)

    def startAllToAll(self, sent: list[np.ndarray], received: list[np.ndarray]) -> Pending:
        for mine, other in zip(received, sent):
            mine[...] = other[: len(mine)] if len(other) >= len(mine) else 0
        others = [array.nbytes for r, array in enumerate(sent) if r != self.rank]
        return self.count("allToAll", sum(others), self.size - 1)

    def window(self, size: int, dtype: np.dtype) -> MemoryWindow:
        return CountingWindow(self, size, dtype)

    def startBroadcast(self, array: np.ndarray, root: int = 0) -> Pending:
        return self.count("broadcast", self.share(2 * array.nbytes), 2 * self.doublings)

    def startBarrier(self) -> Pending:
        return self.count("barrier", 0, self.doublings)

    def startSend(self, array: np.ndarray, to: int, channel: int = 0) -> Pending:
        return self.count("send", array.nbytes, 1)

    def startReceive(self, array: np.ndarray, source: int, channel: int = 0) -> Pending:
        return OVER  # counted by the sender

    def group(self, ranks: Sequence[int]) -> CountingWorld:
        smaller = CountingWorld(len(ranks), list(ranks).index(self.rank), self.link)
        smaller.calls = self.calls
        return smaller

    def gather(self, data: bytes) -> list[bytes]:
        self.count("gather", self.share(len(data) * self.size), self.doublings)
        return [data] * self.size


class CountingWindow(MemoryWindow):
    """An array of a process that does not exist: reads from others give zeros, and are counted."""

    def __init__(self, world: CountingWorld, size: int, dtype: np.dtype):
        super().__init__(size, dtype)
        self.world = world

    def read(self, rank: int, begin: int, into: np.ndarray) -> None:
        if rank == self.world.rank:
            super().read(rank, begin, into)
        else:
            into[...] = 0
            self.world.count("read", into.nbytes, 1)
