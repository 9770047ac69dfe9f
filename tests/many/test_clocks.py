"""Clocks of all processes: each algorithm against messages that are sent one by one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages import ROOT
from processes import environment

from puregraph.core.errors import ArgumentError
from puregraph.distributed import Clocks, LinkSpeed
from puregraph.distributed.plan.clocks import ALGORITHMS

LINK, ADDING = LinkSpeed(1e6, 0.5), 1e-7


def cost(nbytes, isAdded):
    """The seconds of a message."""
    return LINK.latency + nbytes / LINK.bandwidth + (nbytes * ADDING if isAdded else 0)


def ringed(times, nbytes):
    """A ring, process by process and round by round."""
    p = len(times)
    for turn in range(2 * (p - 1)):
        times = [max(times[i], times[i - 1]) + cost(nbytes / p, turn < p - 1) for i in range(p)]
    return times


def exchanged(times, nbytes, sizes):
    """Exchanges of these bytes, added or not, at these distances; who is too many gives its array to a neighbour."""
    p = len(times)
    power = 1 << (p.bit_length() - 1)
    times, more = list(times), p - power
    for i in range(more):
        times[2 * i] = max(times[2 * i], times[2 * i + 1]) + cost(nbytes, True)
    ranks = [*range(0, 2 * more, 2), *range(2 * more, p)]
    for distance, size, isAdded in sizes(power):
        found = {ranks[i]: max(times[ranks[i]], times[ranks[i ^ distance]]) + cost(size, isAdded) for i in range(power)}
        for rank, time in found.items():
            times[rank] = time
    for i in range(more):
        times[2 * i + 1] = times[2 * i] + cost(nbytes, False)
    return times


def wholes(nbytes):
    return lambda p: [(1 << k, nbytes, True) for k in range(p.bit_length() - 1)]


def halves(nbytes):
    def sizes(p):
        down = [(1 << k, nbytes / (2 << k)) for k in range(p.bit_length() - 1)]
        return [(d, s, True) for d, s in down] + [(d, s, False) for d, s in reversed(down)]

    return sizes


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 13])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_clocks_show_what_messages_take_that_are_sent_one_by_one(rng, size, algorithm):
    begun, nbytes = rng.exponential(2.0, size), 3e6
    clocks = Clocks(size, LINK, adding=ADDING)
    clocks.times = begun.copy()
    clocks.allReduce(nbytes, algorithm)
    ways = {
        "ring": lambda: ringed(begun, nbytes),
        "doubling": lambda: exchanged(begun, nbytes, wholes(nbytes)),
        "halving": lambda: exchanged(begun, nbytes, halves(nbytes)),
    }
    np.testing.assert_allclose(clocks.times, ways[algorithm]())


def test_machines_add_up_what_their_processes_have_before_anything_leaves_them():
    inside, nbytes = LinkSpeed(1e9, 0.01), 8e6
    clocks = Clocks(8, LINK, node=4, inside=inside)
    clocks.times[5] = 7.0
    clocks.allReduce(nbytes, "ring")
    within = 3 * (0.01 + nbytes / 4 / 1e9)
    between = 2 * (LINK.latency + nbytes / 4 / 2 / (LINK.bandwidth / 4))
    np.testing.assert_allclose(clocks.times, 7.0 + 2 * within + between)
    alone = Clocks(4, LINK, node=4, inside=inside)
    alone.allReduce(nbytes, "ring")
    np.testing.assert_allclose(alone.times, 6 * (0.01 + nbytes / 4 / 1e9))


def test_what_backward_hides_is_not_waited_for():
    free = Clocks(4, LinkSpeed(1e6, 0.0))
    assert free.step(1.0, 3.0, [1e6, 1e6], "ring") == pytest.approx(1 - 4 / 5.5)  # the second begins with the end
    hidden = Clocks(4, LinkSpeed(1e15, 0.0))
    assert hidden.step(1.0, 3.0, [1e6, 1e6], "ring") == pytest.approx(0, abs=1e-6)
    assert free.times == pytest.approx(5.5)


def test_whoever_computes_longer_is_waited_for_by_all():
    even, uneven = Clocks(1000), Clocks(1000)
    assert even.step(1.0, 2.0, [1e6], "halving") < 0.01
    assert 0.05 < uneven.step(1.0, 2.0, [1e6], "halving", jitter=0.03) < 0.15


def test_a_hundred_thousand_processes_are_one_array():
    clocks = Clocks(100_000, node=8)
    for algorithm in ALGORITHMS:
        assert 0 < clocks.step(0.1, 0.2, [1e9 / 8] * 8, algorithm, jitter=0.02) < 1
    assert np.isfinite(clocks.times).all() and clocks.times.shape == (100_000,)


def test_what_clocks_cannot_show_is_refused():
    with pytest.raises(ArgumentError, match="a multiple of node=8 processes, got 12"):
        Clocks(12, node=8)
    with pytest.raises(ArgumentError, match="wanted ring, doubling, halving, got 'tree'"):
        Clocks(4).allReduce(1e6, "tree")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rings_between_hosts_take_what_clocks_show_that_were_fitted_to_two():
    if shutil.which("tc") is None or os.geteuid() or (Path(sys.executable).parent / "prterun").exists():
        pytest.skip("hosts are network namespaces with limited links, which root makes on Linux; between them is MPICH")
    run = [sys.executable, str(ROOT / "benchmarks" / "clocks.py"), "--json"]
    done = subprocess.run(run, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    errors = [abs(shown / seconds - 1) for _, _, seconds, shown in json.loads(done.stdout.splitlines()[-1])]
    assert len(errors) == 15
    assert np.median(errors) < 0.10 and max(errors) < 0.25, errors
