"""Processes that are killed again and again, in each part of a step: all others end, and the file can be loaded."""

import time

import pytest
import recipes
from launched import areGone, launched

KILLED = """
import os, random, signal, sys, time, recipes
from launched import tellPid
from puregraph import Checkpoint
from puregraph.distributed import world
from puregraph.distributed.collectives.bucketedsum import BucketedSum
from puregraph.train.objective import Objective
from puregraph.distributed.sharding import ShardedUpdate
import puregraph.serialize.checkpointwriter as checkpoint
import puregraph.core.storage.pieces as pieces
tellPid()
where, rank, step, shard = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if sys.argv[4:] else None
trainer, data, target = recipes.perceptron(callbacks=[Checkpoint("run.h5", every=2)], shard=shard)
def dying(function):
    def wrapped(*arguments, **named):
        if trainer.step >= step and world().rank == rank:
            open("died", "w").write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return wrapped
owner, name = {
    "forward": (Objective, "learner"),
    "reduction": (BucketedSum, "exchange"),
    "update": (ShardedUpdate, "run") if shard else (Objective, "update"),
    "save": (pieces if shard else checkpoint, "write"),
}[where]
setattr(owner, name, dying(getattr(owner, name)))
trainer.train(data, target, epochs=50)
"""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("where", ["forward", "reduction", "update", "save"])
def test_whoever_is_killed_all_others_end_and_the_file_stays_whole(tmp_path, where, turn):
    shard = ["state"] if turn % 2 else []
    rank = turn % 3 if where != "save" or shard else 0
    step = 4 + turn % 5
    done = launched(3, tmp_path, KILLED, where, rank, step, *shard)
    ended = time.time()
    assert done.returncode not in (0, 75), done.stdout + done.stderr
    assert ended - float((tmp_path / "died").read_text()) < 5
    assert "of 3 was killed" in done.stderr
    assert areGone(tmp_path)
    found = recipes.perceptron()[0].resume(tmp_path / "run.h5")
    assert found.step % 2 == 0 and step - 2 <= found.step <= step + 1  # the first may just have ended the step
    assert found.optimizer.step == found.step
