"""What a Trainer refuses, or warns of: labels, validation data, and what does not fit."""

import copy
import pickle
import traceback

import numpy as np
import pytest
from smalltrainers import arraysOf, classifier, equal, noisy, quiet, samples, told

from puregraph import (
    MSE,
    SGD,
    Adam,
    CrossEntropy,
    Linear,
    Module,
    Relu,
    Sequential,
)
from puregraph.core.errors import DataError, GraphError, PuregraphError, ShapeError
from puregraph.train import Accuracy, Callback, Trainer, Validator

# Labels that do not count -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
def test_labels_of_minus_one_and_one_are_refused_before_anything_is_learnt(rng, compile):
    x, t = samples(rng)
    net = classifier(classes=2)
    before = arraysOf(net)
    with pytest.raises(
        DataError, match="got label -1 for sample .*; classes are counted from 0: give .labels . 1. // 2"
    ):
        quiet(net, CrossEntropy(), metrics=[Accuracy()], compile=compile).train(x, np.where(t == 0, -1, 1), epochs=2)
    assert equal(arraysOf(net), before)


def test_the_share_of_labels_that_are_left_out_is_said_once(rng, capsys):
    x, t = samples(rng, 40)
    trainer = Trainer(classifier(), CrossEntropy(ignoreIndex=-1), SGD(0.1), batchsize=8, progress="lines")
    trainer.train(x, np.where(np.arange(40) < 10, -1, t), epochs=3)
    assert capsys.readouterr().out.count("25 % of the labels are -1, which CrossEntropy leaves out") == 1
    trainer.train(x, t, epochs=2)
    assert "leaves out" not in capsys.readouterr().out


# Validation data with a label that is no class ------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
def test_an_error_of_a_validation_says_in_which_batch(rng, compile):
    x, t = samples(rng)
    validator = Validator(classifier(), CrossEntropy(), batchsize=5, compile=compile)
    t[12] = 7
    with pytest.raises(DataError, match="got label 7 for sample 2 of the batch") as found:
        validator.validate(x, t)
    assert "in validation, batch 3" in "".join(traceback.format_exception(found.value))


# Validation data that is not finite ---------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
def test_validation_data_that_is_not_finite_is_named_as_training_data_is(rng, compile):
    x, t = samples(rng)
    bad = x.copy()
    bad[17, 2] = np.nan
    trainer = quiet(classifier(), CrossEntropy(), batchsize=5, compile=compile)
    words = r"^validation, batch 4: the cost is nan; data .sample 2. of this batch holds values that are not finite"
    with pytest.raises(PuregraphError, match=words):
        trainer.train(x, t, epochs=2, validation=(bad, t))
    assert trainer.step == 6 and trainer.epoch == 0
    with pytest.raises(PuregraphError, match=words):
        Validator(classifier(), CrossEntropy(), batchsize=5, compile=compile).validate(bad, t)


def test_a_network_that_exploded_is_validated_all_the_same(rng):
    x, t = samples(rng)
    net = classifier()
    net[0].W.data = np.full(net[0].W.shape, 3e38, np.float32)
    assert not np.isfinite(Validator(net, CrossEntropy()).validate(x, t)["loss"])


# What does not fit --------------------------------------------------------------------------------------------


def test_shapes_are_checked_before_the_first_step(rng):
    x, t = samples(rng, 12)
    net = classifier()
    before = arraysOf(net)
    trainer = quiet(net, CrossEntropy(), batchsize=4)
    with pytest.raises(ShapeError, match=r"\(Linear\): wanted \(..., 4\), got \(4, 3\)"):
        trainer.train(x[:, :3], t)
    with pytest.raises(ShapeError, match=r"\(CrossEntropy\): wanted labels of shape"):
        trainer.train(x, np.eye(3)[t])
    with pytest.raises(ShapeError, match="in the validation"):
        trainer.train(x, t, validation=(x[:, :2], t))
    assert equal(before, arraysOf(net)) and trainer.step == 0


def test_a_last_batch_that_batchnorm_cannot_take_is_found_first(rng):
    x, t = samples(rng, 9)
    trainer = quiet(noisy(), CrossEntropy(), batchsize=4)
    with pytest.raises(ShapeError, match="at least two values of each map") as caught:
        trainer.train(x, t)
    assert "in the last batch: 9 samples in batches of 4 leave 1; Trainer(..., dropLast=True) leaves" in told(
        caught.value
    )
    assert trainer.step == 0
    seen = []
    look = [lambda trainer: seen.append(trainer.order[8:].item())]
    trained = quiet(noisy(), CrossEntropy(), batchsize=4, dropLast=True, callbacks=look)
    trained.train(x, t, epochs=9, validation=(x, t))
    assert trained.step == 18 and len(set(seen)) > 3  # another one is left out in each epoch
    trainer.train(x[:8], t[:8], validation=(x, t))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batchsize": 0}, "batchsize: wanted"),
        ({"accumulate": 0}, "accumulate: wanted"),
        ({"prefetch": -1}, "prefetch: wanted a whole number of at least 0, got -1"),
        ({"prefetch": True}, "prefetch: wanted"),
        ({"callbacks": [3]}, "callbacks: wanted a Callback or a function"),
        ({"metrics": [Accuracy]}, "wanted Metrics such as Accuracy"),
        ({"metrics": Accuracy()}, "metrics: wanted a list of Metrics, got Accuracy"),
        ({"callbacks": Callback()}, "callbacks: wanted a list, got"),
        ({"callbacks": print}, "callbacks: wanted a list, got"),
        ({"cost": MSE}, r"cost: wanted a Module, such as MSE\(\), got the class MSE; make one, MSE\(...\)"),
        ({"cost": lambda x, target: 0}, "cost: wanted a Module"),
        ({"net": Linear}, "net: wanted a Module, .* got the class Linear"),
        ({"optimizer": Adam}, r"optimizer: wanted an Optimizer, such as Adam\(\), got the class Adam"),
        ({"optimizer": "adam"}, "optimizer: wanted an Optimizer, .* got 'adam'"),
        ({"optimizer": MSE()}, "optimizer: wanted an Optimizer"),
    ],
)
def test_options_that_make_no_sense_are_named(options, words):
    given = {"net": classifier(), "cost": CrossEntropy(), "optimizer": SGD(0.1), "progress": "none", **options}
    with pytest.raises(DataError, match=words):
        Trainer(**given)


def test_a_network_without_anything_to_train_is_refused(rng):
    x, t = samples(rng)
    with pytest.raises(DataError, match="nothing of Sequential can be trained: it has no parameters"):
        quiet(Sequential(Relu()), MSE()).train(x, x)
    net = classifier()
    for param in net.params.values():
        param.trainable = False
    with pytest.raises(DataError, match="all 4 parameters are frozen"):
        quiet(net, CrossEntropy()).train(x, t)


def test_a_trainer_that_is_training_cannot_be_started_again(rng):
    x, t = samples(rng)
    trainer = quiet(classifier(), CrossEntropy(), callbacks=[lambda trainer: trainer.train(x, t)])
    with pytest.raises(DataError, match="this trainer is training already"):
        trainer.train(x, t)
    trainer.callbacks.pop(0)
    assert len(trainer.train(x, t)) == 1


def test_a_trainer_with_a_bar_can_be_copied_and_goes_its_own_way(rng):
    x, t = samples(rng)
    trainer = Trainer(classifier(), CrossEntropy(), Adam(), progress="bar")
    for other in (copy.deepcopy(trainer), pickle.loads(pickle.dumps(trainer))):
        other.train(x, t)
        assert other.step == 1 and trainer.step == 0
    assert repr(trainer) == "<Trainer of Sequential, CrossEntropy, Adam: epoch 0, step 0>"


def test_wrong_data_is_named(rng):
    x, t = samples(rng, 12)
    trainer = quiet(classifier(), CrossEntropy())
    for data, target, words in (
        (x, t[:5], "12 samples, target 5"),
        (x[:0], t[:0], "at least one sample"),
        (x.astype(object), t, "got dtype object"),
    ):
        with pytest.raises(DataError, match=words):
            trainer.train(data, target)
        with pytest.raises(DataError, match=words):
            trainer.train(x, t, validation=(data, target))
    with pytest.raises(DataError, match="epochs: wanted"):
        trainer.train(x, t, epochs=0)
    with pytest.raises(DataError, match="got data alone"):
        trainer.train(x)
    with pytest.raises(DataError, match="validation: wanted data and target, got data alone"):
        trainer.train(x, t, validation=x)
    with pytest.raises(DataError, match="validation: wanted .data, target., or a fraction such as 0.2, got 3"):
        trainer.train(x, t, validation=3)


def test_a_cost_that_is_no_number_is_refused(rng):
    class Each(Module):
        def dataShapeFrom(self, x, target):
            return x

        def updateData(self, x, target):
            return x - target

    x, _ = samples(rng, 6)
    with pytest.raises(GraphError, match=r"Each: wanted a cost of one number, got shape \(6, 3\)"):
        quiet(classifier(), Each()).train(x, x[:, :3])
    with pytest.raises(GraphError, match="wanted a cost of one number"):
        quiet(classifier(), Each()).train([(x, x[:, :3])])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_data_that_is_not_finite_is_told_from_a_cost_that_exploded(rng):
    x, t = samples(rng, 8)
    with pytest.raises(
        PuregraphError, match=r"the cost is nan; data .sample \d+. of this batch holds values that are not finite"
    ):
        quiet(classifier(), CrossEntropy()).train(x * np.nan, t)
    with pytest.raises(PuregraphError, match="lower the learning rate"):
        quiet(classifier(), MSE(), SGD(1e30)).train(x, x[:, :3], epochs=9)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_cost_that_is_not_finite_stops_and_says_where(rng, value):
    x, t = samples(rng, 20)
    net = classifier()
    trainer = quiet(net, CrossEntropy(), batchsize=4, shuffle=False)
    trainer.train(x, t)
    x[14] = value
    with pytest.raises(PuregraphError, match="epoch 2, batch 4: the cost is nan"):
        trainer.train(x, t)
    assert all(np.isfinite(a).all() for a in arraysOf(net).values())
    assert len(trainer.history) == 1
    x[14] = 0
    assert trainer.train(x, t)[-1]["epoch"] == 2


def test_an_error_in_a_step_says_in_which(rng):
    x, t = samples(rng, 20)
    t[17] = 9
    with pytest.raises(DataError, match="got label 9") as error:
        quiet(classifier(), CrossEntropy(), batchsize=4, shuffle=False).train(x, t)
    text = str(error.value) + "".join(getattr(error.value, "__notes__", ()))
    assert "in epoch 1, batch 5" in text and "CrossEntropy" in text
