"""Validator and Calculator, callbacks and interrupts, and batches in arrays that are filled again."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest
from smalltrainers import arraysOf, classifier, equal, noisy, quiet, samples

from puregraph import (
    MSE,
    SGD,
    Adam,
    CrossEntropy,
    Graph,
    Input,
    Linear,
    Mean,
    Module,
    Sequential,
)
from puregraph.core import device as devices
from puregraph.core.errors import DataError, GraphWarning
from puregraph.train import Accuracy, Calculator, Callback, Interrupt, Trainer, Validator

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
