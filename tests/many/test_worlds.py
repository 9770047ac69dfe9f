"""Worlds: what processes tell each other, a world of one, and one that only counts."""

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import recipes
from launched import launched, lines
from rankpool import ran

from puregraph import distributed as many
from puregraph.core.errors import ArgumentError, PuregraphError
from puregraph.distributed import CountingWorld, LinkSpeed, World
from puregraph.distributed.launch.runnote import leaveNote
from puregraph.distributed.worlds import current


def test_a_world_of_one_leaves_arrays_as_they_are():
    world, array = World(), np.arange(6.0)
    world.allReduce(array)
    world.reduceScatter(array, [0, 6])
    world.allGather(array, [0, 6])
    world.broadcast(array)
    world.barrier()
    np.testing.assert_array_equal(array, np.arange(6.0))
    assert world.gather(b"alone") == [b"alone"]
    received = np.zeros(6)
    world.allToAll([array], [received])
    np.testing.assert_array_equal(received, array)
    assert world.startBarrier().isDone()


def test_of_two_that_leave_a_note_one_is_the_first_and_whoever_sees_it_sees_all_of_it(tmp_path, monkeypatch):
    text, seen, link = "the reason " * 3, [], os.link

    def linked(own, path):
        seen.append((os.path.exists(path), Path(own).read_text()))
        link(own, path)

    monkeypatch.setattr(os, "link", linked)
    assert [leaveNote(tmp_path, "note", each) for each in (text, "another")] == [True, False]
    assert seen == [(False, text), (True, "another")] and (tmp_path / "note").read_text() == text
    assert list(tmp_path.iterdir()) == [tmp_path / "note"]
    assert leaveNote(tmp_path / "gone", "note", text)  # better twice than never


PACKAGE = f"{Path(many.__file__).parents[1]}/"


def callsOf(monkeypatch, joined, **options):
    """How often each function of the package is called in a second epoch of eight batches, but those of the threads."""
    monkeypatch.setattr(current, "CURRENT", joined)
    trainer, data, target = recipes.perceptron(batchsize=9, metrics=[], grains=None, **options)
    trainer.train(data, target)
    found = Counter()

    def note(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(PACKAGE) and "threads" not in path:
            found[f"{path.removeprefix(PACKAGE)}:{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        trainer.train(data, target)
    finally:
        sys.setprofile(None)
    return found


class Refusing(World):
    """A world of one in which nobody exchanges anything."""

    def startAllToAll(self, sent, received):
        raise AssertionError("an exchange in a world of one")

    startAllReduce = startAllGather = startReduceScatter = startBroadcast = startAllToAll


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_in_a_world_of_one_makes_the_calls_of_one_that_is_alone(monkeypatch, accumulate):
    alone = callsOf(monkeypatch, [], accumulate=accumulate)
    joint = callsOf(monkeypatch, [Refusing()], accumulate=accumulate)
    steps = 8 // accumulate
    more = {name: joint[name] - count for name, count in alone.items() if joint[name] > count}
    more |= {name: count for name, count in joint.items() if name not in alone}
    assert sum(more.values()) < steps, more  # no call more in each step
    ofMany = {name: count for name, count in joint.items() if "distributed/" in name}
    assert sum(ofMany.values()) <= 4 * steps + 16, ofMany


def test_this_process_is_alone():
    assert (many.world().rank, many.world().size) == (0, 1)


def test_a_world_that_counts_sends_nothing_and_predicts_time():
    world = CountingWorld(8, link=LinkSpeed(bandwidth=1e9, latency=1e-6))
    array = np.ones(1000, np.float32)
    world.allReduce(array)
    np.testing.assert_array_equal(array, 1)
    assert world.nbytes == 2 * 7 * 4000 // 8
    assert world.seconds == pytest.approx(2 * 3 * 1e-6 + 7000e-9)
    world.allGather(array, [125 * k for k in range(9)])
    world.barrier()
    assert [call.name for call in world.calls] == ["allReduce", "allGather", "barrier"]
    assert world.calls[1].nbytes == 3500


def test_a_world_that_counts_takes_rounds_from_the_logarithm_of_its_size():
    small, large = (CountingWorld(n, link=LinkSpeed(1e12, 1.0)) for n in (2, 100_000))
    small.allReduce(np.ones(1, np.float32))
    large.allReduce(np.ones(1, np.float32))
    assert (round(small.seconds), round(large.seconds)) == (2, 34)


def test_a_rank_outside_of_its_world_is_refused():
    with pytest.raises(ArgumentError, match="rank from 0 to below size 4, got 4"):
        CountingWorld(4, rank=4)


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_processes_that_were_not_started_to_train_together_is_refused(monkeypatch, name):
    monkeypatch.setenv(name, "3")
    with pytest.raises(PuregraphError, match=rf"one of 3 processes \({name}\).*puregraph launch -n 3"):
        many.world()


def test_a_launcher_of_another_mpi_is_refused_with_the_command_that_works(monkeypatch):
    from puregraph.distributed.worlds.mpiworld import refuseForeign

    monkeypatch.setenv("PMI_SIZE", "4")
    refuseForeign("MPICH")
    with pytest.raises(PuregraphError, match=r"mpiexec of MPICH \(PMI_SIZE=4\).*Open MPI.*puregraph launch -n 4"):
        refuseForeign("Open MPI")


COLLECTIVES = """
import numpy as np
from puregraph.distributed import world
w = world()
n, r = w.size, w.rank
a = np.arange(12, dtype=np.float32) + r
w.allReduce(a)
np.testing.assert_array_equal(a, n * np.arange(12) + n * (n - 1) / 2)
cuts = [0, 5, 5, 12][: n] + [12]
b = np.arange(12, dtype=np.float64)
w.reduceScatter(b, cuts)
np.testing.assert_array_equal(b[cuts[r] : cuts[r + 1]], n * np.arange(12.0)[cuts[r] : cuts[r + 1]])
c = np.where([cuts[r] <= i < cuts[r + 1] for i in range(12)], np.arange(12), -1).astype(np.float16)
w.allGather(c, cuts)
np.testing.assert_array_equal(c, np.arange(12))
sent = [np.full(k + 1, 10 * r + k, np.int32) for k in range(n)]
received = [np.zeros(r + 1, np.int32) for _ in range(n)]
w.allToAll(sent, received)
assert [x.tolist() for x in received] == [[10 * k + r] * (r + 1) for k in range(n)]
d = np.full(3, r, np.uint8)
w.broadcast(d, n - 1)
assert d.tolist() == [n - 1] * 3
assert w.gather(b"x" * r) == [b"x" * k for k in range(n)]
if r == 0:
    w.send(np.arange(4.0), n - 1)
if r == n - 1 and r:
    e = np.zeros(4)
    w.receive(e, 0)
    assert e.tolist() == [0, 1, 2, 3]
pending = w.startAllReduce(f := np.ones(1000, np.float32))
while not pending.isDone():
    pass
assert (f == n).all()
w.barrier()
print("rank", r, "of", n, "local", w.local, "of", w.locals)
"""


SHARED = """
from pathlib import Path
import numpy as np
from rankpool import patch
from puregraph.distributed import world
from puregraph.distributed.collectives import sharedmemory
w = world()
sizes = [5000, 8, 4096]
memory = w.sharedMemory(sizes)
assert [each.nbytes for each in memory] == sizes and not any(each.any() for each in memory)
w.barrier()
memory[w.rank][...] = w.rank + 1
w.barrier()
maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/puregraph-" in line]
assert maps and all(line.endswith(" (deleted)") for line in maps), maps  # files that go with the processes
assert all((each == rank + 1).all() for rank, each in enumerate(memory))
assert w.sharedMemory([8, 8, 8 + 4096 * w.rank]) is None  # who would be refused gets none
if w.rank == 0:
    patch(sharedmemory, "made", lambda folder, nbytes: b"")  # there is no room
assert w.sharedMemory([8, 8, 8]) is None
w.barrier()
print("shared")
"""


@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files in memory are Linux's")
def test_processes_of_one_machine_have_memory_that_all_of_them_read_and_that_goes_with_them(tmp_path):
    assert lines(ran(3, tmp_path, SHARED)) == ["shared"] * 3


@pytest.mark.mpi
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_collectives_of_mpi_give_what_they_promise(count, tmp_path):
    if count == 1:
        done = launched(1, tmp_path, COLLECTIVES.replace("if r == 0:\n    w.send", "if False:\n    w.send"))
    else:
        done = ran(count, tmp_path, COLLECTIVES)
    assert lines(done) == [f"rank {r} of {count} local {r} of {count}" for r in range(count)]
