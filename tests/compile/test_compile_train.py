"""Training, validating and predicting compiled give what they give without, but for rounding."""

import copy

import numpy as np
import pytest

from puregraph import (
    MSE,
    SGD,
    Accuracy,
    Adam,
    AdamW,
    BatchNorm,
    Calculator,
    Callback,
    Concat,
    Cosine,
    CrossEntropy,
    Dropout,
    Graph,
    Input,
    Linear,
    Module,
    MomentumSGD,
    Relu,
    Sequential,
    Trainer,
    Validator,
    models,
)
from puregraph.core import initial

pytestmark = pytest.mark.filterwarnings("ignore:accumulate=")


def classifier(dtype="float64"):
    """Without a bias before the BatchNorm: its gradient is nothing but rounding, which Adam makes as large as others."""
    initial.seed(3)
    return Sequential(Linear(4, 8, useBias=False), BatchNorm(8), Relu(), Dropout(0.25), Linear(8, 3)).calcMode(
        np.dtype(dtype)
    )


def samples(rng, count=30):
    x = rng.standard_normal((count, 4))
    return x, x[:, :3].argmax(1)


def equal(a, b):
    """Whether two networks hold the same, to the last bit."""
    one, other = ({path: p.data for path, p in {**net.params, **net.states}.items()} for net in (a, b))
    return one.keys() == other.keys() and all(one[k].tobytes() == other[k].tobytes() for k in one)


def alike(a, b):
    """Whether two networks hold the same, but for what rounding leaves in float64."""
    one, other = ({path: p.data for path, p in {**net.params, **net.states}.items()} for net in (a, b))
    return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)


def close(a, b):
    return np.allclose(a, b, rtol=1e-9, atol=1e-11)


def figures(history):
    """The numbers of a history, without times."""
    return [[row[k] for k in sorted(row) if k != "seconds"] for row in history]


def trained(net, data, optimizer, compile, epochs=3, validation=None, cost=None, **options):
    trainer = Trainer(
        net, cost or CrossEntropy(), optimizer, metrics=[Accuracy()], progress="none", compile=compile, **options
    )
    trainer.train(*data, epochs=epochs, validation=validation)
    return trainer


OPTIMIZERS = {
    "SGD": lambda: SGD(0.1),
    "MomentumSGD, clipNorm": lambda: MomentumSGD(0.1, clipNorm=0.5),
    "Adam, schedule": lambda: Adam(0.05, schedule=Cosine(20)),
    "AdamW, decay": lambda: AdamW(0.05, decay=0.1, onNonFinite="skip"),
}


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_the_same_compiled(name, accumulate, rng):
    data, held = samples(rng), samples(rng, 11)
    nets = [classifier() for _ in range(2)]
    trainers = [
        trained(net, data, OPTIMIZERS[name](), compile, validation=held, batchsize=7, accumulate=accumulate)
        for net, compile in zip(nets, (True, False))
    ]
    assert alike(*nets)
    assert close(figures(trainers[0].history), figures(trainers[1].history))
    for a, b in zip(nets[0].params.values(), nets[1].params.values(), strict=True):
        assert close(a.grad, b.grad)
    states = [t.optimizer.state for t in trainers]
    assert all(close(states[0][k], states[1][k]) for k in states[0])
    assert trainers[0].objective.programs.kept and not trainers[1].objective.programs.kept
    assert all(p.executable is not None for p in trainers[0].objective.programs.kept.values())


def test_a_step_is_compiled_for_the_last_smaller_batch_too(rng):
    net = classifier()
    trainer = trained(net, samples(rng), Adam(), True, batchsize=7)
    shapes = sorted(p.shapes[0] for p in trainer.objective.programs.kept.values())
    assert shapes == [(2, 4), (7, 4)]


class Freezing(Callback):
    """Changes what is trained, and how, while training goes on."""

    def onBatchEnd(self, trainer):
        net = trainer.net
        if trainer.step == 3:
            net.params["linear.W"].trainable = False
        if trainer.step == 5:
            net["dropout"].p = 0.5
            trainer.optimizer.learnRate *= 0.5
        if trainer.step == 7:
            net.params["linear2.W"].rate = 0.1
            net.params["linear2.b"].data = net.params["linear2.b"].data + 0.25
        if trainer.step == 9:
            net.params["linear.W"].trainable = True


def test_what_callbacks_change_counts_from_the_next_step_on(rng):
    data = samples(rng)
    nets = [classifier() for _ in range(2)]
    for net, compile in zip(nets, (True, False)):
        trained(net, data, Adam(0.05), compile, batchsize=7, callbacks=[Freezing()])
    assert alike(*nets)


def test_a_run_that_is_resumed_is_that_which_went_on(rng, tmp_path):
    data = samples(rng)

    class Saving(Callback):
        def onBatchEnd(self, trainer):
            if trainer.step == 8:
                trainer.save(tmp_path / "run.h5")

    whole, resumed = classifier(), classifier()
    trained(whole, data, Adam(0.05), True, batchsize=7, callbacks=[Saving()])
    trainer = Trainer(
        resumed, CrossEntropy(), Adam(0.05), metrics=[Accuracy()], progress="none", batchsize=7, callbacks=[Saving()]
    )
    trainer.resume(tmp_path / "run.h5").train(*data, epochs=3)
    assert equal(whole, resumed)


def test_several_trainings_go_on_where_the_last_stopped(rng):
    data = samples(rng)
    nets = [classifier() for _ in range(2)]
    for net, compile in zip(nets, (True, False)):
        trainer = trained(net, data, Adam(0.05), compile, epochs=1, batchsize=10)
        programs = list(trainer.objective.programs.kept.values())
        built = [p.executable for p in programs]
        trainer.train(*data, epochs=1)
        assert [p.executable for p in programs] == built
    assert alike(*nets)


def test_several_inputs_outputs_and_targets(rng):
    def build():
        initial.seed(1)
        a, b = Input(name="a").node(), Input(name="b").node()
        joined = Concat(1).node(Linear(3, 4, name="la").node(a), Linear(2, 4, name="lb").node(b))
        return Graph([a, b], [Linear(8, 2, name="out").node(joined), joined]).calcMode("float64")

    data = ([rng.standard_normal((20, 3)), rng.standard_normal((20, 2))], rng.standard_normal((20, 2)))
    nets = [build() for _ in range(2)]
    for net, compile in zip(nets, (True, False)):
        Trainer(net, MSE(), Adam(0.05), batchsize=8, progress="none", compile=compile).train(*data, epochs=2)
    assert alike(*nets)


def test_validating_and_predicting_are_the_same_compiled(rng):
    net, (x, t) = classifier(), samples(rng)
    trained(net, (x, t), Adam(0.05), True)
    for data in (x, x[:7], x[:1]):
        found = [Calculator(net, 8, compile).calculate(data) for compile in (True, False)]
        assert close(*found)
    rows = [Validator(net, CrossEntropy(), [Accuracy()], 8, compile).validate(x, t) for compile in (True, False)]
    assert rows[0].keys() == rows[1].keys() and close(list(rows[0].values()), list(rows[1].values()))
    calculator = Calculator(net, 8)
    before = calculator.calculate(x)
    net.params["linear.W"].data = net.params["linear.W"].data * 2
    assert calculator.calculate(x).tobytes() != before.tobytes()


def test_a_rule_that_is_not_read_trains_as_well(rng):
    class Stepped(Module):
        """x, doubled where its sum is positive: decided by Python."""

        def dataShapeFrom(self, x):
            return x

        def updateData(self, x):
            return x * 2 if float(x.sum()) > 0 else x * 1

        def updateGrad(self, grad, x, y):
            return grad * 2 if float(x.sum()) > 0 else grad * 1

    def build():
        initial.seed(2)
        return Sequential(Linear(4, 5), Stepped(), Linear(5, 3)).calcMode("float64")

    data = samples(rng)
    nets = [build() for _ in range(2)]
    trainers = [trained(n, data, Adam(0.05), c, batchsize=7) for n, c in zip(nets, (True, False))]
    assert alike(*nets)
    program = next(iter(trainers[0].objective.programs.kept.values()))
    assert [c.kind.name for c in program.executable.schedule.calls].count("rule") == 2


@pytest.mark.parametrize("name", ["lenet", "gpt"])
def test_models_train_the_same_compiled(name, rng):
    def build():
        initial.seed(4)
        if name == "lenet":
            return models.lenet(size=12, maps=(2, 3), dropout=0.1).calcMode("float64")
        net = models.gpt(11, 8, 1, 2, 16)
        x = Input(name="x").node()
        return Graph(x, net.node(x)).calcMode("float64")

    if name == "lenet":
        data, cost = (rng.standard_normal((10, 1, 12, 12)), rng.integers(0, 10, 10)), CrossEntropy()
    else:
        data, cost = (rng.integers(0, 11, (10, 6)), rng.standard_normal((10, 6, 11))), MSE()
    nets = [build() for _ in range(2)]
    for net, compile in zip(nets, (True, False)):
        Trainer(net, cost, Adam(0.01), batchsize=4, progress="none", compile=compile).train(*data, epochs=2)
    assert alike(*nets)


def test_a_trainer_can_be_copied(rng):
    net, data = classifier(), samples(rng)
    trainer = trained(net, data, Adam(0.05), True)
    other = copy.deepcopy(trainer)
    trainer.train(*data)
    other.train(*data)
    assert equal(trainer.net, other.net)


def test_data_of_many_lengths(rng):
    net = Sequential(Linear(4, 3)).calcMode("float64")
    twin = copy.deepcopy(net)
    batches = [samples(rng, n) for n in (3, 9, 4, 8, 5, 7, 6, 3, 9, 6, 7)]
    for each, compile in ((net, True), (twin, False)):
        Trainer(each, CrossEntropy(), SGD(0.1), progress="none", compile=compile).train(batches, epochs=2)
    assert alike(net, twin)
    assert all(np.isfinite(p.data).all() for p in net.params.values())
