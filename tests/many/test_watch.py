"""A process for which others wait too long is named, and the run ends."""

import time

import pytest
from launched import isRunning, launched, pidsIn

from puregraph.cli import main

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
        os.kill(os.getpid(), {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}[how])
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)])
trainer.train(data, target, epochs=50)
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("how", "rank"), [("sleep", 2), ("stop", 0), ("stop", 1)])
def test_a_late_process_is_named_within_patience_and_ends_the_run(tmp_path, how, rank):
    begun = time.monotonic()
    done = launched(3, tmp_path, LATE, how, rank, PUREGRAPH_PATIENCE="3")
    assert done.returncode == 75, done.stdout + done.stderr
    assert time.monotonic() - begun < 25
    last = done.stderr.strip().splitlines()[-1]
    assert "has waited 3." in last or "has waited 4." in last, last
    named = {word.strip(":;") for word in last.partition("): ")[2].split("rank ")[1:] for word in [word.split()[0]]}
    assert named == {str(rank)}, last
    assert "(epoch 2, batch 3)" in last
    assert ("computing" if how == "sleep" else "has been silent for") in last
    assert not any(map(isRunning, pidsIn(tmp_path)))


@pytest.mark.mpi
def test_a_process_that_is_killed_in_training_ends_all_and_is_named(tmp_path):
    done = launched(3, tmp_path, LATE, "kill", 1)
    assert done.returncode not in (0, 75)
    assert "rank 1 of 3 was killed" in done.stderr
    assert not any(map(isRunning, pidsIn(tmp_path)))


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
