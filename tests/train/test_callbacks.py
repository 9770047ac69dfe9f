"""Callbacks: checkpoints kept and dropped, early stops, the CSV log, and the history they look at."""

import copy
import csv
import os
import re
import stat

import numpy as np
import pytest

from puregraph import MSE, SGD, BatchNorm, Calculator, CrossEntropy, Linear, Sequential, Validator, train
from puregraph.core import device as devices
from puregraph.core import initial
from puregraph.core.errors import ArgumentError, DataError
from puregraph.serialize.checkpoint import load
from puregraph.train import (
    Accuracy,
    Callback,
    Checkpoint,
    Confusion,
    CsvLog,
    EarlyStop,
    History,
    Metric,
    Monitor,
    ReduceOnPlateau,
    Trainer,
)
from puregraph.train.callbacks.lines import duration


def data(count=20):
    x = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
    return x, x.argmax(1)


def trainerWith(*callbacks, rate=0.5, metrics=(), **options):
    initial.seed(2)
    given = {"batchsize": 8, "progress": "none", **options}
    return Trainer(Linear(3, 3), CrossEntropy(), SGD(rate), callbacks=callbacks, metrics=list(metrics), **given)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Script(Metric):
    """A figure that goes as it is told, one value an epoch."""

    at = 0

    def __init__(self, values, better="max"):
        super().__init__(name="script")
        self.values, self.better = list(values), better

    def share(self, prediction, target):
        return 0, 1

    def value(self):
        return float(self.values[self.at])


class Clock(Callback):
    """Moves a Script on to the value of the epoch."""

    def __init__(self, script):
        self.script = script

    def onEpochBegin(self, trainer):
        self.script.at = trainer.epoch


# Checkpoint ---------------------------------------------------------------------------------------------------


def test_a_checkpoint_holds_the_end_of_the_last_epoch(tmp_path):
    trainer = trainerWith(Checkpoint(tmp_path / "run.h5"))
    trainer.train(*data(), epochs=3)
    graph, optimizer, extra = load(tmp_path / "run.h5")
    for path, param in trainer.net.params.items():
        assert np.array_equal(devices.toHost(param.data), devices.toHost(graph.params[path].data))
    assert optimizer.step == 9 and extra["trainer"]["place"]["epoch"] == 3
    assert names(tmp_path) == ["run.h5"]


def test_a_checkpoint_is_made_every_so_many_steps(tmp_path):
    trainerWith(Checkpoint(tmp_path / "run.h5", every=4, keep=100)).train(*data(), epochs=4)
    assert names(tmp_path) == ["run-12.h5", "run-4.h5", "run-8.h5"]
    assert trainerWith().resume(tmp_path / "run-8.h5").step == 8


def test_the_newest_checkpoints_are_kept(tmp_path):
    (tmp_path / "run-99.h5").write_bytes(b"of another run")
    trainer = trainerWith(Checkpoint(tmp_path / "run.h5", keep=2))
    trainer.train(*data(), epochs=5)
    assert names(tmp_path) == ["run-12.h5", "run-15.h5", "run-99.h5"]


def test_a_resumed_run_drops_the_files_of_before(tmp_path):
    trainerWith(Checkpoint(tmp_path / "run.h5", keep=2)).train(*data(), epochs=2)
    assert names(tmp_path) == ["run-3.h5", "run-6.h5"]
    trainer = trainerWith(Checkpoint(tmp_path / "run.h5", keep=2)).resume(tmp_path / "run-6.h5")
    trainer.train(*data(), epochs=4)
    assert names(tmp_path) == ["run-12.h5", "run-9.h5"]


@pytest.mark.parametrize(("better", "epoch"), [("max", 2), ("min", 4)])
def test_only_the_best_is_saved(tmp_path, better, epoch):
    script = Script([0.5, 0.9, 0.9, 0.2, float("nan")], better)
    checkpoint = Checkpoint(tmp_path / "best.h5", best="script")
    trainerWith(checkpoint, Clock(script), metrics=[script]).train(*data(), epochs=5)
    assert load(tmp_path / "best.h5").extra["trainer"]["place"]["epoch"] == epoch
    assert checkpoint.best == {"max": 0.9, "min": 0.2}[better]


def test_ctrl_c_does_not_replace_the_best(tmp_path):
    def press(trainer):
        if trainer.step == 4:
            raise KeyboardInterrupt

    trainer = trainerWith(press, Checkpoint(tmp_path / "best.h5", best="loss"))
    with pytest.raises(KeyboardInterrupt):
        trainer.train(*data(), epochs=5)
    assert load(tmp_path / "best.h5").extra["trainer"]["place"]["step"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": "step"}, 'every: wanted "epoch", or a number of steps, got .step.'),
        ({"every": 0}, "got 0"),
        ({"every": 5, "best": "loss"}, 'every: wanted "epoch", got 5'),
        ({"keep": 0}, "wanted keep as a whole number of at least 1, got 0"),
        ({"best": "loss", "mode": "up"}, "wanted mode as one of 'auto', 'min', 'max', got 'up'"),
    ],
)
def test_a_checkpoint_that_makes_no_sense_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Checkpoint("run.h5", **options)


# EarlyStop ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "better", "options", "epochs"),
    [
        ([1, 2, 3, 3, 3, 3, 3], "max", {"patience": 2}, 5),
        ([1, 2, 3, 3, 4, 4, 4], "max", {"patience": 2}, 7),
        ([5, 4, 4, 4], "min", {"patience": 1}, 3),
        ([5, 4, 4, 4], "max", {"patience": 1}, 2),
        ([5, 4, 3.9, 3.8, 3.7], "min", {"patience": 2, "least": 0.5}, 4),
        ([1, 2, 3, 4], "max", {"patience": 2, "mode": "min"}, 3),
        ([float("nan"), float("nan"), 1], "max", {"patience": 2}, 2),
        ([1, 2, 3, 4, 5, 6, 7, 8], "max", {"patience": 1}, 8),
    ],
)
def test_training_stops_when_it_no_longer_helps(values, better, options, epochs):
    script = Script(values, better)
    trainer = trainerWith(Clock(script), EarlyStop("script", **options), metrics=[script])
    assert len(trainer.train(*data(), epochs=8)) == epochs


def test_a_stopped_run_says_why(capsys):
    trainer = trainerWith(EarlyStop("loss", patience=1, least=100), progress="lines")
    trainer.train(*data(), epochs=8)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1].startswith("epoch 2/8")
    assert lines[2].startswith("stopped after epoch 2: loss has not improved on")
    assert lines[2].endswith("for 1 epoch")


@pytest.mark.parametrize("watcher", [EarlyStop(), Checkpoint("best.h5", best="val loss")])
def test_a_figure_that_will_not_be_there_is_named_before_the_first_step(watcher):
    trainer = trainerWith(watcher)
    with pytest.raises(DataError, match="wanted one of epoch, step, loss, .* got monitor 'val loss'"):
        trainer.train(*data())
    assert trainer.step == 0


def test_a_figure_that_a_callback_adds_can_be_watched():
    class Half(Callback):
        adds = ("half",)

        def onEpochEnd(self, trainer):
            trainer.history[-1]["half"] = trainer.history[-1]["loss"] / 2

    trainer = trainerWith(Half(), EarlyStop("half", patience=1, least=100))
    assert len(trainer.train(*data(), epochs=5)) == 2


def test_the_names_of_the_figures_are_those_of_the_history():
    x, t = data()
    trainer = trainerWith(metrics=[Accuracy(), Confusion(3)])
    for validation in (None, (x, t)):
        trainer.train(x, t, validation=validation)
        assert trainer.figureNames() == list(trainer.history[-1])


@pytest.mark.parametrize("watcher", [Checkpoint, CsvLog])
@pytest.mark.parametrize(
    ("place", "words"), [("nowhere/file", "nowhere|No such"), (".", "folder|exists and is not a file")]
)
def test_a_place_where_nothing_can_be_written_is_named_before_the_first_step(tmp_path, watcher, place, words):
    trainer = trainerWith(watcher(tmp_path / place))
    with pytest.raises(DataError, match=f"{watcher.__name__}: .*({words})"):
        trainer.train(*data())
    assert trainer.step == 0 and list(tmp_path.iterdir()) == []


def test_which_way_is_better_follows_from_the_metric():
    trainer = trainerWith(metrics=[Accuracy()])
    found = [Monitor(name).direction(trainer) for name in ("loss", "val loss", "accuracy", "val accuracy")]
    assert found == ["min", "min", "max", "max"]


@pytest.mark.parametrize("what", ["device", "pipe", "folder", "link to a device"])
def test_a_log_does_not_replace_what_is_no_file(tmp_path, what):
    path = tmp_path / "log.csv"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except (OSError, AttributeError):
            pytest.skip("no device node can be made here")
    else:
        path.symlink_to("/dev/null")
    before = os.lstat(path).st_mode, os.stat(path).st_mode
    x, t = data()
    with pytest.raises(DataError, match="CsvLog: cannot write '.*': that path exists and is not a file"):
        trainerWith(CsvLog(path)).train(x, t)
    assert (os.lstat(path).st_mode, os.stat(path).st_mode) == before and os.listdir(tmp_path) == ["log.csv"]


# CsvLog -------------------------------------------------------------------------------------------------------


def rowsOf(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_log_holds_each_row_as_soon_as_it_is_there(tmp_path):
    path, seen = tmp_path / "log.csv", []

    class Look(Callback):
        order = 3

        def onEpochEnd(self, trainer):
            seen.append(len(rowsOf(path)))

    x, t = data()
    trainer = trainerWith(CsvLog(path), Look(), metrics=[Accuracy()])
    trainer.train(x, t, epochs=3, validation=(x, t))
    assert seen == [1, 2, 3]
    rows = rowsOf(path)
    assert list(rows[0]) == trainer.history.names()
    for row, wanted in zip(rows, trainer.history, strict=True):
        assert {name: float(value) for name, value in row.items()} == wanted


def test_a_resumed_log_has_no_row_twice(tmp_path):
    path, x, t = tmp_path / "log.csv", *data()
    whole = trainerWith(CsvLog(tmp_path / "whole.csv"))
    whole.train(x, t, epochs=5)
    first = trainerWith(CsvLog(path), lambda trainer: trainer.step == 7 and trainer.save(tmp_path / "run.h5"))
    first.train(x, t, epochs=4)
    assert len(rowsOf(path)) == 4
    trainerWith(CsvLog(path)).resume(tmp_path / "run.h5").train(x, t, epochs=5)
    found, wanted = ([{**row, "seconds": ""} for row in rowsOf(p)] for p in (path, tmp_path / "whole.csv"))
    assert found == wanted and [row["epoch"] for row in found] == list("12345")


def test_a_new_column_finds_its_place(tmp_path):
    path, x, t = tmp_path / "log.csv", *data()
    trainer = trainerWith(CsvLog(path))
    trainer.train(x, t)
    trainer.train(x, t, validation=(x, t))
    first, second = rowsOf(path)
    assert first["val loss"] == "" and float(second["val loss"]) == trainer.history[-1]["val loss"]
    assert names(tmp_path) == ["log.csv"]


# History ------------------------------------------------------------------------------------------------------


def test_the_history_is_a_table():
    history = History([{"epoch": 1, "loss": 2.5, "rate": 1e-3, "seconds": 71.2}])
    history.append({"epoch": 10, "loss": 0.00004, "accuracy": 1.0, "rate": 0.5, "seconds": 2.0})
    assert history.column("accuracy") == [None, 1.0]
    assert history.table().splitlines() == [
        "epoch       loss   rate        time  accuracy",
        "    1     2.5000  0.001  1 min 11 s          ",
        "   10  4.000e-05    0.5       2.0 s    1.0000",
    ]
    assert History().table() == ""


def test_early_stop_restores_parameters_and_statistics_of_the_best_epoch():
    script = Script([3, 1, 2, 2], "min")
    net = Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"), Linear(4, 3, name="out"))
    seen = {}

    class Look(Callback):
        def onEpochEnd(self, trainer):
            stored = {**trainer.net.params, **{f"s {n}": s for n, s in trainer.net.states.items()}}
            seen[trainer.epoch] = {name: s.data.copy() for name, s in stored.items()}

    stop = EarlyStop("script", patience=2, restore=True)
    callbacks = [Clock(script), Look(), stop]
    trainer = Trainer(net, CrossEntropy(), SGD(0.5), batchsize=8, metrics=[script], callbacks=callbacks, progress=False)
    trainer.train(*data(), epochs=9)
    assert trainer.epoch == 4
    stored = {**net.params, **{f"s {n}": s for n, s in net.states.items()}}
    assert all(np.array_equal(s.data, seen[2][name]) for name, s in stored.items())
    assert not all(np.array_equal(s.data, seen[4][name]) for name, s in stored.items())


def test_a_resumed_run_restores_the_best_epoch_of_before(tmp_path):
    def build(*more):
        script = Script([3, 1, 2, 2], "min")
        stop = EarlyStop("script", patience=2, restore=True)
        return trainerWith(Clock(script), stop, *more, metrics=[script])

    whole = build()
    whole.train(*data(), epochs=9)
    build(Checkpoint(tmp_path / "run.h5")).train(*data(), epochs=3)
    second = build()
    second.resume(tmp_path / "run.h5")
    second.train(*data(), epochs=9)
    assert second.epoch == whole.epoch == 4
    assert second.net.save(None) == whole.net.save(None)


def test_the_learning_rate_is_reduced_on_a_plateau(capsys):
    script = Script([3, 3, 3, 1, 2, 2, 2, 2], "min")
    reduce = ReduceOnPlateau("script", factor=0.1, patience=1, lowest=0.02)
    trainer = trainerWith(Clock(script), reduce, metrics=[script], progress="lines")
    trainer.train(*data(), epochs=8)
    np.testing.assert_allclose(trainer.history.column("rate"), [0.5] * 3 + [0.05] * 3 + [0.02] * 2)
    assert "script has not improved on 3 for 2 epochs: learning rate 0.5 -> 0.05" in capsys.readouterr().out


@pytest.mark.peers
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize(("patience", "least", "lowest"), [(0, 0.0, 0.0), (1, 0.5, 0.02), (3, 0.0, 0.1)])
@pytest.mark.parametrize("first", [[], [np.inf], [-np.inf], [np.nan, np.inf, np.inf], [np.inf, -np.inf]])
def test_the_learning_rate_is_reduced_when_that_of_pytorch_is(mode, patience, least, lowest, first):
    import torch
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    values = np.random.default_rng(patience).integers(0, 6, 30).astype(float)
    values[7] = np.nan
    values[: len(first)] = first
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    options = {"threshold": least, "threshold_mode": "abs", "min_lr": lowest, "eps": 0.0}
    scheduler = ReduceLROnPlateau(theirs, mode, 0.5, patience, **options)
    wanted = []
    for value in values:
        wanted.append(theirs.param_groups[0]["lr"])
        scheduler.step(value)
    script = Script(values, mode)
    reduce = ReduceOnPlateau("script", factor=0.5, patience=patience, mode=mode, least=least, lowest=lowest)
    trainer = trainerWith(Clock(script), reduce, metrics=[script])
    trainer.train(*data(), epochs=len(values))
    np.testing.assert_allclose(trainer.history.column("rate"), wanted)


def test_a_reduced_learning_rate_survives_a_resume(tmp_path):
    def build():
        script = Script([3, 3, 3, 3], "min")
        reduce = ReduceOnPlateau("script", patience=1)
        return trainerWith(Clock(script), reduce, Checkpoint(tmp_path / "run.h5"), metrics=[script])

    build().train(*data(), epochs=3)
    second = build().resume(tmp_path / "run.h5")
    second.train(*data(), epochs=4)
    assert second.history[-1]["rate"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: EarlyStop(3), "argument 1 is monitor: did you mean patience=3?"),
        (lambda: ReduceOnPlateau(3), "argument 1 is monitor: did you mean patience=3?"),
        (lambda: EarlyStop(0.5), "argument 1 is monitor: give another one by its name"),
        (lambda: Checkpoint(3), "argument 1 is path: did you mean keep=3?"),
    ],
)
def test_a_number_at_the_position_of_a_name_is_refused_with_what_it_is_for(make, said):
    with pytest.raises(ArgumentError, match=re.escape(said)):
        make()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0.4 ms"), (0.042, "42 ms"), (0.4, "0.4 s"), (59.96, "1 min 00 s")]
)
def test_a_short_epoch_has_a_time(seconds, text):
    assert duration(seconds) == text


def test_a_history_is_printed_as_a_table_and_is_a_list():
    history = History([{"epoch": 1, "loss": 0.5, "seconds": 0.01}])
    assert str(history).splitlines() == ["epoch    loss   time", "    1  0.5000  10 ms"]
    assert history == [{"epoch": 1, "loss": 0.5, "seconds": 0.01}] and repr(history) == repr(list(history))
    assert str(History()) == "no epoch yet"


@pytest.mark.parametrize("kind", [Calculator, Validator, Trainer])
def test_what_is_no_function_says_which_method_was_meant(kind):
    net = Linear(4, 2)
    thing = kind(net) if kind is Calculator else kind(net, MSE(), *[SGD()] * (kind is Trainer))
    with pytest.raises(ArgumentError, match=rf"{kind.__name__}: not a function: \w*\.?(train|validate|calculate)\("):
        thing(np.ones((2, 4), np.float32))


@pytest.mark.parametrize(
    "text",
    [
        "Checkpoint('a.h5', keep=3)",
        "EarlyStop('val loss', patience=2, restore=True)",
        "ReduceOnPlateau('val loss', factor=0.5)",
        "CsvLog('x.csv')",
        "Callback()",
    ],
)
def test_a_callback_is_shown_as_the_call_that_made_it(text):
    made = eval(text, {**vars(train), "Callback": train.Callback})
    assert repr(made) == text and repr(copy.deepcopy(made)) == text
