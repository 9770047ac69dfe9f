"""Stopped at any step, resume, finish: equal to the run that was never stopped, bit for bit."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from processes import environment

from puregraph import (
    SGD,
    Adam,
    BatchNorm,
    CheckpointError,
    Cosine,
    CostSum,
    CrossEntropy,
    Dropout,
    Epochs,
    Linear,
    MomentumSGD,
    MultiOptimizer,
    OneCycle,
    Relu,
    Sequential,
    WarmUp,
)
from puregraph.core import device as devices
from puregraph.core import initial
from puregraph.core.errors import DataError, GraphWarning
from puregraph.serialize.checkpoint import load, save
from puregraph.train import Accuracy, Callback, Checkpoint, Confusion, EarlyStop, ReduceOnPlateau, Trainer, state
from puregraph.train.callbacks.callback import callbacksFrom

pytestmark = pytest.mark.filterwarnings("ignore:accumulate=", "ignore:schedule")

EPOCHS = 4
STEPS = 20  # 47 samples in batches of 5, two a step: five steps an epoch, the last of one batch and two samples


class Stopped(Exception):  # noqa: N818
    """Ends a run the hard way."""


def data():
    rng = np.random.default_rng(17)
    x = rng.standard_normal((47, 6))
    return x, x[:, :3].argmax(1)


def fresh(seed=4, optimizer=Adam, **options):
    """Everything anew, as another process would make it."""
    initial.seed(seed)
    net = Sequential(Linear(6, 8), BatchNorm(8), Relu(), Dropout(0.4), Linear(8, 3))
    schedule = WarmUp(4, Cosine(STEPS - 4, 0.1))
    given = {"metrics": [Accuracy(), Confusion(3)], "batchsize": 5, "accumulate": 2, "seed": 9, "progress": "none"}
    return Trainer(net, CrossEntropy(), optimizer(0.02, schedule=schedule), **{**given, **options})


def everything(trainer):
    """Parameters, states, the optimizer's state, and the history without its times."""
    arrays = {path: devices.toHost(s.data) for path, s in {**trainer.net.params, **trainer.net.states}.items()}
    arrays |= {f"optimizer {name}": devices.toHost(a) for name, a in trainer.optimizer.state.items()}
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in trainer.history]
    return {name: (a.dtype.name, a.tobytes()) for name, a in arrays.items()}, rows, trainer.step, trainer.optimizer.step


def run(trainer, source=None, epochs=EPOCHS):
    x, t = data()
    validation = (x[:13], t[:13])
    if source is None:
        trainer.train(x, t, epochs=epochs, validation=validation)
    else:
        trainer.train(source, epochs=epochs, validation=validation)
    return trainer


def batches(epoch):
    """Batches in an order of the epoch's own."""
    x, t = data()
    order = np.random.default_rng(epoch).permutation(len(x))
    for start in range(0, len(x), 5):
        rows = order[start : start + 5]
        yield x[rows], t[rows]


def stopAt(step, path):
    def stop(trainer):
        if trainer.step == step:
            trainer.save(path)
            raise Stopped

    return stop


EVERY = pytest.param(1, marks=pytest.mark.slow)


@pytest.mark.parametrize("stride", [4, EVERY])
@pytest.mark.parametrize("source", [None, batches], ids=["arrays", "batches"])
def test_stopped_at_many_steps_and_resumed_it_is_the_same_run(device, tmp_path, source, stride):
    wanted = everything(run(fresh(), source))
    assert wanted[2] == STEPS and len(wanted[1]) == EPOCHS
    for step in {*range(1, STEPS, stride), STEPS}:
        path = tmp_path / f"{step}.h5"
        with pytest.raises(Stopped):
            run(fresh(callbacks=[stopAt(step, path)]), source)
        resumed = fresh(seed=1000 + step).resume(path)
        assert resumed.step == step
        assert everything(run(resumed, source)) == wanted, f"stopped at step {step}"


@pytest.mark.parametrize("optimizer", [Adam, MomentumSGD])
def test_stopped_twice_it_is_still_the_same_run(tmp_path, optimizer):
    wanted = everything(run(fresh(optimizer=optimizer)))
    path = tmp_path / "run.h5"
    with pytest.raises(Stopped):
        run(fresh(optimizer=optimizer, callbacks=[stopAt(7, path)]))
    with pytest.raises(Stopped):
        run(fresh(2, optimizer, callbacks=[stopAt(13, path)]).resume(path))
    assert everything(run(fresh(3, optimizer).resume(path))) == wanted


@pytest.mark.parametrize("grains", [None, 2])
def test_a_run_without_smaller_last_batches_goes_on_in_the_middle_of_an_epoch(tmp_path, grains):
    options, path = {"dropLast": True, "batchsize": 8, "accumulate": 1, "grains": grains}, tmp_path / "run.h5"
    wanted = everything(run(fresh(**options)))
    assert wanted[2] == 5 * EPOCHS != everything(run(fresh(**{**options, "dropLast": False})))[2]
    with pytest.raises(Stopped):
        run(fresh(callbacks=[stopAt(8, path)], **options))
    assert everything(run(fresh(8, **options).resume(path))) == wanted


def test_a_file_of_before_there_were_left_out_batches_goes_on(stopped):
    wanted = everything(run(fresh()))
    assert everything(run(fresh(8).resume(forge(stopped, lambda t: t["settings"].pop("dropLast"))))) == wanted


def test_stopped_between_epochs_and_before_the_first(tmp_path):
    wanted = everything(run(fresh()))
    first = fresh()
    path = tmp_path / "run.h5"
    first.save(path)
    assert everything(run(fresh(8).resume(path))) == wanted
    run(first, epochs=1)
    first.save(path)
    assert everything(run(fresh(8).resume(path), epochs=3)) == wanted


def test_stopped_before_the_first_step_of_an_epoch(tmp_path):
    class Press(Callback):
        def onEpochBegin(self, trainer):
            if trainer.epoch == 1:
                raise KeyboardInterrupt

    path = tmp_path / "run.h5"
    with pytest.raises(KeyboardInterrupt):
        run(fresh(callbacks=[Press(), Checkpoint(path)]))
    assert everything(run(fresh(8).resume(path))) == everything(run(fresh()))


def test_stopped_in_the_validation_the_epoch_is_finished_once(tmp_path):
    wanted = everything(run(fresh()))
    x, t = data()
    path = tmp_path / "run.h5"

    def validation():
        if trainer.epoch == 1:
            raise KeyboardInterrupt
        for start in (0, 5, 10):
            yield x[start : min(start + 5, 13)], t[start : min(start + 5, 13)]

    trainer = fresh(callbacks=[Checkpoint(path, every=1000)])
    with pytest.raises(KeyboardInterrupt):
        trainer.train(x, t, epochs=EPOCHS, validation=validation)
    assert (trainer.epoch, trainer.position) == (1, 5)
    assert everything(run(fresh(8).resume(path))) == wanted


def test_bytes_in_memory_do_as_well():
    wanted = everything(run(fresh()))
    kept = []

    def keep(trainer):
        if trainer.step == 8:
            kept.append(trainer.save(None))

    assert everything(run(fresh(callbacks=[keep]))) == wanted
    assert everything(run(fresh(8).resume(kept[0]))) == wanted


def test_a_finished_run_has_nothing_left_to_do(tmp_path):
    path = tmp_path / "run.h5"
    first = run(fresh(callbacks=[Checkpoint(path)]))
    resumed = fresh(8).resume(path)
    assert everything(run(resumed)) == everything(first)
    run(resumed, epochs=1)
    assert len(resumed.history) == EPOCHS + 1


def test_early_stopping_goes_on_where_it_was(tmp_path):
    def callbacks(path):
        return [EarlyStop("val loss", patience=2, least=0.05), Checkpoint(path)]

    whole = run(fresh(callbacks=callbacks(tmp_path / "a.h5")), epochs=30)
    assert 2 < len(whole.history) < 30
    for last in range(1, len(whole.history) + 1):
        path = tmp_path / "b.h5"
        stop = lambda trainer, last=last: trainer.epoch == last and 1 / 0  # noqa: E731
        try:
            run(fresh(callbacks=[*callbacks(path), stop]), epochs=30)
        except ZeroDivisionError:
            assert last < len(whole.history)
        resumed = run(fresh(8, callbacks=callbacks(path)).resume(path), epochs=30)
        assert everything(resumed) == everything(whole)


# What cannot be resumed ---------------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path):
    """A file of a run that was stopped within an epoch."""
    with pytest.raises(Stopped):
        run(fresh(callbacks=[stopAt(7, tmp_path / "run.h5")]))
    return tmp_path / "run.h5"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batchsize": 6}, "batchsize: an epoch was begun with 5, it cannot go on with 6"),
        ({"accumulate": 1}, "accumulate: an epoch was begun with 2"),
        ({"shuffle": False}, "shuffle: an epoch was begun with True"),
        ({"dropLast": True}, "dropLast: an epoch was begun with False, it cannot go on with True"),
        ({"metrics": [Accuracy()]}, "an epoch was begun with accuracy, confusion, it cannot go on with accuracy"),
    ],
)
def test_another_kind_of_training_is_refused_and_nothing_changed(stopped, options, words):
    trainer = fresh(8, **options)
    before = everything(trainer)
    with pytest.raises(DataError, match=words):
        trainer.resume(stopped)
    assert everything(trainer) == before


def test_between_epochs_settings_may_change(tmp_path):
    trainer = run(fresh(), epochs=1)
    trainer.save(tmp_path / "run.h5")
    other = fresh(8, batchsize=47, metrics=[]).resume(tmp_path / "run.h5")
    assert run(other, epochs=1).step == 6


def test_other_data_is_refused(stopped):
    x, t = data()
    with pytest.raises(DataError, match="epoch 2 was begun with 47 samples, it cannot go on with 40"):
        fresh(8).resume(stopped).train(x[:40], t[:40], epochs=EPOCHS)


def test_a_file_without_a_trainer_is_refused(tmp_path):
    trainer = fresh()
    for extra in (None, {"epoch": 3}, {"trainer": {"version": 99}}):
        save(tmp_path / "net.h5", trainer.net, trainer.optimizer.setupOn(trainer.net), extra)
        with pytest.raises(
            DataError, match=r"cannot resume from '.*net\.h5': .* this file holds no trainer of that kind"
        ):
            trainer.resume(tmp_path / "net.h5")
    with pytest.raises(CheckpointError, match="no such file"):
        trainer.resume(tmp_path / "none.h5")


def test_another_net_or_optimizer_is_refused(stopped):
    trainer = fresh(8, optimizer=MomentumSGD)
    before = everything(trainer)
    with pytest.raises(CheckpointError, match="MomentumSGD"):
        trainer.resume(stopped)
    assert everything(trainer) == before and trainer.step == 0


# Another process ----------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
from test_resume import Checkpoint, everything, fresh, run
import hashlib

path, step = sys.argv[1], int(sys.argv[2])

def press(trainer):
    if trainer.step == step:
        os.kill(os.getpid(), signal.SIGINT)

trainer = fresh(callbacks=[press, Checkpoint(path, every=1000)], progress="lines")
if os.path.exists(path):
    trainer.resume(path)
run(trainer)
print("result", everything(trainer))
"""


def inProcess(path, step, folder):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(path), str(step)]
    variables = environment(PUREGRAPH_DEVICE="cpu")
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="Ctrl-C is another thing on Windows")
def test_ctrl_c_saves_and_a_fresh_process_goes_on(tmp_path):
    whole = inProcess(tmp_path / "whole.h5", -1, tmp_path)
    assert whole.returncode == 0, whole.stderr
    path = tmp_path / "run.h5"
    broken = inProcess(path, 8, tmp_path)
    assert broken.returncode == -signal.SIGINT
    assert "Traceback" not in broken.stderr and "KeyboardInterrupt" not in broken.stderr
    assert f"stopped in epoch 2, after step 3 of 5, saved in {path}" in broken.stdout
    resumed = inProcess(path, -1, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert resumed.stdout.count("epoch ") == 3  # the second to the fourth


STOPPED = """
import os, signal, sys
import numpy as np
from puregraph import MSE, SGD, Linear, Trainer

def press(trainer):
    if trainer.step == 3:
        os.kill(os.getpid(), signal.SIGINT)

trainer = Trainer(Linear(2, 1), MSE(), SGD(0.1), batchsize=4, callbacks=[press], progress=sys.argv[1])
{before}
trainer.train(np.ones((20, 2)), np.ones((20, 1)), epochs=2)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="Ctrl-C is another thing on Windows")
@pytest.mark.parametrize("progress", ["lines", "none"])
def test_a_script_that_ctrl_c_ends_shows_one_line_and_no_traceback(tmp_path, progress):
    script = tmp_path / "script.py"
    script.write_text(STOPPED.format(before=""))
    line = "stopped in epoch 1, after step 3 of 5, not saved: train(...) goes on from here; with a Checkpoint among"
    command = ["sh", "-c", '"$0" "$@"; echo code $?', sys.executable, str(script), progress]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(PUREGRAPH_DEVICE="cpu")
    )
    *shown, code = found.stdout.splitlines()
    assert code == "code 130"  # as shells have it for a process that the signal ended
    (only,) = shown + found.stderr.splitlines()
    assert only.startswith(line)
    assert bool(shown) == (progress == "lines")


@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="Ctrl-C is another thing on Windows")
def test_other_exceptions_and_hooks_of_others_are_shown_as_ever(tmp_path):
    script = tmp_path / "script.py"
    variables = environment(PUREGRAPH_DEVICE="cpu")
    script.write_text(STOPPED.format(before="sys.excepthook = lambda *error: print('mine', error[0].__name__)"))
    found = subprocess.run([sys.executable, script, "none"], capture_output=True, text=True, timeout=120, env=variables)
    assert (found.stdout, found.stderr) == ("mine KeyboardInterrupt\n", "")
    again = "try:\n    trainer.train(np.ones((20, 2)), np.ones((20, 1)))\nexcept KeyboardInterrupt:\n    raise ValueError('other')"
    script.write_text(STOPPED.format(before=again))
    found = subprocess.run([sys.executable, script, "none"], capture_output=True, text=True, timeout=120, env=variables)
    assert found.returncode == 1 and "Traceback" in found.stderr and "ValueError: other" in found.stderr


# Forged files -------------------------------------------------------------------------------------------------


def forge(path, change):
    """The same file, with what was saved of the trainer changed, and all checksums right."""
    graph, optimizer, extra = load(path)
    change(extra["trainer"])
    return save(None, graph, optimizer, extra)


def deep(trainer):
    """All that must be as it was, callbacks and random numbers too."""
    place = {name: getattr(trainer.runState, name) for name in state.PROGRESS}
    order = None if trainer.order is None else trainer.order.tolist()
    states = [c.state() for c in trainer.callbacks]
    return everything(trainer), place, order, trainer.rng.bit_generator.state, states, trainer.meters.total


FORGERIES = [
    lambda t: t.update(order=np.zeros(47, np.int64)),
    lambda t: t.update(order=np.arange(1, 48)),
    lambda t: t.update(order=np.arange(46)),
    lambda t: t.update(order=list(range(47))),
    lambda t: t.update(order=np.arange(47.0)),
    lambda t: t["place"].update(step="train"),
    lambda t: t["place"].update(epoch=-1),
    lambda t: t["place"].update(position=True),
    lambda t: t["place"].update(step=2**80),
    lambda t: t["place"].update(running=1),
    lambda t: t["place"].update(samples=46),
    lambda t: t["place"].update(position=10**9),
    lambda t: t["place"].update(position=6),
    lambda t: t["place"].update(first=10**9),
    lambda t: t["place"].update(first=2),
    lambda t: t.update(order=None),
    lambda t: t["settings"].update(shuffle=False),
    lambda t: t.update(count="5"),
    lambda t: t.update(until=-1),
    lambda t: t["place"].update(net=None),
    lambda t: t["place"].update(save=3),
    lambda t: t["place"].pop("first"),
    lambda t: t["settings"].update(net=3),
    lambda t: t["settings"].pop("shuffle"),
    lambda t: t.update(elapsed="long"),
    lambda t: t.update(elapsed=-1.0),
    lambda t: t.update(random={"state": 3}),
    lambda t: t["random"].update(bit_generator="MT19937"),
    lambda t: t["random"]["state"].update(state="x"),
    lambda t: t.update(history=[3]),
    lambda t: t.update(history=[{"seconds": "x"}]),
    lambda t: t.update(history={"loss": 1}),
    lambda t: t.update(history=[{3: 1.0}]),
    lambda t: t.update(tally={}),
    lambda t: t["tally"].update(total="x"),
    lambda t: t["tally"].update(weight=-1.5),
    lambda t: t["tally"]["metrics"].update(accuracy=3),
    lambda t: t["tally"]["metrics"]["confusion"].update(sums=np.zeros(5)),
    lambda t: t["tally"]["metrics"]["accuracy"].update(sums="x"),
    lambda t: t["callbacks"].append({"type": 3, "state": {}}),
    lambda t: t["callbacks"].append("Checkpoint"),
    lambda t: t["callbacks"][0].update(state=[]),
    lambda t: t["callbacks"][1]["state"].update(written="run.h5"),
    lambda t: t["callbacks"][1]["state"].update(written=[3]),
    lambda t: t["callbacks"][1]["state"].pop("written"),
    lambda t: t["callbacks"][0]["state"].update(best="good"),
    lambda t: t["callbacks"][0]["state"].update(waited=-1),
    lambda t: t["callbacks"][0]["state"].update(waited="x"),
    lambda t: t.pop("place"),
    lambda t: t.pop("callbacks"),
    lambda t: t.clear() or t.update(version=1),
]


def watched(tmp_path, seed=4):
    """A trainer with callbacks that have something to save."""
    return fresh(seed, callbacks=[Checkpoint(tmp_path / "own.h5", every=3, keep=2), EarlyStop("loss")])


@pytest.fixture
def forgeable(tmp_path):
    """A file of such a run that was stopped within an epoch."""
    trainer = watched(tmp_path)
    trainer.callbacks.append(callbacksFrom([stopAt(7, tmp_path / "run.h5")])[0])
    with pytest.raises(Stopped):
        run(trainer)
    return tmp_path / "run.h5"


def test_a_forged_trainer_is_refused_and_nothing_changed(forgeable, tmp_path):
    assert watched(tmp_path).resume(forge(forgeable, lambda t: None)).step == 7
    for number, change in enumerate(FORGERIES):
        trainer = watched(tmp_path, 8)
        before = deep(trainer)
        with pytest.raises((CheckpointError, DataError)) as caught:
            trainer.resume(forge(forgeable, change))
        assert "given bytes" in str(caught.value), f"forgery {number}"
        assert deep(trainer) == before, f"forgery {number}: {caught.value}"


def test_files_that_a_checkpoint_did_not_write_are_not_deleted(forgeable, tmp_path):
    others = ["precious.txt", "sub/precious.txt", "own.txt", "own-x.h5", "own-1.h5.txt", "run.h5"]
    (tmp_path / "sub").mkdir()
    for name in others:
        (tmp_path / name).touch()
    names = [*others, "../precious.txt", str(tmp_path / "precious.txt"), "", ".", "own-1.h5/../precious.txt"]
    data = forge(forgeable, lambda t: t["callbacks"][1]["state"].update(written=[*names, "own-3.h5", "own-6.h5"]))
    run(watched(tmp_path).resume(data))
    assert all((tmp_path / name).exists() for name in others)
    assert sorted(p.name for p in tmp_path.glob("own-*.h5")) == ["own-15.h5", "own-18.h5", "own-x.h5"]


def test_what_raises_while_a_trainer_is_resumed_leaves_it_as_it_was(forgeable, tmp_path):
    class Press(Callback):
        """Has something to save, and is interrupted when it is given it back."""

        def state(self):
            return {"x": 1}

        def restore(self, state):
            if state.pop("x", None) and self.armed:
                self.armed = False
                raise KeyboardInterrupt

    data = forge(forgeable, lambda t: t["callbacks"].append({"type": "Press", "state": {"x": 1}}))
    trainer = watched(tmp_path, 8)
    trainer.callbacks.append(Press())
    trainer.callbacks[-1].armed = True
    before = deep(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.resume(data)
    assert deep(trainer) == before
    assert trainer.resume(data).step == 7


# What was changed while it trained --------------------------------------------------------------------------------


def plain(rate=0.02, callbacks=()):
    """A trainer without a schedule."""
    initial.seed(4)
    net = Sequential(Linear(6, 8), Relu(), Linear(8, 3))
    return Trainer(net, CrossEntropy(), Adam(rate), batchsize=16, callbacks=callbacks, progress="lines")


def test_a_learning_rate_that_was_set_by_hand_goes_on(capsys):
    first = plain()
    first.train(*data(), epochs=2)
    first.optimizer.learnRate, first.optimizer.clipNorm = 5e-4, 1.0
    file = first.save(None)
    second = plain().resume(file)
    assert second.optimizer.learnRate == 5e-4 and second.optimizer.clipNorm == 1.0
    first.train(*data(), epochs=3)
    second.train(*data(), epochs=3)
    for a, b in zip(first.net.params.values(), second.net.params.values()):
        np.testing.assert_array_equal(a.data, b.data)
    assert load(file).optimizer.learnRate == 5e-4
    assert "goes on with" not in capsys.readouterr().out


def test_a_bound_that_several_optimizers_share_goes_on():
    trainers = []
    for _ in range(2):
        trainers.append(plain())
        trainers[-1].optimizer = MultiOptimizer({"*.b": MomentumSGD(0.01), "*": Adam(0.02)}, clipNorm=0.5)
    trainers[0].train(*data())
    trainers[0].optimizer.clipNorm = trainers[0].optimizer.optimizers["*"].learnRate = 0.25
    trainers[1].resume(trainers[0].save(None))
    assert [each.clipNorm for each in (trainers[1].optimizer, *trainers[1].optimizer.members)] == [0.25] * 3
    assert [each.learnRate for each in trainers[1].optimizer.members] == [0.01, 0.25]


def test_a_learning_rate_that_is_given_anew_stays_and_is_said(capsys):
    first = plain()
    first.train(*data())
    second = plain(1e-4).resume(first.save(None))
    assert second.optimizer.learnRate == 1e-4
    assert "learnRate: the run had 0.02, it goes on with 0.0001, as the Adam here has it" in capsys.readouterr().out
    third = plain()
    third.optimizer.learnRate = 1e-3
    assert third.resume(first.save(None)).optimizer.learnRate == 1e-3


def test_a_learning_rate_that_a_callback_has_lowered_goes_on_without_it():
    first = plain(callbacks=[ReduceOnPlateau("loss", patience=1, mode="max")])
    first.train(*data(), epochs=4)
    assert first.optimizer.learnRate < 0.02
    assert plain().resume(first.save(None)).optimizer.learnRate == first.optimizer.learnRate


def test_settings_of_each_of_several_optimizers_go_on():
    def made():
        initial.seed(4)
        net = Sequential(Linear(6, 8, name="stem"), Relu(), Linear(8, 3, name="head"))
        given = {"stem": MomentumSGD(0.1), "*": Adam(0.02)}
        return Trainer(net, CrossEntropy(), given, batchsize=16, progress="none")

    first = made()
    first.train(*data())
    first.optimizer.optimizers["*"].learnRate = 3e-3
    second = made().resume(first.save(None))
    assert [each.learnRate for each in second.optimizer.members] == [0.1, 3e-3]


def test_a_run_that_was_under_way_counts_all_epochs_and_says_where_none_is_left(tmp_path, capsys):
    first = plain(callbacks=[Checkpoint(tmp_path / "run.h5")])
    first.train(*data(), epochs=3)
    second = plain().resume(tmp_path / "run.h5")
    second.train(*data(), epochs=5)
    assert second.epoch == 5
    third = plain().resume(tmp_path / "run.h5")
    third.train(*data(), epochs=3)
    assert (
        third.epoch == 3 and "nothing to train: the run has made 3 epochs; epochs=3 counts" in capsys.readouterr().out
    )
    third.train(*data(), epochs=2)  # that run is over
    assert third.epoch == 5


def test_early_stopping_begins_anew_with_each_run():
    trainer = plain(callbacks=[EarlyStop("loss", patience=2, mode="max")])
    trainer.train(*data(), epochs=10)
    stopped = trainer.epoch
    trainer.train(*data(), epochs=10)
    assert stopped == 3 and trainer.epoch == 6


def test_another_cost_is_said(capsys):
    first = plain()
    first.train(*data())
    Trainer(plain().net, CostSum({"linear2": CrossEntropy()}), Adam(0.02), progress="lines").resume(first.save(None))
    assert "cost: the run had CrossEntropy, it goes on with CostSum" in capsys.readouterr().out


def rated(path, schedule, callbacks=(), **options):
    """A trainer of 15 steps an epoch that checkpoints itself."""
    net = Sequential(Linear(6, 3))
    return Trainer(
        net,
        CrossEntropy(),
        SGD(0.1, schedule=schedule),
        4,
        **options,
        progress="none",
        callbacks=[*callbacks, Checkpoint(path)],
    )


@pytest.mark.parametrize("make", [Cosine, OneCycle, lambda: WarmUp(3, Cosine()), lambda: Epochs(Cosine())])
def test_a_run_that_is_resumed_for_more_epochs_has_a_schedule_as_long_as_it_is(tmp_path, make):
    x, t = data()
    path = tmp_path / "run.h5"
    rated(path, make()).train(x, t, epochs=3)
    longer = rated(path, make()).resume(path).train(x, t, epochs=6)
    whole = rated(tmp_path / "other.h5", make()).train(x, t, epochs=6)
    assert [row["rate"] for row in longer[3:]] == [row["rate"] for row in whole[3:]]
    assert all(row["rate"] > 0 for row in longer[3:])


def test_a_run_that_is_resumed_with_other_batches_has_a_schedule_as_long_as_it_is(tmp_path):
    x, t = data()
    path = tmp_path / "run.h5"
    stops = StopsNow("onEpochEnd")
    rated(path, Cosine(), [stops]).train(x, t, epochs=4)
    other = rated(path, Cosine(), accumulate=2).resume(path)
    other.train(x, t, epochs=4)
    assert other.optimizer.schedule.total == other.optimizer.step == 2 * 12 + 2 * 6


def test_a_schedule_of_its_own_length_that_more_epochs_outlive_is_told_before_the_first_step(tmp_path):
    x, t = data()
    path = tmp_path / "run.h5"
    rated(path, Cosine(36)).train(x, t, epochs=3)
    longer = rated(path, Cosine(36)).resume(path)
    longer.callbacks.append(callbacksFrom([stopAt(37, path)])[0])
    with (
        pytest.warns(GraphWarning, match="is over after 36 updates, this run after 72: .* is then 0 until the end"),
        pytest.raises(Stopped),
    ):
        longer.train(x, t, epochs=6)


class StopsNow(Callback):
    """Stops the run at once, at the second call of an event."""

    def __init__(self, event):
        self.calls = 0
        setattr(self, event, self.stop)

    def stop(self, trainer):
        self.calls += 1
        if self.calls == 2:
            trainer.stop("enough for now", now=True)


@pytest.mark.parametrize(
    ("event", "isFirst"),
    [
        ("onTrainBegin", True),
        ("onEpochBegin", False),
        ("onBatchEnd", True),
        ("onValidationBegin", True),
        ("onEpochEnd", True),
        ("onEpochEnd", False),
    ],
)
def test_a_run_that_is_stopped_at_once_goes_on_wherever_that_was(tmp_path, event, isFirst):
    wanted = everything(run(fresh()))
    path = tmp_path / "run.h5"
    stops = StopsNow(event)
    stops.calls = event == "onTrainBegin"
    callbacks = [stops, Checkpoint(path)] if isFirst else [Checkpoint(path), stops]
    stopped = run(fresh(callbacks=callbacks))
    assert len(stopped.history) < EPOCHS and stopped.running
    assert everything(run(fresh(8).resume(path))) == wanted
    assert everything(run(stopped)) == wanted


def test_stopped_at_once_after_its_last_epoch_a_run_is_finished(tmp_path):
    trainer = run(fresh(callbacks=[StopsNow("onEpochEnd"), Checkpoint(tmp_path / "run.h5")]), epochs=2)
    assert not trainer.running and len(trainer.history) == 2
    assert len(run(trainer, epochs=1).history) == 3


WRONG = [-1, 1.5, 2**80, "x", [], {}, b"3", float("inf")]


@pytest.fixture(scope="module")
def progress():
    """What a trainer in the middle of an epoch saves."""
    trainer = fresh()
    trainer.callbacks.append(callbacksFrom([stopAt(7, None)])[0])
    with pytest.raises(Stopped):
        run(trainer)
    return state.stateFrom(trainer)


@pytest.mark.parametrize("wrong", WRONG, ids=map(repr, WRONG))
@pytest.mark.parametrize("name", [*state.PROGRESS, "count", "until", "total", "grains", "seed", "frozen", "order"])
def test_a_value_of_another_kind_is_refused_wherever_it_stands_in_the_progress(progress, name, wrong):
    state.checkKinds(progress)
    isRate = name == "lastRate" and isinstance(wrong, (int, float)) and wrong != 2**80
    changed = {**progress, "place": dict(progress["place"])}
    (changed["place"] if name in state.PROGRESS else changed)[name] = wrong
    if isRate:  # a rate is a number of any size
        state.checkKinds(changed)
    else:
        with pytest.raises(CheckpointError, match="the trainer's .*wanted .*, got "):
            state.checkKinds(changed)
