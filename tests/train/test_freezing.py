"""Modules that are frozen: nothing in them changes while the rest is trained."""

import numpy as np
import pytest

from puregraph import SGD, BatchNorm, CrossEntropy, Dropout, Linear, Sequential, Trainer, seed
from puregraph.train import Callback, Checkpoint

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 6), dtype=np.float32)
T = (X.sum(axis=1) > 0).astype(int)


def build():
    seed(1)
    stem = Sequential(Linear(6, 8, name="fc"), BatchNorm(8, name="norm"), Dropout(0.5, name="drop"), name="stem")
    return Sequential(stem, Linear(8, 2, name="head"), name="net")


def values(net, begin):
    stored = {**net.params, **{f"state {name}": state for name, state in net.states.items()}}
    named = {name.split()[-1]: each for name, each in stored.items()}
    return {name: each.data.copy() for name, each in named.items() if name.startswith(begin) and "key" not in name}


def same(one, two):
    return [name for name in one if np.array_equal(one[name], two[name])]


def trained(net, compile=True):
    Trainer(net, CrossEntropy(), SGD(0.1), batchsize=16, progress=False, compile=compile).train(X, T, epochs=2)
    return net


@pytest.mark.parametrize("compile", [True, False])
def test_parameters_and_statistics_of_what_is_frozen_stay(compile):
    net = build()
    net["stem"].freeze()
    before = values(net, "stem"), values(net, "head")
    trained(net, compile)
    assert len(same(before[0], values(net, "stem"))) == len(before[0]) >= 6
    assert not same(before[1], values(net, "head"))


def test_what_is_frozen_computes_as_in_eval_mode_while_the_rest_is_trained():
    net = build()
    net["stem"].freeze()
    wanted = net.evalMode()(X)
    assert np.array_equal(net.trainMode()(X), wanted)
    assert net["head"].isTraining and not net["stem.norm"].isTraining


def test_training_of_what_is_frozen_agrees_compiled_and_not():
    one, two = build(), build()
    for net in (one, two):
        net["stem"].freeze()
    for a, b in zip(trained(one).params.values(), trained(two, False).params.values(), strict=True):
        np.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-6)


def test_what_is_unfrozen_is_trained_again():
    net = build()
    net["stem"].freeze()
    trained(net)
    net["stem"].unfreeze()
    before = values(net, "stem")
    trained(net)
    assert not same(before, values(net, "stem"))
    assert net.trainMode()["stem.norm"].isTraining


class Unfreezes(Callback):
    """Unfreezes a part at the end of the first epoch, or of a step."""

    def __init__(self, path, step=None):
        self.path, self.step = path, step

    def onEpochEnd(self, trainer):
        if self.step is None and trainer.epoch == 1:
            trainer.net[self.path].unfreeze()

    def onBatchEnd(self, trainer):
        if trainer.step == self.step:
            trainer.net[self.path].unfreeze()


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("step", [None, 2])
@pytest.mark.parametrize("isValidated", [True, False])
def test_what_a_callback_unfreezes_is_trained_within_the_run(compile, step, isValidated):
    net = build()
    net["stem"].freeze()
    before = values(net, "stem")
    options = {"batchsize": 16, "progress": False, "compile": compile, "callbacks": [Unfreezes("stem", step)]}
    validation = {"validation": (X, T)} if isValidated else {}
    Trainer(net, CrossEntropy(), SGD(0.1), **options).train(X, T, epochs=3, **validation)
    assert not same(before, values(net, "stem"))
    assert not net["stem.norm"].isTraining and net.trainMode()["stem.norm"].isTraining


def test_training_of_what_a_callback_unfreezes_agrees_compiled_and_not():
    nets = [build(), build()]
    for net, compile in zip(nets, (True, False)):
        net["stem"].freeze()
        options = {"batchsize": 16, "progress": False, "compile": compile, "callbacks": [Unfreezes("stem")]}
        Trainer(net, CrossEntropy(), SGD(0.1), **options).train(X, T, epochs=3)
    one, two = (values(net, "") for net in nets)
    for name in one:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("train", [True, False])
def test_what_is_unfrozen_is_in_the_mode_that_was_set_last(train):
    net = build()
    net["stem"].freeze()
    net.isTraining = not train
    _ = net.trainMode() if train else net.evalMode()
    net["stem"].freeze()
    net["stem"].unfreeze()
    assert {module.isTraining for module in net.modules().values()} == {train}
    net["stem"].unfreeze()
    assert {module.isTraining for module in net.modules().values()} == {train}


def test_what_is_frozen_in_a_run_is_in_eval_mode_when_it_is_unfrozen_behind_it():
    net = build()
    freezes = [lambda trainer: trainer.net["stem"].freeze()]
    Trainer(net, CrossEntropy(), SGD(0.1), batchsize=16, progress=False, callbacks=freezes).train(X, T)
    net["stem"].unfreeze()
    assert not net["stem.norm"].isTraining and not net["head"].isTraining


def test_one_module_is_frozen_alone():
    net = build()
    net["stem.norm"].freeze()
    before = values(net, "stem")
    trained(net)
    assert sorted(same(before, values(net, "stem"))) == sorted(name for name in before if "norm" in name)


class Thaws(Callback):
    """Freezes one layer and thaws another after the first epoch."""

    def onEpochEnd(self, trainer):
        if trainer.epoch == 1:
            trainer.net["first"].freeze()
            trainer.net["second"].unfreeze()


def test_what_was_frozen_and_thawed_in_a_run_is_so_when_it_is_resumed(tmp_path, capsys):
    x = np.random.default_rng(0).standard_normal((24, 4)).astype("f4")

    def made():
        seed(1)
        net = Sequential(Linear(4, 4, name="first"), BatchNorm(4, name="norm"), Linear(4, 3, name="second"))
        net["second"].freeze()
        callbacks = [Thaws(), Checkpoint(tmp_path / "run.h5")]
        return Trainer(net, CrossEntropy(), SGD(0.1), 8, callbacks=callbacks, progress="lines")

    whole = made()
    whole.train(x, np.arange(24) % 3, epochs=4)
    made().train(x, np.arange(24) % 3, epochs=2)
    capsys.readouterr()
    again = made().resume(tmp_path / "run.h5")
    assert "frozen as in the run: first; freeze() and unfreeze() after resume change it" in capsys.readouterr().out
    assert again.net["first"].isFrozen and not again.net["second"].isFrozen and again.net["second"].W.trainable
    again.train(x, np.arange(24) % 3, epochs=4)
    for path, param in whole.net.params.items():
        np.testing.assert_array_equal(again.net.params[path].data, param.data)
