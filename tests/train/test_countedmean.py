"""A mean over what counts: how a data set is cut into batches, parts and grains does not change it."""

import numpy as np
import pytest

from puregraph import MSE, SGD, CostSum, CrossEntropy, Graph, Input, Linear, Sequential, Trainer, Validator, seed
from puregraph.core.errors import GraphWarning

RNG = np.random.default_rng(3)
X = RNG.standard_normal((60, 5)).astype(np.float32)
LABELS = np.where(np.arange(60) < 40, -1, RNG.integers(0, 3, 60))  # the first batches have hardly a label
CLASSES = RNG.integers(0, 3, 60)
COSTS = {
    "ignored": (lambda: CrossEntropy(ignoreIndex=-1), LABELS),
    "weighted": (lambda: CrossEntropy(weights=[0.1, 1.0, 5.0]), CLASSES),
    "both": (lambda: CrossEntropy(weights=[0.1, 1.0, 5.0], ignoreIndex=-1), LABELS),
    "a class of weight 0": (
        lambda: CrossEntropy(weights=[1.0, 0.0, 2.0], smoothing=0.1),
        np.r_[[1] * 20, CLASSES[20:]],
    ),
    "all of it": (lambda: CrossEntropy(weights=[1.0, 0.0, 2.0], ignoreIndex=-1, smoothing=0.3), LABELS),
    "plain": (CrossEntropy, CLASSES),
}
CASES = pytest.mark.parametrize(("cost", "labels"), COSTS.values(), ids=COSTS)


def net():
    seed(1)
    return Sequential(Linear(5, 3, name="fc"), name="net")


def double():
    seed(1)
    x = Input(name="x").node()
    return Graph(x, [Linear(5, 3, name="kind")(x), Linear(5, 1, name="size")(x)])


def trained(cost, labels, **options):
    """The weights and the loss of one epoch."""
    own = net()
    trainer = Trainer(own, cost(), SGD(0.5), progress="none", shuffle=False, **options)
    loss = trainer.train(X, labels)[-1]["loss"]
    return own.params["fc.W"].data, loss


@CASES
def test_a_validation_does_not_depend_on_the_size_of_batches(cost, labels):
    own, counts = net(), labels >= 0
    found = [Validator(own, cost(), batchsize=n).validate(X, labels)["loss"] for n in (60, 32, 7, 1)]
    alone = float(cost()(own(X[counts]), labels[counts]))
    np.testing.assert_allclose(found, alone, rtol=1e-5)


@CASES
def test_each_cost_of_several_outputs_is_such_a_mean(cost, labels):
    own, size = double(), X[:, :1]
    costs = CostSum({"kind": cost(), "size": MSE()}, weights={"size": 0.5})
    found = [Validator(own, costs, batchsize=n).validate(X, [labels, size]) for n in (60, 11)]
    for name in ("loss", "kind loss", "size loss"):
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-5)
    np.testing.assert_allclose(found[0]["loss"], found[0]["kind loss"] + 0.5 * found[0]["size loss"], rtol=1e-6)


@CASES
@pytest.mark.parametrize("compile", [True, False], ids=["compiled", "eager"])
def test_an_accumulated_step_is_that_of_one_batch(cost, labels, compile):
    whole, loss = trained(cost, labels, batchsize=60, compile=compile)
    parts, same = trained(cost, labels, batchsize=15, accumulate=4, compile=compile)
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, loss, rtol=1e-5)


@CASES
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_of_grains_is_that_of_one_batch(cost, labels, accumulate):
    whole, loss = trained(cost, labels, batchsize=60)
    parts, same = trained(cost, labels, batchsize=60 // accumulate, accumulate=accumulate, grains=4)
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(same, loss, rtol=1e-5)


def test_where_nothing_counts_the_mean_is_0_and_a_warning_says_why():
    nothing = np.full(60, -1)
    cost = CrossEntropy(ignoreIndex=-1)
    warned = lambda: pytest.warns(GraphWarning, match="^loss is of no sample: all labels are ignored")  # noqa: E731
    with warned():
        assert Validator(net(), cost, batchsize=7).validate(X, nothing)["loss"] == 0
    for options in ({}, {"accumulate": 2}, {"grains": 4}, {"compile": False}):
        with warned():
            weights, loss = trained(lambda: cost, nothing, batchsize=20, **options)
        assert loss == 0 and np.array_equal(weights, net().params["fc.W"].data)
    with warned() as record:  # the validation's alone
        Trainer(net(), cost, SGD(0.1), progress="none").train(X, LABELS, validation=(X, nothing))
    assert len(record) == 1


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"grains": 2}], ids=["accumulated", "grains"])
def test_several_costs_of_which_one_leaves_labels_out_are_said_not_to_be_one_batch(options):
    costs = CostSum({"kind": CrossEntropy(ignoreIndex=-1), "size": MSE()})
    trainer = Trainer(double(), costs, SGD(0.1), batchsize=20, progress="none", **options)
    with pytest.warns(GraphWarning, match="the cost of kind is a mean over the positions that count"):
        trainer.train(X, [LABELS, X[:, :1]])


def test_a_run_stopped_within_an_epoch_goes_on_with_its_mean():
    def stop(trainer):
        if trainer.step == 2:
            trainer.stop(now=True)

    def made(*callbacks):
        return Trainer(net(), CrossEntropy(ignoreIndex=-1), SGD(0.5), 15, progress="none", callbacks=callbacks)

    first = made(stop)
    first.train(X, LABELS)
    second = made().resume(first.save(None))
    assert second.train(X, LABELS)[-1]["loss"] == made().train(X, LABELS)[-1]["loss"]
