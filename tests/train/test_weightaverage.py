"""WeightAverage: a moving average of the parameters is validated, saved, and left in the network."""

import numpy as np
import pytest

from puregraph import SGD, ArgumentError, CrossEntropy, EarlyStop, Linear, Validator, WeightAverage, load, seed
from puregraph.core.errors import CheckpointError
from puregraph.train import Checkpoint, Trainer

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3), dtype=np.float32)
T = X.argmax(1)


def build(*callbacks, decay=0.9):
    seed(2)
    average = WeightAverage(decay)
    trainer = Trainer(Linear(3, 3), CrossEntropy(), SGD(0.5), 8, callbacks=[average, *callbacks], progress=False)
    return trainer, average


def weights(trainer):
    return next(iter(trainer.net.params.values())).data.copy()


def test_the_network_has_the_average_of_all_steps_after_the_run():
    seen = []
    trainer, average = build(lambda trainer: seen.append(weights(trainer)))
    trainer.train(X, T, epochs=2)
    wanted = seen[0].copy()
    for steps, each in enumerate(seen[1:], 1):
        d = min(0.9, (1 + steps) / (10 + steps))
        wanted = d * wanted + (1 - d) * each
    np.testing.assert_allclose(weights(trainer), wanted, rtol=1e-5)
    assert average.isShown and not np.allclose(wanted, seen[-1])


def test_the_parameters_themselves_are_trained():
    plain, seen, own = [], [], lambda trainer: seen.append(weights(trainer))
    seed(2)
    Trainer(
        Linear(3, 3), CrossEntropy(), SGD(0.5), 8, callbacks=[lambda t: plain.append(weights(t))], progress=False
    ).train(X, T, epochs=3, validation=(X, T))
    build(own)[0].train(X, T, epochs=3, validation=(X, T))
    assert np.array_equal(plain, seen)


def test_the_average_is_validated_and_saved(tmp_path):
    trainer, _ = build(Checkpoint(tmp_path / "run.h5"))
    trainer.train(X, T, epochs=2, validation=(X, T))
    found = Validator(trainer.net, CrossEntropy(), batchsize=8).validate(X, T)["loss"]
    assert trainer.history[-1]["val loss"] == found
    saved = load(tmp_path / "run.h5")
    assert np.array_equal(next(iter(saved.params.values())).data, weights(trainer))


@pytest.mark.parametrize("every", ["epoch", 7])
def test_a_run_that_is_resumed_has_the_same_average_to_the_bit(tmp_path, every):
    whole, _ = build()
    whole.train(X, T, epochs=4, validation=(X, T))
    first, _ = build(Checkpoint(tmp_path / "run.h5", every=every))
    first.train(X, T, epochs=2, validation=(X, T))
    second, _ = build()
    second.resume(tmp_path / "run.h5")
    second.train(X, T, epochs=4, validation=(X, T))
    assert second.step == whole.step and np.array_equal(weights(second), weights(whole))


def test_a_second_call_goes_on_with_the_parameters():
    one, two = build()[0], build()[0]
    one.train(X, T, epochs=2)
    one.train(X, T, epochs=2)
    two.train(X, T, epochs=4)
    assert np.array_equal(weights(one), weights(two))


def test_early_stop_restores_the_average_of_the_best_epoch():
    stop = EarlyStop("val loss", patience=1, restore=True)
    trainer, _ = build(stop)
    trainer.train(X, T, epochs=4, validation=(X, T))
    best = trainer.history[stop.epoch - 1]["val loss"]
    assert Validator(trainer.net, CrossEntropy()).validate(X, T)["loss"] == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2, "much"])
def test_a_decay_out_of_range_is_refused(decay):
    with pytest.raises(ArgumentError, match="WeightAverage: wanted decay as a probability"):
        WeightAverage(decay)


@pytest.mark.parametrize(
    "state", [{}, {"steps": 1, "isShown": 3, "arrays": {}}, {"steps": 1, "isShown": True, "arrays": [1]}]
)
def test_a_forged_state_is_refused(state):
    with pytest.raises(CheckpointError, match="WeightAverage: wanted steps"):
        WeightAverage().restore(state)
