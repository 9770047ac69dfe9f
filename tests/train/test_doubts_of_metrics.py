"""Metrics and padding that run, give plausible figures, and cannot be meant: each is said once, before the first step."""

import numpy as np
import pytest
from test_doubts import run

from puregraph import (
    BCE,
    LSTM,
    MAE,
    MSE,
    SGD,
    Accuracy,
    CostSum,
    CrossEntropy,
    Graph,
    Input,
    Linear,
    Max,
    Mean,
    Min,
    Module,
    Sequential,
    Sum,
    TopK,
    Trainer,
)
from puregraph.core.errors import GraphWarning

TOKENS = np.arange(32).reshape(8, 4) % 4
DATA = np.random.default_rng(0).random((8, 4, 3), np.float32)
LENGTHS = np.array([4, 2, 3, 1, 4, 4, 2, 1])


@pytest.mark.parametrize("metric", [Accuracy, lambda axis=1: TopK(2, axis=axis)], ids=["accuracy", "topk"])
def test_classes_on_another_axis_than_that_of_the_cost(metric):
    def words(axis):
        return run(Linear(3, 4), CrossEntropy(axis=-1), "trainer", TOKENS, DATA, metrics=[metric(axis=axis)])

    (text,) = words(1)
    assert "has the classes on axis -1 of (4, 4, 4)" in text and "(axis=-1)" in text
    assert not words(-1) and not words(2)


def test_values_compared_with_logits():
    yes = (TOKENS[:, :1] > 1).astype(np.float32)
    (text,) = run(Linear(4, 1), BCE(), "trainer", yes, metrics=[MAE()])
    assert "(Linear) gives logits, as BCE takes them" in text
    assert not run(Linear(4, 1), MSE(), "trainer", yes, metrics=[MAE()])


def test_of_several_outputs_each_metric_is_looked_at_with_its_own_cost():
    x = Input(name="x").node()
    net = Graph(x, [Linear(4, 1, name="yes")(x), Linear(4, 1, name="size")(x)])
    yes = (TOKENS[:, :1] > 1).astype(np.float32)
    data = np.ones((8, 4), np.float32)
    costs = CostSum({"yes": BCE(), "size": MSE()})
    trainer = Trainer(
        net, costs, SGD(0.1), batchsize=4, progress="none", metrics={"yes": MAE(name="own"), "size": MAE()}
    )
    with pytest.warns(GraphWarning, match="own: .*yes' .* gives logits") as found:
        trainer.train(data, [yes, yes])
    assert len([w for w in found if issubclass(w.category, GraphWarning)]) == 1


def sequences(index, outputs="y", hasLengths=True):
    """A classifier of sequences of different lengths; `index` may be a module that reduces them."""
    x, n = Input(name="x").node(), Input(name="n").node()
    cell = LSTM(3, 5, name="lstm", outputs=outputs)
    y = cell(x, lengths=n) if hasLengths else cell(x)
    read = y if index is None else index(y) if isinstance(index, Module) else y[index]
    return Graph([x, n] if hasLengths else x, Linear(5, 2, name="out")(read))


@pytest.mark.parametrize("how", ["trainer", "compile"])
def test_the_last_time_step_of_padded_sequences(how):
    net, labels = sequences((slice(None), -1)), np.arange(8) % 2
    with pytest.warns(GraphWarning, match="takes the last time step of 'graph.lstm' .* outputs='h'"):
        if how == "compile":
            net.compile([DATA.shape, LENGTHS.shape, labels.shape], cost=CrossEntropy(), optimizer=SGD(0.1))
        else:
            Trainer(net, CrossEntropy(), SGD(0.1), progress="none").train([DATA, LENGTHS], labels)


@pytest.mark.parametrize("reduction", [Mean(1), Mean(-2), Max((1,)), Min(1)])
def test_reductions_over_the_padding_too(reduction):
    with pytest.warns(GraphWarning, match="is over all time steps of 'graph.lstm' .LSTM.*, the zeros beyond"):
        Trainer(sequences(reduction), CrossEntropy(), SGD(0.1), progress="none").train([DATA, LENGTHS], LENGTHS % 2)


@pytest.mark.parametrize(
    "net",
    [
        sequences((slice(None), 0)),
        sequences(None, "h"),
        sequences((slice(None), -1), hasLengths=False),
        sequences(Sum(1)),
        sequences(Mean(1), hasLengths=False),
    ],
)
def test_other_time_steps_and_sequences_of_one_length_are_not_doubted(net):
    labels = np.arange(8) % 2
    Trainer(net, CrossEntropy(), SGD(0.1), progress="none").train([DATA, LENGTHS][: len(net.inputs)], labels)


def test_sequential_nets_are_looked_into():
    net = Sequential(LSTM(3, 5), Linear(5, 4))
    assert not run(net, CrossEntropy(axis=-1), "trainer", TOKENS, DATA, metrics=[Accuracy(axis=-1)])
