"""Runs of a Trainer: how they are ended at once, tried out quickly, and what is held out for their validation."""

import numpy as np
import pytest

from puregraph import SGD, CrossEntropy, Linear, seed
from puregraph.core.errors import DataError
from puregraph.train import Accuracy, Checkpoint, CsvLog, Trainer
from puregraph.train.prechecks import heldOutFrom


def data(count=43):
    x = np.random.default_rng(1).standard_normal((count, 3)).astype(np.float32)
    return x, x.argmax(1)


def trainerWith(*callbacks, **options):
    seed(2)
    given = {"batchsize": 8, "progress": "lines", "metrics": [Accuracy()], **options}
    return Trainer(Linear(3, 3), CrossEntropy(), SGD(0.5), callbacks=callbacks, **given)


def stopAt(step, **options):
    def stop(trainer):
        if trainer.step == step:
            trainer.stop("enough", **options)

    return stop


def test_stop_now_ends_a_run_after_the_step(tmp_path, capsys):
    trainer = trainerWith(Checkpoint(tmp_path / "run.h5"), stopAt(8, now=True))
    history = trainer.train(*data(), epochs=3)
    assert trainer.step == 8 and len(history) == 1
    out = capsys.readouterr().out
    assert "stopped in epoch 2, after step 2 of 6: enough; saved in" in out


def test_stop_without_now_ends_a_run_after_the_epoch():
    trainer = trainerWith(stopAt(8))
    trainer.train(*data(), epochs=3)
    assert trainer.step == 12 and len(trainer.history) == 2


def test_training_goes_on_where_stop_now_ended_it():
    stopped, whole = trainerWith(stopAt(8, now=True)), trainerWith()
    stopped.train(*data(), epochs=3)
    stopped.train(*data(), epochs=3)
    whole.train(*data(), epochs=3)
    assert stopped.step == whole.step == 18
    assert stopped.net.save(None) == whole.net.save(None)


def test_a_fast_run_takes_three_batches_of_everything_and_writes_nothing(tmp_path, capsys):
    trainer = trainerWith(Checkpoint(tmp_path / "run.h5"), CsvLog(tmp_path / "run.csv"), fastRun=True)
    history = trainer.train(*data(), epochs=30, validation=data(100))
    assert trainer.step == 3 and len(history) == 1 and "val loss" in history[0]
    assert trainer.validator.meters.samples == 8 + 8 + 4
    assert not list(tmp_path.iterdir())
    assert "fast run: 3 batches of everything" in capsys.readouterr().out


def test_a_fast_run_takes_the_last_smaller_batch_too():
    trainer = trainerWith(fastRun=True)
    trainer.train(*data(43))
    assert trainer.meters.samples == 8 + 8 + 3


def test_a_fast_run_of_few_samples_takes_all():
    trainer = trainerWith(fastRun=True)
    trainer.train(*data(11))
    assert trainer.meters.samples == 11


def test_a_fast_run_takes_three_batches_of_an_iterable():
    x, t = data()
    trainer = trainerWith(fastRun=True)
    trainer.train(lambda epoch: ((x[:4], t[:4]) for _ in range(9)))
    assert trainer.step == 3


def test_a_fraction_is_held_out_for_the_validation():
    x, t = data(50)
    trainer = trainerWith()
    history = trainer.train(x, t, epochs=2, validation=0.2)
    assert trainer.meters.samples == 40 and trainer.validator.meters.samples == 10
    assert "val accuracy" in history[-1]


def test_the_same_samples_are_held_out_in_every_call():
    x = np.arange(50, dtype="f4").reshape(50, 1)
    pairs = [heldOutFrom(x, x, 0.2) for _ in range(2)]
    assert np.array_equal(pairs[0][1][0], pairs[1][1][0])
    assert sorted([*pairs[0][0][0].ravel(), *pairs[0][1][0].ravel()]) == list(range(50))


def test_what_is_held_out_is_said_and_follows_the_seed(capsys):
    x, t = data(50)
    rows = [trainerWith(seed=seed, progress="lines").train(x, t, validation=0.2)[-1] for seed in (3, 3)]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == said[2] == "40 samples train, 10 validate: held out with seed=3"
    assert rows[0]["val loss"] == rows[1]["val loss"]
    held = [heldOutFrom(x, t, 0.2, seed=seed)[1][0] for seed in (0, 3)]
    assert not np.array_equal(*held)
    trainer = trainerWith(seed=3)
    trainer.train(x, t, validation=0.2)
    split = (held[1], heldOutFrom(x, t, 0.2, seed=3)[1][1])
    assert trainer.validator.validate(*split)["loss"] == trainer.history[-1]["val loss"]


def test_a_resumed_run_holds_out_what_it_held_out_before(tmp_path):
    x, t = data(50)
    trainer = trainerWith(seed=3)
    trainer.train(x, t, validation=0.2)
    trainer.save(tmp_path / "run.h5")
    other = trainerWith(seed=8)
    other.resume(tmp_path / "run.h5")
    assert other.splitSeed == 3


def test_each_class_has_its_share_held_out():
    labels = np.repeat([0, 1], [40, 10])
    (_, stays), (_, held) = heldOutFrom(np.zeros((50, 2), "f4"), labels, 0.2)
    assert np.bincount(stays).tolist() == [32, 8] and np.bincount(held).tolist() == [8, 2]


@pytest.mark.parametrize("part", [0.0, 1.0, -0.5, 0.001, float("nan")])
def test_a_fraction_that_leaves_nothing_is_refused(part):
    with pytest.raises(DataError, match="validation: wanted a fraction of 43 samples"):
        trainerWith().train(*data(), validation=part)


def test_a_fraction_of_batches_is_refused():
    x, t = data()
    with pytest.raises(DataError, match="validation: a fraction is held out of arrays"):
        trainerWith().train([(x, t)], validation=0.2)
