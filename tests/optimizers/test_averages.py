"""Averages of parameters by definition, in validation, and after a resume; weight decay that spares; parts of rules."""

import copy
import pickle

import numpy as np
import pytest

from puregraph import MSE, BatchNorm, Linear, Relu, Sequential, Trainer, Validator, seed
from puregraph.compile import Updater
from puregraph.core.errors import ArgumentError
from puregraph.optimizers import (
    ASGD,
    EMA,
    LAMB,
    SGD,
    SWA,
    Adam,
    Adamax,
    AdamW,
    Lookahead,
    MomentumSGD,
    MultiOptimizer,
    Muon,
    Optimizer,
    RMSProp,
)

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((40, 3)), RNG.standard_normal((40, 1))


def network():
    seed(0)
    return Sequential(Linear(3, 4, name="fc"), Relu(), Linear(4, 1, name="head"))


def trainerFor(optimizer, **options):
    return Trainer(network(), MSE(), optimizer, batchsize=8, progress="none", **options)


def weightsOf(net):
    return {path: p.data.copy() for path, p in net.params.items()}


def lossOf(trainer):
    return Validator(trainer.net, MSE()).validate(X, Y)["loss"]


@pytest.mark.parametrize("isCompiled", [False, True])
def test_an_ema_after_a_thousand_updates_is_the_sum_by_definition(isCompiled):
    history = []
    note = lambda trainer: history.append(weightsOf(trainer.net))  # noqa: E731
    optimizer = SGD(0.01, average=EMA(0.99))
    trainer = trainerFor(optimizer, callbacks=[note], compile=isCompiled)
    start = weightsOf(trainer.net)
    trainer.train(X, Y, epochs=200)
    assert len(history) == 1000
    decays = [min(0.99, (1 + t) / (10 + t)) for t in range(1, 1001)]
    for path, first in start.items():
        wanted = np.prod(decays) * first.astype(np.float64)
        for t in range(1000):
            wanted += (1 - decays[t]) * np.prod(decays[t + 1 :]) * history[t][path]
        np.testing.assert_allclose(optimizer.state[f"average/{path}"], wanted, rtol=0, atol=1e-6)


def test_swa_is_the_mean_of_the_updates_that_it_names():
    history = []
    optimizer = SGD(0.05, average=SWA(start=7, every=3))
    trainer = trainerFor(optimizer, callbacks=[lambda trainer: history.append(weightsOf(trainer.net))])
    trainer.train(X, Y, epochs=4)
    for path in history[0]:
        wanted = np.mean([history[t - 1][path] for t in range(7, 21, 3)], axis=0)
        np.testing.assert_allclose(optimizer.state[f"average/{path}"], wanted, rtol=1e-5, atol=1e-6)


def test_lookahead_goes_back_to_its_slow_weights():
    optimizer = SGD(0.1, average=Lookahead(k=2, alpha=0.25)).setupOn(net := network())
    slow = fast = weightsOf(net)
    for step in range(1, 7):
        for p in net.params.values():
            p.grad = np.full(p.shape, step, np.float32)
        optimizer.update()
        fast = {path: w - 0.1 * step for path, w in fast.items()}
        if step % 2 == 0:
            slow = {path: w + 0.25 * (fast[path] - w) for path, w in slow.items()}
            fast = slow
        for path, p in net.params.items():
            np.testing.assert_allclose(p.data, fast[path], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [lambda: Adam(0.05, average=EMA(0.9)), lambda: LAMB(0.05, average=EMA(0.9))])
def test_validation_uses_the_averages_and_training_goes_on_without(optimizer, tmp_path):
    rows = []
    for isStopped in (False, True):
        trainer = trainerFor(optimizer())
        trainer.train(X, Y, epochs=2, validation=(X, Y))
        if isStopped:
            trainer.save(tmp_path / "run.h5")
            trainer = trainerFor(optimizer()).resume(tmp_path / "run.h5")
        trainer.train(X, Y, epochs=2, validation=(X, Y))
        with trainer.optimizer.averaged():
            assert lossOf(trainer) == pytest.approx(trainer.history[-1]["val loss"], rel=1e-6)
        assert lossOf(trainer) != pytest.approx(trainer.history[-1]["val loss"], rel=1e-4)
        rows.append((trainer.history[-1]["val loss"], weightsOf(trainer.net)))
    assert rows[0][0] == rows[1][0]
    for path, w in rows[0][1].items():
        np.testing.assert_array_equal(w, rows[1][1][path])


def test_the_average_can_be_kept():
    trainer = trainerFor(ASGD(0.05, begin=3))
    trainer.train(X, Y, epochs=2)
    average = {path: trainer.optimizer.state[f"average/{path}"].copy() for path in trainer.net.params}
    assert any((average[path] != p.data).any() for path, p in trainer.net.params.items())
    trainer.optimizer.keepAverage()
    for path, p in trainer.net.params.items():
        np.testing.assert_array_equal(p.data, average[path])
    with pytest.raises(ArgumentError, match="ASGD: it keeps an average of its own"):
        ASGD(average=EMA())


def test_decay_can_spare_biases_and_norms():
    def after(net, optimizer):
        optimizer.setupOn(net)
        for p in net.params.values():
            p.grad = np.zeros(p.shape, np.float32)
            p.data = np.ones(p.shape, np.float32)
        optimizer.update()
        return {path: float(p.data.reshape(-1)[0]) for path, p in net.params.items()}

    def normed():
        return Sequential(Linear(3, 4, name="fc"), BatchNorm(4, name="norm"))

    kept = {"fc.b": 1.0, "norm.scale": 1.0, "norm.bias": 1.0}
    for optimizer in (
        AdamW(0.1, decay=0.5, spare="biases and norms"),
        MultiOptimizer({"*": AdamW(0.1, decay=0.5, spare="biases and norms")}),
    ):
        assert after(normed(), optimizer) == {"fc.W": pytest.approx(0.95), **kept}
    assert after(normed(), Muon(0.1, decay=0.5, spare="biases and norms"))["fc.b"] == 1.0
    with pytest.raises(ArgumentError, match="spare"):
        Adam(spare="all")


def test_a_rule_of_arrays_says_what_it_lacks():
    class Lacking(Optimizer):
        @staticmethod
        def rule(param, grad, rate, velocity):
            return {"param": param - rate * velocity}

        def __init__(self):
            super().__init__(0.1)

    class Empty(Lacking):
        @staticmethod
        def rule(param, grad, rate):
            return {"weights": param}

    net = network()
    for cls, words in (
        (Lacking, "argument 'velocity', which is neither state nor"),
        (Empty, "wanted a dict with 'param'"),
    ):
        optimizer = cls().setupOn(net)
        for p in net.params.values():
            p.grad = np.zeros(p.shape, np.float32)
        with pytest.raises(ArgumentError, match=words):
            optimizer.update()


@pytest.mark.parametrize("change", [{"maximise": True}, {"decoupled": True}, {"decay": lambda step: 0.1 * step}])
def test_a_setting_changed_by_hand_counts_in_a_compiled_update(change):
    nets = []
    for isCompiled in (False, True):
        net, rng = network(), np.random.default_rng(0)
        optimizer = SGD(0.1, decay=0.2).setupOn(net)
        updater = None
        for step in range(6):
            for p in net.params.values():
                p.grad = rng.standard_normal(p.shape).astype("f4")
            if step == 3:
                vars(optimizer).update(change)
                optimizer.learnRate = 0.1  # says that something was set
            if isCompiled:
                updater = updater or Updater(net, optimizer)
                updater.run()
            else:
                optimizer.update()
        nets.append(weightsOf(net))
    for path, w in nets[0].items():
        np.testing.assert_allclose(nets[1][path], w, rtol=1e-6, atol=1e-7)


def test_the_largest_variance_so_far_is_refused_where_there_is_none():
    for kind in (LAMB, Adamax):
        with pytest.raises(ArgumentError, match="amsgrad needs a rule with a root of v"):
            kind(amsgrad=True)


@pytest.mark.parametrize(
    ("made", "name", "value"),
    [
        (lambda: Adam(), "amsgrad", True),
        (lambda: AdamW(amsgrad=True), "amsgrad", False),
        (lambda: SGD(0.1), "average", EMA(0.9)),
        (lambda: SGD(0.1, average=EMA(0.9)), "average", None),
        (lambda: Muon(average=EMA(0.9)), "average", SWA(2)),
        (lambda: RMSProp(), "centered", True),
        (lambda: RMSProp(), "momRate", 0.9),
        (lambda: MomentumSGD(), "dampening", 0.5),
    ],
)
def test_a_setting_that_chooses_the_formulas_cannot_be_changed(made, name, value):
    optimizer = made()
    with pytest.raises(ArgumentError, match=rf"{name} chooses its formulas and state, and cannot be changed; make"):
        setattr(optimizer, name, value)
    setattr(optimizer, name, getattr(optimizer, name))
    copied = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
    assert type(getattr(copied, name)) is type(getattr(optimizer, name))


def test_a_number_that_chose_the_formulas_may_become_another():
    weights = []
    for first, then in ((0.9, 0.5), (0.5, 0.5)):
        net = network()
        optimizer = RMSProp(0.1, momRate=first).setupOn(net)
        optimizer.momRate = then
        rng = np.random.default_rng(0)
        for _ in range(3):
            for p in net.params.values():
                p.grad = rng.standard_normal(p.shape).astype(np.float32)
            optimizer.update()
        weights.append(weightsOf(net))
    for path, w in weights[0].items():
        np.testing.assert_array_equal(w, weights[1][path])
