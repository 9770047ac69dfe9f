"""findRate: the learning rate at which the cost falls fastest; trying it leaves no trace."""

import numpy as np
import pytest

from puregraph import (
    SGD,
    Adam,
    ArgumentError,
    BatchNorm,
    CrossEntropy,
    Dropout,
    Linear,
    Relu,
    Sequential,
    Trainer,
    seed,
)
from puregraph.train import findRate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 6), dtype=np.float32)
T = (X[:, 0] * X[:, 1] > 0).astype(int)


def trainerWith(optimizer):
    seed(3)
    net = Sequential(Linear(6, 16), BatchNorm(16), Relu(), Dropout(0.2), Linear(16, 2))
    return Trainer(net, CrossEntropy(), optimizer, batchsize=20, progress="lines")


@pytest.mark.parametrize("make", [lambda: Adam(1e-2), lambda: SGD(0.1)])
@pytest.mark.parametrize("epochs", [0, 2])
def test_a_run_after_it_is_the_run_without_it(make, epochs, capsys):
    plain, tried = trainerWith(make()), trainerWith(make())
    for trainer in (plain, tried):
        if epochs:
            trainer.train(X, T, epochs=epochs)
    capsys.readouterr()
    findRate(tried, X, T, steps=30)
    assert capsys.readouterr().out == "" and len(tried.history) == epochs
    for trainer in (plain, tried):
        trainer.train(X, T, epochs=2)
    assert tried.history.column("loss") == plain.history.column("loss")
    assert tried.net.save(None) == plain.net.save(None)


def test_the_rates_grow_from_the_lowest_and_a_cost_belongs_to_each():
    found = findRate(trainerWith(SGD(0.1)), X, T, lowest=1e-4, highest=1e-2, steps=21)
    np.testing.assert_allclose(found.rates, np.geomspace(1e-4, 1e-2, 21))
    assert found.costs.shape == (21,) and np.isfinite(found.costs).all()


def test_it_ends_where_the_cost_goes_up_and_finds_a_rate_below():
    found = findRate(trainerWith(SGD(0.1)), X, T, lowest=1e-4, highest=1e6, steps=200)
    assert len(found.rates) < 200 and 1e-3 < found.best < found.rates[-1]
    trainer = trainerWith(SGD(found.best))
    trainer.train(X, T, epochs=8)
    assert trainer.history[-1]["loss"] < trainer.history[0]["loss"]


@pytest.mark.parametrize("options", [{"lowest": 0}, {"lowest": 2, "highest": 1}, {"steps": 3}, {"steps": 0}])
def test_rates_that_cannot_grow_are_refused(options):
    with pytest.raises(ArgumentError, match="findRate: wanted"):
        findRate(trainerWith(SGD(0.1)), X, T, **options)
