"""Measure: the figures of this machine for a plan, measured by the processes of `puregraph plan --measure`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from puregraph.distributed.worlds.countingworld import LinkSpeed
from puregraph.distributed.worlds.current import world
from puregraph.distributed.worlds.world import World
from puregraph.graph.sequential import Sequential
from puregraph.modules import Linear, Relu
from puregraph.modules.costs import MSE

MEASURED_WIDTH, MEASURED_SAMPLES = 1024, 128
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 21)  # elements of the exchanged arrays
TURNS = 7


def fastest(here: World, action: Callable[[], object]) -> float:
    """Return the shortest time of an action in seconds, on the slowest process."""
    durations = []
    for _ in range(TURNS):
        here.barrier()
        begin = time.perf_counter()
        action()
        durations.append(time.perf_counter() - begin)
    every = np.zeros(here.size)
    every[here.rank] = min(durations)
    here.allReduce(every)
    return float(every.max()) if here.size > 1 else min(durations)


def linkFrom(times: dict[int, float], rounds: int = 2) -> LinkSpeed:
    """Fit the link speed to the seconds that exchanges of these bytes take, by least squares of relative errors."""
    rows = np.array([[rounds / t, n / t] for n, t in times.items()])
    latency, perByte = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
    return LinkSpeed(1 / max(perByte, 1e-15), max(latency, 0.0))


def exchange(here: World, array: Any, cuts: list[int], parts: list[Any], received: list[Any]) -> None:
    """Run the exchange of a step: an all-to-all of the parts, then an all-gather of the array."""
    here.allToAll(parts, received)
    here.allGather(array, cuts)


def exchangeTimes(here: World) -> dict[int, float]:
    """Measure the exchange of a step without its additions: seconds by the bytes that a process sends."""
    times = {}
    for size in SIZES:
        array = np.ones(size, np.float32)
        cuts = [size * r // here.size for r in range(here.size + 1)]
        parts = [array[a:b] for a, b in zip(cuts, cuts[1:])]
        received = [np.empty_like(parts[here.rank]) for _ in parts]

        sent = 2 * (here.size - 1) * array.nbytes // here.size
        times[sent] = fastest(here, partial(exchange, here, array, cuts, parts, received))
    return times


def computeRate(here: World) -> float:
    """The operations a second of forward and backward of a network, while all processes compute."""
    net = Sequential(Linear(MEASURED_WIDTH, MEASURED_WIDTH), Relu(), Linear(MEASURED_WIDTH, MEASURED_WIDTH), name="net")
    shape = (MEASURED_SAMPLES, MEASURED_WIDTH)
    program = net.compile(shape, shape, cost=MSE())
    x = np.ones(shape, np.float32)
    program.run(x, x)
    return 3 * 2 * 2 * MEASURED_SAMPLES * MEASURED_WIDTH**2 / fastest(here, lambda: program.run(x, x))


def memoryRate(here: World) -> float:
    """The bytes a second that an addition reads and writes, while all processes add."""
    one, two = np.ones(1 << 24, np.float32), np.ones(1 << 24, np.float32)
    return 3 * one.nbytes / fastest(here, lambda: np.add(one, two, out=one))


def main() -> None:
    """Measure, and print the options of `puregraph plan`."""
    here = world()
    link = linkFrom(exchangeTimes(here))
    flops, bandwidth = computeRate(here), memoryRate(here)
    if here.rank == 0:
        print(
            f"--link {link.bandwidth:.3g},{link.latency:.3g} --flops {flops:.3g} --bandwidth {bandwidth:.3g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
