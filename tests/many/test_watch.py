"""A process for which others wait too long is named, and the run ends."""

import time

import pytest
import recipes
from launched import isRunning, launched, namedAsKilled, pidsIn

from puregraph.cli import main
from puregraph.many.watch import Report, Watch

LATE = """
import os, signal, sys, time, recipes
from launched import tellPid
from puregraph.many import world
from puregraph.train import FunctionCallback
tellPid()
how, rank, step = sys.argv[1], int(sys.argv[2]), 7
def act(trainer):
    if trainer.step == step and world().rank == rank:
        if how == "sleep":
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGSTOP)
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)])
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


def looking(*arrived):
    """A watch over processes of which each has come to collective 7 so many seconds ago."""
    now = time.monotonic()
    reports = [Report(6, True, "", now) for _ in arrived]
    return Looking(Saying(), 3.0, reports, [now - each for each in arrived])


def test_who_has_waited_for_long_does_not_end_the_run_when_the_last_has_just_come():
    looking(3.5, 0.1, 3.5).look()


def test_who_all_wait_in_one_collective_for_too_long_have_lost_a_connection():
    with pytest.raises(
        EndedError, match="has waited 3.1 s in collective 7: all others wait there too: a connection may be cut"
    ):
        looking(3.5, 3.1, 3.5).look()


def test_a_silent_process_is_late_even_if_its_last_word_was_that_it_waits():
    watch = looking(3.4, 3.5, 3.3)
    watch.reports[1] = watch.reports[1]._replace(heard=time.monotonic() - 3.4)
    with pytest.raises(
        EndedError, match="rank 0 of 3 has waited 3.4 s in collective 7: rank 1 has been silent for 3.4 s"
    ):
        watch.look()


@pytest.mark.mpi
@pytest.mark.parametrize(("how", "rank"), [("sleep", 2), ("stop", 0), ("stop", 1)])
def test_a_late_process_is_named_within_patience_and_ends_the_run(tmp_path, how, rank):
    begun = time.monotonic()
    done = launched(
        3, tmp_path, LATE, how, rank, PUREGRAPH_PATIENCE="6"
    )  # longer than a step takes that compiles, on a busy machine
    assert done.returncode == 75, done.stdout + done.stderr
    assert time.monotonic() - begun < 60
    last = done.stderr.strip().splitlines()[-1]
    assert "has waited 6." in last or "has waited 7." in last, last
    named = {word.strip(":;") for word in last.partition("): ")[2].split("rank ")[1:] for word in [word.split()[0]]}
    assert named == {str(rank)}, last
    assert "(epoch 2, batch 3)" in last
    assert ("computing" if how == "sleep" else "has been silent for") in last
    assert not any(map(isRunning, pidsIn(tmp_path)))


KILLED = """
import os, signal, sys, time
import recipes
from launched import tellPid
from puregraph import Checkpoint
from puregraph.many import world
from puregraph.many.treesum import TreeSum
from puregraph.train.objective import Objective
import puregraph.checkpoint as checkpoint
tellPid()
where, rank = sys.argv[1], int(sys.argv[2])
trainer, data, target = recipes.perceptron(callbacks=[Checkpoint("run.h5", every=2)])
def dying(function):
    def wrapped(*arguments, **named):
        if trainer.step >= 6 and world().rank == rank:
            with open("died", "w") as file:
                file.write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapped
owner, name = {
    "forward": (Objective, "learner"),
    "reduction": (TreeSum, "reduceScatter"),
    "update": (Objective, "update"),
    "save": (checkpoint, "write"),
}[where]
setattr(owner, name, dying(getattr(owner, name)))
trainer.train(data, target, epochs=50)
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("where", "rank"), [("forward", 1), ("reduction", 2), ("update", 1), ("save", 0)])
def test_a_process_that_is_killed_ends_all_within_five_seconds_and_the_file_stays_whole(tmp_path, where, rank):
    done = launched(3, tmp_path, KILLED, where, rank)
    ended = time.time()
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    assert ended - float((tmp_path / "died").read_text()) < 5
    assert rank in namedAsKilled(done, 3), done.stderr
    assert not any(map(isRunning, pidsIn(tmp_path)))
    assert recipes.perceptron()[0].resume(tmp_path / "run.h5").step in (4, 6)


@pytest.mark.mpi
def test_computing_for_long_is_no_fault_while_nobody_waits(tmp_path):
    text = """
        import time
        from puregraph.many import world
        time.sleep(3)
        world().barrier()
    """
    assert launched(2, tmp_path, text, PUREGRAPH_PATIENCE="1.5").returncode == 0


def test_a_patience_that_cannot_be_is_refused(capsys, tmp_path):
    assert main(["launch", "-n", "2", "--patience", "0", str(tmp_path / "no.py")]) == 1
    assert "--patience: wanted a number of seconds above 0, got 0" in capsys.readouterr().err
