"""Processes that train together begin alike, stop after the same step, and go on from each other's files."""

import json
import signal
import subprocess

import pytest
import recipes
from launched import command, lines, waited, written
from processes import environment
from rankpool import ran

from puregraph import Checkpoint

REFUSED = """
import sys, numpy as np, puregraph
from puregraph import Adam, CrossEntropy, Linear, SGD, Sequential, Trainer
from puregraph.core.errors import DataError
from puregraph.distributed import world
odd = world().rank == 1
rng = np.random.default_rng(0)
x, t = rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 3, 40)
def attempt(net=None, optimizer=None, data=x, target=t, **options):
    puregraph.seed(0)
    net = net or Sequential(Linear(6, 3, name="fc"), name="net")
    try:
        Trainer(net, CrossEntropy(), optimizer or SGD(0.1), batchsize=8, progress="none", **options).train(data, target)
    except DataError as error:
        print(error)
attempt(net=Sequential(Linear(6, 4 if odd else 3, name="fc"), name="net"))
attempt(optimizer=SGD(0.2) if odd else SGD(0.1))
attempt(data=x[:39] if odd else x, target=t[:39] if odd else t)
attempt(data=x.astype(np.float64) if odd else x)
attempt(data=x + 1 if odd else x)
attempt(accumulate=2 if odd else 1)
attempt(seed=5 if odd else 0)
wide = Sequential(Linear(6, 3, name="fc"), name="net")
if odd:
    wide["fc"].b.data += 1
attempt(net=wide)
def batches():
    for k in range(3 - odd):
        yield x[:8], t[:8]
attempt(data=batches, target=None)
attempt()
print("done")
"""


@pytest.mark.mpi
def test_processes_that_would_not_train_alike_are_refused_before_the_first_step(tmp_path):
    found = lines(ran(3, tmp_path, REFUSED))
    assert found[::3] == found[1::3] == found[2::3]  # all say the same
    begin = "processes would not train alike: rank 0 has "
    texts = [line.removeprefix(begin) for line in found[::3]]
    wanted = [
        "'fc.W' of float32 (6, 3), trained; rank 1 has 'fc.W' of float32 (6, 4), trained",
        "the optimizer SGD(0.1) after 0 updates; rank 1 has the optimizer SGD(0.2) after 0 updates",
        "40 samples of data; rank 1 has 39 samples of data",
        "data of float32 (6,), int64 (); rank 1 has data of float64 (6,), int64 ()",
        "data whose first samples have the checksum",
        "accumulate 1; rank 1 has accumulate 2",
        "the order of samples",
        "values of 'fc.b' with the checksum",
        "step 3 of the epoch: processes have batches of other sizes, rank 0 8, rank 1 no more",
        "done",
    ]
    for text in wanted:
        assert sum(found.startswith(text) for found in texts) == 1, (text, texts)
    assert len(texts) == len(wanted)


SAVING = """
import sys, recipes
from puregraph import Checkpoint, CsvLog
from puregraph.distributed import world
trainer, data, target = recipes.convolutional(progress="lines")
trainer.callbacks[:0] = [Checkpoint("run.h5", every=3, keep=9), CsvLog("run.csv")]
trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
print("hash", recipes.hashOf(trainer))
"""

RESUMING = """
import sys, recipes
from puregraph import Checkpoint
for step in sys.argv[1:]:
    trainer, data, target = recipes.convolutional()
    trainer.callbacks[:0] = [Checkpoint("again.h5", every=3, keep=9)]
    trainer.resume(f"run-{step}.h5")
    trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
    print("hash", recipes.hashOf(trainer))
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("saving", "counts"), [(3, (3,)), pytest.param(4, (1, 3, 8), marks=pytest.mark.slow)])
def test_a_run_saved_by_several_processes_goes_on_to_the_bit_with_any_number(saving, counts, tmp_path):
    done = ran(saving, tmp_path, SAVING)
    assert done.returncode == 0, done.stderr
    found = {line for line in done.stdout.splitlines() if line.startswith("hash")}
    assert len(found) == 1
    assert done.stdout.count("epoch 1/2") == 1  # progress is that of the first process
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == ["run-3.h5", "run-6.h5"]
    assert len((tmp_path / "run.csv").read_text().splitlines()) == 3
    for count in counts:
        again = ran(count, tmp_path, RESUMING, 3, 6)
        assert again.returncode == 0, again.stderr
        assert set(again.stdout.splitlines()) == found
    for step in (3, 6):
        trainer, data, target = recipes.convolutional()
        trainer.callbacks[:0] = [Checkpoint(tmp_path / "again.h5", every=3, keep=9)]
        trainer.resume(tmp_path / f"run-{step}.h5")
        trainer.train(data, target, epochs=2, validation=(data[:20], target[:20]))
        assert {f"hash {recipes.hashOf(trainer)}"} == found


INTERRUPTED = """
import time, recipes
from pathlib import Path
from puregraph import Checkpoint
from puregraph.distributed import world
from puregraph.train import FunctionCallback
def slowly(trainer):
    Path(f"at-{world().rank}").write_text(str(trainer.step))
    time.sleep(0.05)
trainer, data, target = recipes.perceptron(progress="lines")
trainer.callbacks[:0] = [Checkpoint("run.h5", every=10000)]
trainer.callbacks.append(FunctionCallback(slowly))
try:
    trainer.train(data, target, epochs=500)
finally:
    print("stopped", trainer.step, flush=True)
"""


@pytest.mark.mpi
def test_ctrl_c_stops_all_after_the_same_step_and_saves_once(tmp_path):
    run = command(2, written(tmp_path, INTERRUPTED))
    given = environment(PYTHONUNBUFFERED="", PUREGRAPH_DEVICE="cpu")
    process = subprocess.Popen(
        run, env=given, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert waited(lambda: (tmp_path / "at-1").exists(), 60)
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=60)[0]  # the run itself would take minutes
    assert process.returncode == 130, text
    steps = [line for line in text.splitlines() if line.startswith("stopped ") and "epoch" not in line]
    assert len(steps) == 2 and len(set(steps)) == 1, text
    assert text.count("saved in run.h5") == 1
    assert "Traceback" not in text
    trainer = recipes.perceptron()[0].resume(tmp_path / "run.h5")
    assert f"stopped {trainer.step}" == steps[0]


ASKING = """
import json, recipes
print(json.dumps(recipes.asking()))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_optimizers_that_ask_for_several_gradients_are_those_of_one_process(count, tmp_path):
    assert [json.loads(line) for line in lines(ran(count, tmp_path, ASKING))] == [recipes.asking()] * count
