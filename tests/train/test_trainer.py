"""Trainer: what a step is, what an epoch is, and which data it takes."""

import math
import threading
import traceback

import numpy as np
import pytest
from smalltrainers import arraysOf, classifier, equal, noisy, quiet, samples

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
from puregraph.core import initial
from puregraph.core.errors import DataError, GraphError, ShapeError
from puregraph.train import MAE, Accuracy, Calculator, Validator

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
