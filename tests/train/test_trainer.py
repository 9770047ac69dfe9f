"""Trainer, Validator and Calculator: what a step is, what an epoch is, and what does not fit."""

import copy
import math
import os
import pickle
import signal
import threading
import traceback
import warnings

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Adam,
    BatchNorm,
    Concat,
    CrossEntropy,
    Dropout,
    Embedder,
    Flatten,
    Graph,
    Identity,
    Input,
    Linear,
    Mean,
    Module,
    Relu,
    Sequential,
)
from puregraph.core import device as devices
from puregraph.core import initial
from puregraph.core.errors import DataError, GraphError, GraphWarning, PuregraphError, ShapeError
from puregraph.train import MAE, Accuracy, Calculator, Callback, Interrupt, Trainer, Validator


def classifier(insize=4, classes=3, dtype=None):
    initial.seed(3)
    net = Sequential(Linear(insize, 8), Relu(), Linear(8, classes))
    return net if dtype is None else net.calcMode(np.dtype(dtype))


def samples(rng, count=30, insize=4, classes=3):
    x = rng.standard_normal((count, insize)).astype(np.float32)
    return x, x[:, :classes].argmax(1)


def quiet(net, cost, optimizer=None, **options):
    return Trainer(net, cost, optimizer or SGD(0.1), progress="none", **options)


def arraysOf(net):
    return {path: devices.toHost(p.data).copy() for path, p in {**net.params, **net.states}.items()}


def told(error):
    """What somebody sees of an error."""
    return "".join(traceback.format_exception(error))


def equal(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


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


# What is learnt -----------------------------------------------------------------------------------------------


def test_training_learns(device, rng):
    x, t = samples(rng, 300)
    trainer = quiet(classifier(), CrossEntropy(), Adam(0.01), batchsize=32, metrics=[Accuracy()])
    history = trainer.train(x[:200], t[:200], epochs=30, validation=(x[200:], t[200:]))
    assert len(history) == trainer.epoch == 30 and trainer.step == 30 * 7
    assert history[-1]["loss"] < 0.3 * history[0]["loss"]
    assert history[-1]["val accuracy"] > 0.9
    assert list(history[-1]) == [
        "epoch",
        "step",
        "loss",
        "accuracy",
        "val loss",
        "val accuracy",
        "rate",
        "seconds",
    ]


def test_one_call_is_one_pass(rng):
    x, t = samples(rng)
    trainer = quiet(classifier(), CrossEntropy(), batchsize=8)
    for epoch in (1, 2, 3):
        assert trainer.train(x, t)[-1]["epoch"] == epoch
        assert trainer.step == 4 * epoch


def test_several_calls_equal_one_of_several_epochs(rng):
    x, t = samples(rng)
    nets = [classifier(), classifier()]
    trainers = [quiet(net, CrossEntropy(), batchsize=8) for net in nets]
    trainers[0].train(x, t, epochs=3)
    for _ in range(3):
        trainers[1].train(x, t)
    assert equal(*map(arraysOf, nets))


def near(one, other):
    return one.keys() == other.keys() and all(np.allclose(one[k], other[k], rtol=1e-12, atol=1e-13) for k in one)


@pytest.mark.parametrize("compile, agree", [(False, equal), (True, near)], ids=["eager", "compiled"])
def test_a_step_is_forward_backward_and_update_by_hand(rng, compile, agree):
    x, t = samples(rng, 10)
    x = x.astype(np.float64)
    net, other = classifier(dtype=np.float64), classifier(dtype=np.float64)
    quiet(net, CrossEntropy(), SGD(0.1), batchsize=4, shuffle=False, compile=compile).train(x, t)
    cost, optimizer = CrossEntropy(), SGD(0.1).setupOn(other)
    for rows in (slice(0, 4), slice(4, 8), slice(8, 10)):
        cost(other(x[rows]), t[rows])
        cost.backward()
        other.backward(cost.grad[0])
        optimizer.update()
    assert agree(arraysOf(net), arraysOf(other))


def test_the_mean_cost_weighs_batches_by_their_size(rng):
    x, t = samples(rng, 10)
    net = classifier(dtype=np.float64)
    whole = float(CrossEntropy()(net(x.astype(np.float64)), t))
    row = quiet(net, CrossEntropy(), SGD(0.0), batchsize=4, metrics=[Accuracy()]).train(x, t)[-1]
    assert row["loss"] == pytest.approx(whole, rel=1e-12)
    assert row["accuracy"] == np.mean(net(x.astype(np.float64)).argmax(1) == t)


def test_samples_are_shuffled_anew_each_epoch(rng):
    seen = []

    class Spy(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            seen.append(x[:, 0].astype(int).tolist())
            return x + 0

        def updateGrad(self, grad, x, y):
            return grad

    x = np.arange(12, dtype=np.float32)[:, None]
    quiet(Sequential(Spy(), Linear(1, 1)), MSE(), SGD(0.0), batchsize=4).train(x, x, epochs=2)
    first, second = [n for b in seen[:3] for n in b], [n for b in seen[3:] for n in b]
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second and [sorted(b) for b in seen[:3]] != [sorted(b) for b in seen[3:]]


def noisy():
    initial.seed(11)
    return Sequential(Linear(4, 8), BatchNorm(8), Relu(), Dropout(0.3), Linear(8, 3))


def test_a_seed_repeats_a_run_bit_for_bit(rng):
    x, t = samples(rng, 50)
    found = []
    for seed in (1, 1, 2):
        net = noisy()
        history = quiet(net, CrossEntropy(), Adam(), batchsize=8, seed=seed).train(x, t, epochs=3)
        found.append((arraysOf(net), history.column("loss")))
    assert equal(found[0][0], found[1][0]) and found[0][1] == found[1][1]
    assert found[0][1] != found[2][1]


def test_prefetching_changes_nothing(rng):
    x, t = rng.standard_normal((50, 4)), rng.integers(0, 3, 50)
    batches = [(x[i : i + 8], t[i : i + 8]) for i in range(0, 50, 8)]
    found = []
    for prefetch in (0, 1, 5):
        net = noisy()
        quiet(net, CrossEntropy(), Adam(), batchsize=8, prefetch=prefetch).train(batches, epochs=2)
        found.append(arraysOf(net))
    assert equal(found[0], found[1]) and equal(found[0], found[2])


# Accumulation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batchsize", "accumulate"), [(4, 3), (5, 2), (3, 4), (7, 2), (1, 30), (4, 100)])
def test_accumulated_batches_equal_a_large_one(rng, batchsize, accumulate):
    x, t = samples(rng, 30)
    net, other = classifier(dtype=np.float64), classifier(dtype=np.float64)
    size = batchsize * accumulate
    one = quiet(net, CrossEntropy(), Adam(0.01), batchsize=batchsize, accumulate=accumulate)
    two = quiet(other, CrossEntropy(), Adam(0.01), batchsize=size)
    histories = [trainer.train(x, t, epochs=3) for trainer in (one, two)]
    assert one.step == two.step == 3 * math.ceil(30 / size)
    for path, param in net.params.items():
        np.testing.assert_allclose(param.data, other.params[path].data, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(histories[0].column("loss"), histories[1].column("loss"), rtol=1e-9)


def test_accumulated_batches_of_an_iterable_are_weighted_too(rng):
    x, t = samples(rng, 12)
    net, other = classifier(dtype=np.float64), classifier(dtype=np.float64)
    parts = np.split(np.arange(12), [1, 6, 8])
    quiet(net, CrossEntropy(), accumulate=4).train([(x[p], t[p]) for p in parts])
    quiet(other, CrossEntropy(), batchsize=12, shuffle=False).train(x, t)
    for path, param in net.params.items():
        np.testing.assert_allclose(param.data, other.params[path].data, rtol=1e-10)


def test_a_gradient_from_before_is_not_learnt(rng):
    x, t = samples(rng)
    net, other = classifier(), classifier()
    for param in net.params.values():
        param.grad = np.full(param.shape, 100, np.float32)
    for n in (net, other):
        quiet(n, CrossEntropy(), batchsize=8).train(x, t)
    assert equal(arraysOf(net), arraysOf(other))


# Inputs and outputs -------------------------------------------------------------------------------------------


def test_a_plain_module_is_trained(rng):
    x = rng.standard_normal((64, 3)).astype(np.float32)
    wanted = np.array([[1.0], [-2.0], [0.5]], np.float32)
    linear = Linear(3, 1)
    quiet(linear, MSE(), SGD(0.2), batchsize=16).train(x, x @ wanted, epochs=60)
    np.testing.assert_allclose(linear.W.data, wanted, atol=1e-3)


def twoEyes():
    """Two inputs; two outputs."""
    initial.seed(5)
    a, b = Input(name="a").node(), Input(name="b").node()
    both = Concat(axis=1)(a, b)
    return Graph([a, b], [Linear(5, 1, name="head")(both), Linear(5, 2, name="other")(both)])


class Both(Module):
    """cost = mean (p - s)^2 + mean (q - t)^2, as a cost of two outputs and two targets."""

    def dataShapeFrom(self, p, q, s, t):
        return ()

    def updateData(self, p, q, s, t):
        return ((p - s) ** 2).mean() + ((q - t) ** 2).mean()

    def updateGrad(self, grad, p, q, s, t, y):
        return grad * 2 * (p - s) / p.size, grad * 2 * (q - t) / q.size, None, None


def test_several_inputs_and_outputs(rng):
    a, b = rng.standard_normal((40, 2)), rng.standard_normal((40, 3))
    s, t = a[:, :1] + b[:, 1:2], np.concatenate([a[:, 1:], b[:, 2:]], 1)
    net = twoEyes()
    metrics = [MAE(), MAE(which=1, name="other mae")]
    trainer = quiet(net, Both(), SGD(0.3), batchsize=10, metrics=metrics)
    row = trainer.train([a, b], [s, t], epochs=60, validation=([a, b], [s, t]))[-1]
    assert row["val loss"] < 1e-4 and row["val other mae"] < 0.02 and row["val mae"] < 0.02
    first, second = Calculator(net, batchsize=7).calculate([a, b])
    np.testing.assert_allclose(first, s, atol=0.05)
    assert second.shape == (40, 2)


def test_a_cost_of_one_prediction_takes_the_first_output(rng):
    a, b = rng.standard_normal((20, 2)), rng.standard_normal((20, 3))
    net = twoEyes()
    other = arraysOf(net)["other.W"]
    net.params["other.W"].grad = np.ones((5, 2), np.float32)  # of somebody else: it is not learnt
    row = quiet(net, MSE(), SGD(0.3)).train([a, b], a[:, :1], epochs=40)[-1]
    assert row["loss"] < 0.01
    assert np.array_equal(other, net.params["other.W"].data)


def test_a_wrong_number_of_targets_is_named(rng):
    x = rng.standard_normal((6, 4))
    with pytest.raises(GraphError, match="MSE takes x, target; .* got 2 targets"):
        quiet(classifier(), MSE()).train(x, [x, x])
    with pytest.raises(GraphError):
        quiet(classifier(), MSE()).train([x, x], x)


# dtypes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_data_gets_the_dtype_of_the_net_and_labels_become_whole(rng, dtype):
    x, t = samples(rng)
    given = [(x.astype(np.float64), t.astype(np.float32)), (x.astype(np.float32), t.astype(np.uint8))]
    found = []
    for data, target in given:
        net = classifier(dtype=dtype)
        quiet(net, CrossEntropy(), batchsize=8).train(data, target)
        assert all(p.dtype == dtype and p.data.dtype == dtype for p in net.params.values())
        found.append(arraysOf(net))
    assert equal(*found)


def test_pictures_of_bytes_become_floats(rng):
    x, t = rng.integers(0, 256, (12, 1, 2, 2), dtype=np.uint8), rng.integers(0, 3, 12)
    assert math.isfinite(quiet(Sequential(Flatten(), Linear(4, 3)), CrossEntropy(), SGD(1e-3)).train(x, t)[-1]["loss"])


def test_token_ids_stay_whole(rng):
    tokens = rng.integers(0, 7, (12, 5)).astype(np.uint8)
    net = Sequential(Flatten(name="same"), Embedder(7, 4), Mean(axis=1), Linear(4, 2))
    row = quiet(net, CrossEntropy(), Adam(0.05), batchsize=6).train(tokens, tokens[:, 0] % 2, epochs=2)[-1]
    assert math.isfinite(row["loss"])


def test_labels_between_whole_numbers_are_refused(rng):
    x, t = samples(rng, 6)
    with pytest.raises(DataError, match=r"wanted whole numbers \(labels, token ids\), got float64 with 0.5"):
        quiet(classifier(), CrossEntropy()).train(x, t * 0 + 0.5)


def test_yes_and_no_as_bool_or_integers(rng):
    x = rng.standard_normal((16, 3)).astype(np.float32)
    for target in (x[:, :1] > 0, (x[:, :1] > 0).astype(np.int32)):
        assert math.isfinite(quiet(Linear(3, 1), MSE()).train(x, target)[-1]["loss"])


# Iterables ----------------------------------------------------------------------------------------------------


def test_batches_from_a_list_a_function_and_a_generator(rng):
    x, t = samples(rng, 12)
    batches = [(x[:5], t[:5]), (x[5:], t[5:])]
    found = []
    for source in (batches, lambda: iter(batches), lambda epoch: batches):
        net = classifier()
        quiet(net, CrossEntropy()).train(source, epochs=2, validation=batches)
        found.append(arraysOf(net))
    net = classifier()
    trainer = quiet(net, CrossEntropy())
    trainer.train(b for b in batches)
    trainer.train(b for b in batches)
    assert all(equal(arraysOf(net), other) for other in found)


def test_a_generator_for_several_epochs_is_refused_before_it_is_touched(rng):
    x, t = samples(rng, 12)
    used = []

    def once():
        used.append(1)
        yield x, t

    trainer = quiet(classifier(), CrossEntropy())
    with pytest.raises(DataError, match="batches for 2 epochs, got an iterator that can be used once"):
        trainer.train(once(), epochs=2)
    with pytest.raises(DataError, match="for 3 epochs"):
        trainer.train(x, t, epochs=3, validation=once())
    assert not used and not trainer.history
    source = once()
    trainer.train(source)
    with pytest.raises(DataError, match="gave none, perhaps because it was used before"):
        trainer.train(source)


def test_an_exception_of_the_data_keeps_its_place(rng):
    x, t = samples(rng, 12)
    before = set(threading.enumerate())

    def broken():
        yield x, t
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone") as error:
        quiet(classifier(), CrossEntropy()).train(broken)
    assert any(f.name == "broken" for f in traceback.extract_tb(error.value.__traceback__))
    assert set(threading.enumerate()) <= before


def test_no_thread_outlives_a_failed_step(rng):
    x, t = samples(rng, 12)
    before = set(threading.enumerate())
    caught = []
    for _ in range(2):
        try:
            quiet(classifier(), CrossEntropy(), callbacks=[lambda trainer: 1 / 0]).train([(x, t)] * 50)
        except ZeroDivisionError as error:
            caught.append(error)  # with its traceback, which holds the frames
        assert set(threading.enumerate()) <= before
    assert len(caught) == 2


def test_who_computes_says_of_what():
    net = classifier()
    assert repr(Calculator(net)) == f"<Calculator of {Calculator(net).objective.net.title()}>"
    found = repr(Validator(net, CrossEntropy(), [Accuracy()]))
    assert found.startswith("<Validator of Sequential") and found.endswith(", CrossEntropy: loss, accuracy>")


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
    whole = quiet(noisy(), CrossEntropy(), batchsize=4, dropLast=True, callbacks=look)
    whole.train(x, t, epochs=9, validation=(x, t))
    assert whole.step == 18 and len(set(seen)) > 3  # another one is left out in each epoch
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


# Modes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
def test_a_network_that_was_trained_evaluates(rng, compile):
    """`net(x)` gives what a Calculator gives, changes nothing, and is as right as the validation says."""
    x, t = samples(rng, 60)
    net = Sequential(Linear(4, 8), BatchNorm(8), Relu(), Dropout(0.5), Linear(8, 3), Sequential(BatchNorm(3)))
    net.evalMode()
    trainer = quiet(net, CrossEntropy(), batchsize=8, metrics=[Accuracy()], compile=compile)
    last = trainer.train(x, t, epochs=3, validation=(x, t))[-1]
    assert not any(module.isTraining for module in (net, *net.modules().values(), net[5]))
    before = arraysOf(net)
    y = net(x)
    np.testing.assert_allclose(y, Calculator(net).calculate(x), rtol=1e-5, atol=1e-6)
    assert np.mean(y.argmax(1) == t) == last["val accuracy"] and equal(arraysOf(net), before)
    trainer.train(x, t)
    assert not equal(arraysOf(net), before)


def test_a_network_that_was_stopped_or_failed_evaluates_too(rng):
    x, t = samples(rng, 60)
    for wrong in (KeyboardInterrupt, ZeroDivisionError):

        def stop(trainer, wrong=wrong):
            raise wrong

        net = noisy().trainMode()
        with pytest.raises(wrong):
            quiet(net, CrossEntropy(), callbacks=[stop]).train(x, t)
        assert not any(module.isTraining for module in net.modules().values())
    net = noisy().trainMode()
    with pytest.raises(ShapeError):
        quiet(net, CrossEntropy()).train(x[:, :2], t)
    assert all(module.isTraining for module in net.modules().values())


def test_modes_are_as_before_whatever_happens(rng):
    x, t = samples(rng, 12)
    net = Sequential(noisy(), Identity())
    inner = [net, *net.modules().values(), net[0]]
    for train in (True, False):
        _ = net.trainMode() if train else net.evalMode()
        Validator(net, CrossEntropy()).validate(x, t)
        Calculator(net).calculate(x)
        for bad in (
            lambda: Validator(net, CrossEntropy()).validate(x, t + 5),
            lambda: Calculator(net).calculate(x[:, :2]),
        ):
            with pytest.raises((DataError, ShapeError)):
                bad()
        assert all(module.isTraining is train for module in inner)


def test_validation_changes_nothing(rng):
    x, t = samples(rng, 12)
    net = noisy()
    before = arraysOf(net)
    first = Validator(net, CrossEntropy(), [Accuracy()], batchsize=5).validate(x, t)
    assert first == Validator(net, CrossEntropy(), [Accuracy()], batchsize=5).validate(x, t)
    assert equal(before, arraysOf(net))


# Validator, Calculator ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batchsize", [1, 5, 12, 128])
def test_the_batchsize_of_a_validation_does_not_matter(device, rng, batchsize):
    x, t = samples(rng, 12)
    net = classifier(dtype=np.float64).evalMode()
    found = Validator(net, CrossEntropy(), [Accuracy()], batchsize).validate(x, t)
    y = net(devices.toDevice(x.astype(np.float64)))
    assert found["loss"] == pytest.approx(float(CrossEntropy()(y, devices.toDevice(t))), rel=1e-12)
    assert found["accuracy"] == np.mean(devices.toHost(y).argmax(1) == t)


@pytest.mark.parametrize("count", [1, 4, 5, 8, 23])
def test_outputs_are_stacked_for_any_number_of_samples(device, rng, count):
    x, _ = samples(rng, count)
    net = classifier().evalMode()
    found = Calculator(net, batchsize=4).calculate(x)
    assert isinstance(found, np.ndarray) and found.shape == (count, 3)
    np.testing.assert_allclose(found, devices.toHost(net(devices.toDevice(x))), rtol=1e-5, atol=1e-6)
    batches = Calculator(net).calculate(x[i : i + 3] for i in range(0, count, 3))
    np.testing.assert_allclose(batches, found, rtol=1e-5, atol=1e-6)


def test_outputs_without_a_row_for_each_sample_are_refused(rng):
    x, _ = samples(rng, 6)
    with pytest.raises(DataError, match=r"output 'mean': wanted a row for each of 6 samples, got shape \(4,\)"):
        Calculator(Sequential(Mean(axis=0))).calculate(x)
    with pytest.raises(DataError, match="at least one sample"):
        Calculator(classifier()).calculate(x[:0])
    with pytest.raises(DataError, match="the iterable gave none"):
        Calculator(classifier()).calculate(iter(()))


# Callbacks, interrupts ----------------------------------------------------------------------------------------


class Note(Callback):
    """Writes down what is called."""

    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on"):
            return lambda trainer: self.events.append((name[2:], trainer.epoch, trainer.position))
        return super().__getattribute__(name)


def test_callbacks_are_called_in_order(rng):
    x, t = samples(rng, 6)
    note, steps = Note(), []
    quiet(classifier(), CrossEntropy(), batchsize=4, callbacks=[note, lambda t: steps.append(t.step)]).train(
        x, t, epochs=2
    )
    one = [("EpochBegin", 0, 0), ("BatchEnd", 0, 1), ("BatchEnd", 0, 2), ("EpochEnd", 1, 0)]
    two = [(event, epoch + 1, position) for event, epoch, position in one]
    assert note.events == [("TrainBegin", 0, 0), *one, *two, ("TrainEnd", 2, 0)]
    assert steps == [1, 2, 3, 4]


def test_every_callback_hears_the_end_even_if_one_fails(rng):
    heard = []

    class End(Callback):
        def __init__(self, number):
            self.number = number

        def onTrainEnd(self, trainer):
            heard.append(self.number)
            if self.number == 1:
                raise ZeroDivisionError("at the end")

    x, t = samples(rng)
    with pytest.raises(ZeroDivisionError, match="at the end"):
        quiet(classifier(), CrossEntropy(), callbacks=[End(1), End(2)]).train(x, t)
    assert heard == [1, 2]


def test_a_callback_can_stop_the_run_after_the_epoch(rng):
    x, t = samples(rng, 12)
    trainer = quiet(classifier(), CrossEntropy(), batchsize=4, callbacks=[lambda t: t.epoch == 1 and t.stop()])
    assert len(trainer.train(x, t, epochs=9)) == 2
    trainer.callbacks.clear()
    assert len(trainer.train(x, t, epochs=2)) == 4


def interruptAt(step, times=1):
    def press(trainer):
        if trainer.step == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    return press


def test_ctrl_c_finishes_the_step_and_training_goes_on(rng, capsys):
    x, t = samples(rng, 30)
    other = noisy()
    reference = quiet(other, CrossEntropy(), Adam(), batchsize=7).train(x, t, epochs=3)
    net = noisy()
    events = []
    trainer = Trainer(
        net,
        CrossEntropy(),
        Adam(),
        batchsize=7,
        progress="lines",
        callbacks=[interruptAt(8), lambda t: events.append(t.step)],
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train(x, t, epochs=3)
    assert (trainer.epoch, trainer.position, trainer.step, events[-1]) == (1, 3, 8, 8)
    assert "stopped in epoch 2, after step 3 of 5" in capsys.readouterr().out
    trainer.train(x, t, epochs=3)
    assert equal(arraysOf(net), arraysOf(other))
    assert trainer.history.column("loss") == reference.column("loss")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_that_was_interrupted_wants_its_own_data(rng):
    x, t = samples(rng, 30)
    trainer = quiet(classifier(), CrossEntropy(), batchsize=7, callbacks=[interruptAt(3)])
    with pytest.raises(KeyboardInterrupt):
        trainer.train(x, t)
    with pytest.raises(DataError, match="epoch 1 was begun with 30 samples, it cannot go on with 20"):
        trainer.train(x[:20], t[:20])
    trainer.restart()
    assert trainer.train(x[:20], t[:20])[-1]["step"] == 6


def test_a_second_ctrl_c_does_not_wait(rng, capsys):
    class Press(Module):
        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            if trainer.step == 2:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return x + 0

        def updateGrad(self, grad, x, y):
            return grad

    x, t = samples(rng, 30)
    trainer = Trainer(Sequential(Press(), Linear(4, 3)), CrossEntropy(), SGD(), batchsize=7, progress="lines")
    with pytest.raises(KeyboardInterrupt):
        trainer.train(x, t)
    assert trainer.step == 2 and not trainer.running
    assert "in the middle of the next one: go on from a file" in capsys.readouterr().out


def test_ctrl_c_while_waiting_for_data_is_heard_at_once(rng):
    x, t = samples(rng, 8)
    stepped, never = threading.Event(), threading.Event()

    def slow():
        yield x, t
        stepped.wait(20)
        os.kill(os.getpid(), signal.SIGINT)
        never.wait(0.5)
        yield x, t

    trainer = quiet(classifier(), CrossEntropy(), callbacks=[lambda trainer: stepped.set()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train(slow)
    assert trainer.step == 1


def test_somebody_elses_handler_is_left_alone(rng):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        x, t = samples(rng, 8)
        quiet(classifier(), CrossEntropy(), batchsize=4, callbacks=[interruptAt(1)]).train(x, t)
        assert heard == [1]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_elsewhere_than_in_the_main_thread_does_nothing(rng):
    x, t = samples(rng, 8)
    trainer = quiet(classifier(), CrossEntropy())
    thread = threading.Thread(target=trainer.train, args=(x, t))
    thread.start()
    thread.join()
    assert trainer.epoch == 1
    with Interrupt() as interrupt, interrupt.whole():
        pass


# What refills its arrays -------------------------------------------------------------------------------------------


def refilled(kind, count=9):
    """Batches of which each is written over the one before, by what a user may have; the same as `fresh`."""
    rng = np.random.default_rng(4)
    data, target = rng.standard_normal((count, 8, 4)).astype("f4"), rng.integers(0, 3, (count, 8))
    x, t = np.empty((8, 4), "f4"), np.empty(8, int)

    def generator():
        for k in range(count):
            x[...], t[...] = data[k], target[k]
            yield (x, t) if kind != "tensors" else (torchOf(x), torchOf(t))

    class Loader:
        def __iter__(self):
            return generator()

    class Pool(list):
        def __iter__(self):
            return generator()

    given = {"generator": generator(), "function": generator, "iterable": Loader(), "a list's kind": Pool()}
    return given.get(kind, generator), [(data[k], target[k]) for k in range(count)]


def torchOf(array):
    return pytest.importorskip("torch").from_numpy(array)


REFILLING = ["generator", "function", "iterable", "a list's kind", "tensors"]


@pytest.mark.parametrize("kind", REFILLING)
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("compile", [True, False], ids=["compiled", "eager"])
def test_batches_that_refill_their_arrays_train_as_others_do(kind, accumulate, compile):
    refilling, fresh = refilled(kind)
    found = []
    for source in (refilling, fresh):
        trainer = Trainer(
            net := classifier(), CrossEntropy(), Adam(0.05), accumulate=accumulate, progress=None, compile=compile
        )
        trainer.train(source)
        found.append({path: p.data.copy() for path, p in net.params.items()})
    assert all(np.array_equal(found[0][path], found[1][path]) for path in found[0])


@pytest.mark.parametrize("kind", REFILLING)
def test_batches_that_refill_their_arrays_are_validated_and_calculated_as_others_are(kind):
    net = classifier()
    found, wanted = (Validator(net, CrossEntropy(), [Accuracy()]).validate(s) for s in refilled(kind))
    assert found == wanted
    refilling, fresh = refilled(kind)
    alone = (x for x, _ in (refilling() if callable(refilling) else refilling))
    assert np.array_equal(Calculator(net).calculate(alone), np.concatenate([net(x) for x, _ in fresh]))


def test_without_a_cost_it_is_said_how_a_network_that_gives_its_own_is_trained():
    x, t = Input(name="x").node(), Input(name="t").node()
    fc = Linear(4, 2, name="fc")
    own = Graph([x, t], MSE().node(fc.node(x), t))
    for made in (lambda: Trainer(own, None, SGD(0.1)), lambda: Validator(own, None)):
        with pytest.raises(DataError, match=r"cost: wanted .* got None; .* net.compile\(shapes, optimizer=Adam"):
            made()
    data, target = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
    before = fc.W.data.copy()
    wanted = before - 0.1 * data.T @ (data @ before + fc.b.data - target) * 2 / target.size
    step = own.compile([(8, 4), (8, 2)], optimizer=SGD(0.1))
    step.run(data, target)
    np.testing.assert_allclose(fc.W.data, wanted, rtol=1e-5)


def test_an_input_that_no_output_needs_is_taken_and_left_out(rng):
    with pytest.warns(GraphWarning, match="left out, because no output of the graph needs it: 'b'"):
        a, b = Input(name="a").node(), Input(name="b").node()
        net = Graph([a, b], Linear(3, 1, name="fc").node(a))
    x, other, y = (rng.standard_normal((6, n)).astype("f4") for n in (3, 5, 1))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="left out")
        wanted = net([x, other])
        np.testing.assert_allclose(Calculator(net).calculate([x, other]), wanted, rtol=1e-6)
        np.testing.assert_allclose(Calculator(net).calculate({"a": x, "b": other}), wanted, rtol=1e-6)
        loss = Validator(net, MSE()).validate([x, other], y)["loss"]
        np.testing.assert_allclose(loss, ((wanted - y) ** 2).mean(), rtol=1e-5)
        cost, *_ = net.compile((6, 3), (6, 5), (6, 1), cost=MSE()).run(x, other, y)
        np.testing.assert_allclose(cost, loss, rtol=1e-5)
        for compile in (True, False):
            trainer = Trainer(net, MSE(), SGD(0.1), progress="none", compile=compile)
            assert trainer.train({"a": x, "b": other}, y, epochs=3)[-1]["loss"] < loss
