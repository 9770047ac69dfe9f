"""Clocks: simulate when each process finishes a collective, round by round of its messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from puregraph.core.errors import ArgumentError
from puregraph.distributed.worlds.countingworld import LinkSpeed

INSIDE = LinkSpeed(1e11, 1e-6)  # between two processes of one machine


class Clocks:
    """Clocks of `size` processes; a message of n bytes takes latency + n / bandwidth once both sides are ready.

    `link`    the link between machines, whose bandwidth the processes of one machine share; `inside`: within a machine
    `node`    the number of processes per machine, a divisor of `size`
    `adding`  seconds to add a byte to another one
    `times`   the clocks, in seconds

    Source    Thakur, Rabenseifner, Gropp 2005, Optimization of Collective Communication Operations in MPICH, for the
              algorithms, and for processes whose number is no power of two
    """

    def __init__(
        self, size: int, link: LinkSpeed | None = None, node: int = 1, inside: LinkSpeed = INSIDE, adding: float = 0.0
    ):
        if size < 1 or node < 1 or size % node:
            raise ArgumentError(f"Clocks: wanted a multiple of node={node} processes, got {size}")
        self.size, self.node, self.link, self.inside, self.adding = size, node, link or LinkSpeed(), inside, adding
        self.times = np.zeros(size)

    def compute(self, seconds: float, jitter: float = 0.0, seed: int = 0) -> None:
        """Advance each clock by the seconds, times a factor whose logarithm has the standard deviation `jitter`."""
        self.times += seconds * factors(self.size, jitter, seed)

    def allReduce(self, nbytes: float, algorithm: str = "ring") -> None:
        """Advance the clocks by an all-reduce of n bytes over all processes.

        Raises    ArgumentError for an unknown algorithm
        """
        if algorithm not in ALGORITHMS:
            raise ArgumentError(f"allReduce: wanted {', '.join(ALGORITHMS)}, got {algorithm!r}")
        if self.node == 1 or self.size == self.node:
            link = self.link if self.node == 1 else self.inside
            self.times = ALGORITHMS[algorithm](self.times, nbytes, link, self.adding)
            return
        # reduce-scatter within a machine, all-reduce of each shard between machines, all-gather within a machine
        withinMachine = (self.node - 1) * (self.inside.latency + nbytes / self.node / self.inside.bandwidth)
        adding = (self.node - 1) * nbytes / self.node * self.adding
        arrived = self.times.reshape(-1, self.node).max(1) + withinMachine + adding
        share = self.link._replace(bandwidth=self.link.bandwidth / self.node)
        ends = ALGORITHMS[algorithm](arrived, nbytes / self.node, share, self.adding)
        self.times = np.repeat(ends + withinMachine, self.node)

    def step(
        self, forward: float, backward: float, buckets: list[float], algorithm: str, jitter: float = 0.0, seed: int = 0
    ) -> float:
        """Return the fraction of a step that processes wait on average, given seconds and buckets in bytes.

        Buckets become ready one after the other during backward, in proportion to their bytes, and are exchanged then.
        """
        slow, begun, total = factors(self.size, jitter, seed), self.times, sum(buckets)
        done = 0.0
        for nbytes in buckets:
            done += nbytes
            self.times = np.maximum(self.times, begun + slow * (forward + backward * done / total))
            self.allReduce(nbytes, algorithm)
        computed = begun + slow * (forward + backward)
        self.times = np.maximum(self.times, computed)
        return float(1 - (computed - begun).mean() / (self.times - begun).max())


def factors(size: int, jitter: float, seed: int) -> np.ndarray:
    """Return the random factor of each process's compute time."""
    return np.exp(np.random.default_rng(seed).normal(0, jitter, size)) if jitter else np.ones(size)


def ring(times: np.ndarray, nbytes: float, link: LinkSpeed, adding: float) -> np.ndarray:
    """Time a ring all-reduce: 2 (p - 1) rounds that each send 1 / p of the array to the next rank.

    All rounds take equally long, so the slowest process delays the rank k behind it after k rounds. After p - 1 rounds
    all ranks have waited for it, and no rank waits in the remaining rounds.
    """
    p = len(times)
    roundTime = link.latency + nbytes / p / link.bandwidth
    return np.full(p, times.max() + (p - 1) * (2 * roundTime + nbytes / p * adding)) if p > 1 else times


def doubling(times: np.ndarray, nbytes: float, link: LinkSpeed, adding: float) -> np.ndarray:
    """Time recursive doubling: log p rounds that exchange the full array, at twice the distance each time."""
    roundTime = link.latency + nbytes / link.bandwidth

    def rounds(clocks: np.ndarray) -> np.ndarray:
        for k in range(len(clocks).bit_length() - 1):
            clocks = met(clocks, 1 << k) + roundTime + nbytes * adding
        return clocks

    return accumulated(times, rounds, roundTime, nbytes * adding)


def halving(times: np.ndarray, nbytes: float, link: LinkSpeed, adding: float) -> np.ndarray:
    """Time recursive halving and doubling: log p rounds of ever smaller halves (reduce-scatter), then back
    (all-gather)."""

    def rounds(clocks: np.ndarray) -> np.ndarray:
        steps = [(1 << k, nbytes / (2 << k)) for k in range(len(clocks).bit_length() - 1)]
        for distance, size in steps:
            clocks = met(clocks, distance) + link.latency + size / link.bandwidth + size * adding
        for distance, size in reversed(steps):
            clocks = met(clocks, distance) + link.latency + size / link.bandwidth
        return clocks

    return accumulated(times, rounds, link.latency + nbytes / link.bandwidth, nbytes * adding)


def met(times: np.ndarray, distance: int) -> np.ndarray:
    """Return the later time of each process and its partner at `distance`, a power of two, as is their number."""
    pairs = times.reshape(-1, 2, distance)
    return np.broadcast_to(pairs.max(1, keepdims=True), pairs.shape).reshape(-1)


def accumulated(
    times: np.ndarray, rounds: Callable[[np.ndarray], np.ndarray], sending: float, adding: float
) -> np.ndarray:
    """Time the rounds of a power of two of processes. Each surplus process first sends its array to a neighbour, and
    receives the sum at the end."""
    p = len(times)
    more = p - (1 << (p.bit_length() - 1))
    ends, pairs = times.copy(), times[: 2 * more].reshape(-1, 2)
    inner = np.concatenate([pairs.max(1) + sending + adding, times[2 * more :]]) if more else times
    after = rounds(inner)
    ends[: 2 * more : 2], ends[2 * more :] = after[:more], after[more:]
    ends[1 : 2 * more : 2] = after[:more] + sending
    return ends


ALGORITHMS: dict[str, Callable[[np.ndarray, float, LinkSpeed, float], np.ndarray]] = {
    "ring": ring,
    "doubling": doubling,
    "halving": halving,
}
