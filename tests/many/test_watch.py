"""A process for which others wait too long is named, and the run ends."""

import os
import re
from types import SimpleNamespace

import pytest
import recipes
from launched import areGone, isNamedInTime, launched, namedAsKilled

from puregraph.cli import main
from puregraph.distributed.launch import watch
from puregraph.distributed.launch.watch import CODE, Report, Watch

LATE = """
import os, signal, sys, time, recipes
from launched import tellPauses, tellPid
from puregraph.distributed import world
from puregraph.train import FunctionCallback
tellPid()
how, rank, step = sys.argv[1], int(sys.argv[2]), 7
def act(trainer):
    if trainer.step == step:  # all have compiled: until here, who compiles for long is not late
        world().watch.patience /= 20
        if world().rank == rank:
            if how == "sleep":
                time.sleep(600)
            os.kill(os.getpid(), signal.SIGSTOP)
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)])
tellPauses(world().watch)
trainer.train(data, target, epochs=50)
"""


class EndedError(Exception):
    """The run would end."""


class Looking(Watch):
    """A watch without processes, whose reports a test writes: it looks, and says whom it would name."""

    def __init__(self, world, patience, reports, since):
        self.world, self.patience, self.reports, self.since = world, patience, reports, since


class Saying:
    """A world of three that does not end, but raises what it would say."""

    size, hasLauncher = 3, False

    def isFirst(self, name, text):
        """Whether nobody has said it before."""
        return True

    def say(self, text):
        """What ends the run here."""
        raise EndedError(text)


NOW = 1000.0


@pytest.fixture
def looking(monkeypatch):
    """Makes a watch over processes of which each has come to collective 7 so many seconds ago; the clock stands."""
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: NOW))

    def made(*arrived):
        reports = [Report(6, True, "", NOW) for _ in arrived]
        return Looking(Saying(), 3.0, reports, [NOW - each for each in arrived])

    return made


def test_who_has_waited_for_long_does_not_end_the_run_when_the_last_has_just_come(looking):
    looking(3.5, 0.1, 3.5).look()


def test_who_all_wait_in_one_collective_for_too_long_have_lost_a_connection(looking):
    with pytest.raises(
        EndedError, match="has waited 3.1 s in collective 7: all others wait there too: a connection may be cut"
    ):
        looking(3.5, 3.1, 3.5).look()


def test_a_silent_process_is_late_even_if_its_last_word_was_that_it_waits(looking):
    found = looking(3.4, 3.5, 3.3)
    found.reports[1] = found.reports[1]._replace(heard=NOW - 3.4)
    with pytest.raises(
        EndedError, match="rank 0 of 3 has waited 3.4 s in collective 7: rank 1 has been silent for 3.4 s"
    ):
        found.look()


@pytest.mark.parametrize("how", ["asleep", "stopped", "stopped in the collective", "cut off"])
@pytest.mark.parametrize("begin", [0.0, 0.07, 0.13])
def test_whoever_is_late_is_named_within_a_second_after_patience(looking, monkeypatch, how, begin):
    found, ticks = looking(0, 0, 0), 0
    while True:
        now = NOW + ticks * watch.LOOK
        monkeypatch.setattr(watch.time, "monotonic", lambda now=now: now)
        comes = now - NOW > begin  # to collective 7, where the others wait
        for rank in range(3):
            isLate = rank == 1 and comes
            if isLate and how in ("stopped", "cut off") or isLate and how != "asleep" and now - NOW > begin + 0.5:
                continue  # nothing is heard of it
            waits = comes and (rank != 1 or how == "stopped in the collective")
            found.take(rank, Report(6, waits, "", now))
        try:
            found.look()
        except EndedError as error:
            assert ": rank 1 " in str(error) and "rank 2 " not in str(error), error
            assert 3.0 <= now - NOW - begin <= 3.0 + 1
            return
        ticks += 1


@pytest.mark.mpi
@pytest.mark.parametrize(("how", "rank"), [("sleep", 2), ("stop", 0), pytest.param("stop", 1, marks=pytest.mark.slow)])
def test_a_late_process_is_named_once_patience_is_over_and_ends_the_run(tmp_path, how, rank):
    done = launched(3, tmp_path, LATE, how, rank, PUREGRAPH_PATIENCE="50")
    assert done.returncode == CODE, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert isNamedInTime(tmp_path, last, 2.5), last  # a twentieth of the patience
    named = {word.strip(":;") for word in last.partition("): ")[2].split("rank ")[1:] for word in [word.split()[0]]}
    assert named == {str(rank)}, last
    assert "(epoch 2, batch 3, bucket 1: linear.b)" in last
    hint = "computing; if it should, 2.5 s of --patience are too few for it"
    assert (hint if how == "sleep" else "has been silent for") in last
    assert areGone(tmp_path)


STOPPED = """
import os, signal, recipes
from launched import tellPid
from puregraph.distributed import world
from puregraph.train import FunctionCallback
tellPid()
def act(trainer):
    if trainer.step == 7:
        world().watch.patience /= 20
        if world().rank < 2:
            os.kill(os.getpid(), signal.SIGSTOP)
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)], compile=False)
trainer.train(data, target, epochs=50)
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_where_both_watchers_are_stopped_the_next_ones_name_them(tmp_path):
    done = launched(4, tmp_path, STOPPED, PUREGRAPH_PATIENCE="50")
    assert done.returncode == CODE, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert re.match(r"puregraph: rank [23] of 4 has waited", last), last
    assert "rank 0 has been silent" in last and "rank 1 has been silent" in last
    assert areGone(tmp_path)


def test_watchers_are_followed_by_the_next_ones_when_all_of_them_are_silent(looking):
    found = looking(0, 0, 0)
    found.world.size, found.watchers = 3, [0, 1]
    assert found.successors(NOW) == []
    found.reports[0] = found.reports[0]._replace(heard=NOW - 3)
    assert found.successors(NOW) == []  # the other one is there
    found.reports[1] = found.reports[1]._replace(heard=NOW - 3)
    assert found.successors(NOW) == [2] and found.reports[2].heard == NOW


KILLED = """
import os, re, signal, sys
from pathlib import Path
import recipes
from launched import tellPid
from puregraph import Checkpoint
from puregraph.distributed import world
from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.train.objective import Objective
import puregraph.serialize.checkpointwriter as checkpoint
tellPid()
where, rank = sys.argv[1], int(sys.argv[2])
shared = re.findall("/dev/shm/mpich[^ \\n]+", Path("/proc/self/maps").read_text())
Path(f"{rank}.shared").write_text(" ".join(shared))
trainer, data, target = recipes.perceptron(callbacks=[Checkpoint("run.h5", every=2)])
def dying(function):
    def wrapped(*arguments, **named):
        if trainer.step >= 6 and world().rank == rank:
            open("died", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapped
owner, name = {
    "forward": (Objective, "learner"),
    "reduction": (BucketedSum, "exchange"),
    "update": (Objective, "update"),
    "save": (checkpoint, "write"),
}[where]
setattr(owner, name, dying(getattr(owner, name)))
trainer.train(data, target, epochs=50)
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("where", "rank"), [("reduction", 2), ("save", 0)])
def test_a_process_that_is_killed_ends_all_and_the_file_stays_whole(tmp_path, where, rank):
    done = launched(3, tmp_path, KILLED, where, rank)
    assert done.returncode not in (0, CODE), done.stdout + done.stderr  # nobody had to be missed
    assert (tmp_path / "died").exists()
    assert rank in namedAsKilled(done, 3), done.stderr
    assert areGone(tmp_path)
    assert recipes.perceptron()[0].resume(tmp_path / "run.h5").step in (4, 6)
    shared = [name for path in tmp_path.glob("*.shared") for name in path.read_text().split()]
    assert not any(map(os.path.exists, shared)), "memory is left behind"


def test_computing_for_long_is_no_fault_while_nobody_waits(looking):
    found = looking(0, 0, 0)
    for rank in range(3):
        found.take(rank, Report(5, False, "", NOW - 100))
        found.take(rank, Report(5, False, "", NOW))
    found.look()
    found.take(0, Report(5, True, "", NOW))  # has only just come
    found.look()


def test_a_patience_that_cannot_be_is_refused(capsys, tmp_path):
    assert main(["launch", "-n", "2", "--patience", "0", str(tmp_path / "no.py")]) == 1
    assert "--patience: wanted a number of seconds above 0, got 0" in capsys.readouterr().err
