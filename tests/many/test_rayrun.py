"""Runs that Ray starts again: when a process is killed, and with more workers when there are more."""

import subprocess
import sys
import textwrap

import pytest
import recipes
from processes import environment

from puregraph import PuregraphError
from puregraph.distributed.ray import RayRun

TRAINING = """
import os, signal, sys, time
from pathlib import Path
import recipes
from puregraph import Checkpoint
from puregraph.distributed import world
from puregraph.train import FunctionCallback

def act(trainer):
    Path(f"step-{trainer.step}").touch()
    if sys.argv[1] == "die" and trainer.step == 9 and world().rank == 1 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "raise" and trainer.step == 2:
        raise ValueError("nobody knows why")
    if sys.argv[1] == "grow" and trainer.step >= 9 and world().size == 2:
        time.sleep(600)  # until it is started again

trainer, data, target = recipes.perceptron(callbacks=[Checkpoint("run.h5", every=4), FunctionCallback(act)])
if Path("run.h5").exists():
    trainer.resume("run.h5")
Path(f"begins-{world().size}-{trainer.step}-{world().rank}").touch()
trainer.train(data, target, epochs=6)
found = recipes.hashOf(trainer)
if world().rank == 0:
    Path("hash").write_text(found)
"""

SUPERVISING = """
import os, sys, threading, time, types
from pathlib import Path
import ray
from ray._private import node
from ray.cluster_utils import Cluster
from puregraph.distributed.ray import RayRun

os.environ["RAY_AUTH_MODE"] = "disabled"
node.time = types.SimpleNamespace(**vars(time))  # Ray gives a node 30 seconds to start: more on a busy machine
node.time.monotonic = lambda: time.monotonic() / 10
what, workers = sys.argv[1], eval(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 100 << 20})
ray.init(address=cluster.address, log_to_driver=False)

def supervise():
    try:
        RayRun("train.py", workers, (what,), failures=1, interval=1.0, storage="storage").fit()
    except Exception as error:
        print(type(error).__name__, error)

thread = threading.Thread(target=supervise)
thread.start()
while what == "grow" and thread.is_alive():
    if Path("step-9").exists():
        cluster.add_node(wait=False, num_cpus=1, object_store_memory=100 << 20)
        break
    time.sleep(0.2)
thread.join()
ray.shutdown()
cluster.shutdown()
"""


def supervised(folder, what, workers):
    """What came of a run under Ray: what it has printed."""
    (folder / "train.py").write_text(textwrap.dedent(TRAINING))
    run = [sys.executable, "-c", SUPERVISING, what, repr(workers)]
    patient = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300"}
    given = environment(PUREGRAPH_DEVICE="cpu", RAY_AUTH_MODE="disabled", **patient)
    done = subprocess.run(run, env=given, capture_output=True, text=True, timeout=550, cwd=folder)
    return done.stdout + done.stderr


def wanted():
    """The hash of a run that nothing happens to."""
    trainer, data, target = recipes.perceptron()
    trainer.train(data, target, epochs=6)
    return recipes.hashOf(trainer)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.ray
@pytest.mark.parametrize(("what", "workers", "begun"), [("die", 2, "begins-2-8-*"), ("grow", (2, 3), "begins-3-8-*")])
def test_a_run_that_is_started_again_ends_as_one_that_was_not(tmp_path, what, workers, begun):
    said = supervised(tmp_path, what, workers)
    assert (tmp_path / "hash").exists(), said
    assert (tmp_path / "hash").read_text() == wanted(), said
    assert len(list(tmp_path.glob("begins-2-0-*"))) == 2 and list(tmp_path.glob(begun)), said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.ray
def test_a_run_that_fails_again_and_again_says_why(tmp_path):
    said = supervised(tmp_path, "raise", 2)
    assert "PuregraphError RayRun: 'train.py' is given up: " in said and "ValueError: nobody knows why" in said, said


def test_what_cannot_be_meant_is_refused(tmp_path):
    script = tmp_path / "train.py"
    with pytest.raises(PuregraphError, match=r"there is no script '.*train.py'"):
        RayRun(script)
    script.touch()
    for workers in (0, True, (3, 2), (1, 2, 3), "2", 1.5):
        with pytest.raises(PuregraphError, match="workers: wanted a number of at least 1, or .fewest, most., got"):
            RayRun(script, workers)
    assert repr(RayRun(script, (2, 3))) == "<RayRun of train.py, workers (2, 3)>"
