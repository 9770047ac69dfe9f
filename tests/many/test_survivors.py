"""Under Open MPI with ULFM those that are left go on when a process is lost, and end as one process alone does."""

import functools

import pytest
import recipes
from launched import areGone, launched, lines

from puregraph.distributed.launch import launcher

SURVIVED = """
import os, signal, sys, recipes
from launched import tellPid
from puregraph import Checkpoint, CsvLog
from puregraph.distributed import BucketedSum, world
from puregraph.train.objective import Objective
from puregraph.distributed.dataparallel import SharedStep
import puregraph.serialize.checkpointwriter as checkpoint
import puregraph.train.epochloop as epochloop
tellPid()
name, own, trainer = sys.argv[1], world().rank, None
deaths = [(where, int(rank), int(step)) for where, rank, step in (each.split("-") for each in sys.argv[2].split(","))]
PLACES = {
    "forward": (SharedStep, "partOf"),
    "reduction": (BucketedSum, "exchange"),
    "rows": (SharedStep, "column"),
    "update": (SharedStep, "update"),
    "save": (checkpoint, "write"),
    "next": (epochloop.EpochLoop, "runStep"),
}
def dying(where, function):
    def wrapped(*arguments, **named):
        if any(at == where and own == rank and trainer.step >= step for at, rank, step in deaths):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapped
for where, (owner, attribute) in PLACES.items():
    setattr(owner, attribute, dying(where, getattr(owner, attribute)))
options = dict(each.split("=") for each in sys.argv[3:])
isStream = options.pop("batches", None)
trainer, data, target = recipes.RECIPES[name](
    progress="lines", callbacks=[Checkpoint("run.h5", every=2), CsvLog("run.csv")], **options
)
given = (data, target)
if isStream:
    size = trainer.batchsize
    given = (lambda: ((data[k : k + size], target[k : k + size]) for k in range(0, len(data), size)), None)
trainer.train(*given, epochs=recipes.EPOCHS[name], validation=(data[:20], target[:20]))
print("hash", recipes.hashOf(trainer))
"""
ULFM = {"options": ["--ulfm"]}


@functools.cache
def alone(name, isStream=False):
    """The hash of a run of one process."""
    trainer, data, target = recipes.RECIPES[name]()
    size = trainer.batchsize
    batches = [(data[k : k + size], target[k : k + size]) for k in range(0, len(data), size)]
    given = (batches, None) if isStream else (data, target)
    trainer.train(*given, epochs=recipes.EPOCHS[name], validation=(data[:20], target[:20]))
    return recipes.hashOf(trainer)


def survived(folder, name, deaths, left, *options):
    """The lines of a run of four processes, after which those that were not killed have ended as one alone does."""
    done = launched(4, folder, SURVIVED, name, deaths, *options, timeout=280, **ULFM)
    found = lines(done)
    hashes = [line for line in found if line.startswith("hash")]
    assert hashes == [f"hash {alone(name, bool(options))}"] * left, (deaths, done.stdout)
    epochs = recipes.EPOCHS[name]
    begins = [f"epoch {k:{len(str(epochs))}}/{epochs} " for k in range(1, epochs + 1)]
    assert [sum(line.startswith(begin) for line in found) for begin in begins] == [1] * epochs
    assert len((folder / "run.csv").read_text().splitlines()) == epochs + 1
    assert recipes.RECIPES[name]()[0].resume(folder / "run.h5").step >= 28
    assert areGone(folder)
    assert "NBC_" not in done.stdout
    return found


@pytest.mark.openmpi
def test_survivors_of_a_killed_process_end_as_one_process_does(tmp_path):
    found = survived(tmp_path, "perceptron", "reduction-2-9", 3)
    assert "puregraph: rank 2 of 4 is lost in epoch 2, batch 5; 3 processes are left" in found


@pytest.mark.openmpi
@pytest.mark.slow
@pytest.mark.parametrize("name", recipes.RECIPES)
@pytest.mark.parametrize("where", ["forward", "reduction", "rows", "update", "save", "next"])
def test_whoever_is_killed_and_wherever_survivors_end_as_one_process_does(tmp_path, name, where):
    survived(tmp_path, name, f"{where}-{0 if where == 'save' else len(name) % 4}-5", 3)


@pytest.mark.openmpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("deaths", "left"),
    [
        ("save-0-4,forward-1-6", 2),  # the first, and then who was first after it
        ("forward-1-5,forward-3-5", 2),  # two at once
        ("reduction-0-3,update-1-9,reduction-3-20", 1),
        ("rows-1-29", 3),  # in the last step
        ("save-0-30", 3),  # behind it
    ],
)
def test_several_deaths_leave_survivors_that_end_as_one_process_does(tmp_path, deaths, left):
    survived(tmp_path, "perceptron", deaths, left)


@pytest.mark.openmpi
@pytest.mark.slow
def test_survivors_have_all_samples_of_batches_that_an_iterable_gives(tmp_path):
    survived(tmp_path, "perceptron", "next-1-9", 3, "batches=1")


@pytest.mark.openmpi
@pytest.mark.slow
@pytest.mark.parametrize("where", ["reduction", "update"])
def test_who_had_a_part_of_the_state_cannot_be_done_without_and_the_file_is_resumed(tmp_path, where):
    done = launched(4, tmp_path, SURVIVED, "perceptron", f"{where}-1-9", "shard=state", **ULFM)
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    assert done.stderr.count("has ended the run") == 1
    wanted = "shard='state': a lost process held a part of the optimizer's state that no other has; resume from"
    assert wanted in done.stderr, done.stderr
    assert areGone(tmp_path)
    trainer, data, target = recipes.perceptron()
    trainer.resume(tmp_path / "run.h5").train(data, target, epochs=6, validation=(data[:20], target[:20]))
    assert recipes.hashOf(trainer) == alone("perceptron")


ELSEWHERE = """
import os, signal, sys
from launched import tellPid
from puregraph.distributed import world
tellPid()
w = world()
w.barrier()
if w.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
w.barrier()
"""


@pytest.mark.openmpi
@pytest.mark.slow
def test_a_loss_outside_of_a_step_ends_the_run_with_a_sentence(tmp_path):
    done = launched(3, tmp_path, ELSEWHERE, **ULFM)
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "has ended the run: a process is lost without which the others cannot go on here; resume from" in last
    assert areGone(tmp_path)


FAULTY = """
import os, signal, recipes
from launched import tellPid
from puregraph.distributed import world
from puregraph.train import FunctionCallback
tellPid()
own = world().rank
def act(trainer):
    if own == 0 and trainer.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if own == 2 and trainer.step == 6:
        raise ValueError("no such thing")
trainer, data, target = recipes.perceptron(callbacks=[FunctionCallback(act)])
trainer.train(data, target, epochs=50)
"""


@pytest.mark.openmpi
@pytest.mark.slow
def test_an_exception_of_a_survivor_ends_all_as_ever(tmp_path):
    done = launched(3, tmp_path, FAULTY, **ULFM)
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "puregraph: rank 1 of 2 has ended the run in epoch 2, batch 1: ValueError: no such thing"
    assert areGone(tmp_path)


def test_survivors_take_open_mpi(monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "mpiexecPath", lambda: tmp_path / "mpiexec")
    with pytest.raises(launcher.PuregraphError, match=r"--ulfm: processes survive others with Open MPI alone, and .*"):
        launcher.commandOf(2, None, ["train.py"], ulfm=True)
    (tmp_path / "prterun").touch()
    assert "--with-ft ulfm" in " ".join(launcher.commandOf(2, None, ["train.py"], ulfm=True))
