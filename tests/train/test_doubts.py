"""What trains and cannot be meant: said once, before the first step, by a Trainer and by `graph.compile`."""

import re
import warnings

import numpy as np
import pytest

from puregraph import (
    BCE,
    MSE,
    SGD,
    Accuracy,
    BatchNorm,
    Calculator,
    Conv1D,
    Conv2D,
    CrossEntropy,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Graph,
    Identity,
    Input,
    Linear,
    Relu,
    Reshape,
    Sequential,
    Sigmoid,
    SoftMax,
    Trainer,
    Transpose,
    Validator,
)
from puregraph.core.errors import GraphWarning, PuregraphError


def run(net, cost, how, target=None, data=None, **options):
    """One step of a Trainer, or a program; the GraphWarnings of it."""
    data = np.ones((8, 4), np.float32) if data is None else data
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if how == "compile":
            net.compile([data.shape, target.shape], cost=cost, optimizer=SGD(0.1))
        else:
            trainer = Trainer(net, cost, SGD(0.1), batchsize=4, progress="none", **options)
            trainer.train(data, target, epochs=2, validation=(data, target))
    return [str(w.message) for w in found if issubclass(w.category, GraphWarning)]


LABELS, YES = np.arange(8) % 2, (np.arange(8) % 2).astype(np.float32)[:, None]


@pytest.mark.parametrize("how", ["trainer", "compile"])
@pytest.mark.parametrize(
    ("net", "cost", "target", "words"),
    [
        (
            lambda: Sequential(Linear(4, 1), Sigmoid()),
            BCE,
            YES,
            "BCE takes scores .* 'sequential.sigmoid' .Sigmoid. gives",
        ),
        (
            lambda: Sequential(Linear(4, 2), SoftMax()),
            CrossEntropy,
            LABELS,
            "CrossEntropy .* 'sequential.softmax' .SoftMax. gives",
        ),
        (lambda: Sequential(Linear(4, 2), Sigmoid()), CrossEntropy, LABELS, "gives probabilities: remove it"),
        (
            lambda: Sequential(Linear(4, 1), Relu()),
            BCE,
            YES,
            "negative for no, but 'sequential.relu' .Relu. gives no negative",
        ),
        (
            lambda: Sequential(Linear(4, 2), Relu(), Reshape((0, 2))),
            CrossEntropy,
            LABELS,
            "CrossEntropy takes scores of any sign, but 'sequential.relu' .Relu. gives no negative",
        ),
        (
            lambda: Sequential(Linear(4, 1), Sequential(Sigmoid(name="s"), Identity(), name="end"), Dropout(0.1)),
            BCE,
            YES,
            "'sequential.end.s' .Sigmoid. gives",
        ),
        (
            lambda: Sequential(Linear(4, 1)),
            CrossEntropy,
            LABELS * 0,
            "got .[48], 1., scores of a single class: the cost is 0",
        ),
    ],
)
def test_what_cannot_be_meant_is_said_once(how, net, cost, target, words):
    found = run(net(), cost(), how, target)
    assert len(found) == 1 and re.search(words, found[0]), found


@pytest.mark.parametrize("how", ["trainer", "compile"])
@pytest.mark.parametrize(
    ("net", "cost", "target"),
    [
        (lambda: Sequential(Linear(4, 1)), BCE, YES),
        (lambda: Sequential(Reshape((0, 1, 4)), Conv1D(1, 2, 1), Relu(), GlobalAvgPool()), CrossEntropy, LABELS),
        (lambda: Sequential(Linear(4, 1), Sigmoid()), MSE, YES),
        (lambda: Sequential(Linear(4, 4), Sigmoid(), Linear(4, 2)), CrossEntropy, LABELS),
    ],
)
def test_what_can_be_meant_is_not_spoken_of(how, net, cost, target):
    assert run(net(), cost(), how, target) == []


def test_classes_on_the_last_axis_are_doubted_where_shapes_do_not_tell():
    data, labels = np.ones((8, 3, 4), np.float32), np.zeros((8, 3), int)
    found = run(Sequential(Linear(4, 3)), CrossEntropy(), "compile", labels, data)
    assert (
        len(found) == 1
        and "classes on axis 1 of (8, 3, 3), 'sequential.linear' (Linear) makes the last axis" in found[0]
    )
    assert run(Sequential(Linear(4, 3)), CrossEntropy(axis=-1), "compile", labels, data) == []
    assert run(Sequential(Linear(4, 3), Transpose((0, 2, 1))), CrossEntropy(), "compile", labels, data) == []
    image = np.ones((2, 1, 3, 3), np.float32)
    assert run(Sequential(Conv2D(1, 3, 1)), CrossEntropy(), "compile", np.zeros((2, 3, 3), int), image) == []


def test_a_cost_that_is_a_graph_is_not_doubted():
    x, t = Input(name="x").node(), Input(name="t").node()
    cost = Graph([x, t], BCE().node(Reshape((-1, 1)).node(x), t))
    assert run(Sequential(Linear(4, 1), Sigmoid()), cost, "compile", YES) == []


def test_a_threshold_of_logits_is_doubted_where_probabilities_come():
    net = Sequential(Linear(4, 1), Sigmoid())
    found = run(net, MSE(), "trainer", YES, metrics=[Accuracy()])
    assert (
        len(found) == 1
        and "accuracy: 'sequential.sigmoid' (Sigmoid) gives probabilities, all above the threshold 0" in found[0]
    )
    assert run(net, MSE(), "trainer", YES, metrics=[Accuracy(threshold=0.5)]) == []


def test_statistics_of_a_part_of_a_step_are_said():
    net = Sequential(Linear(4, 3), BatchNorm(3, name="norm"), Flatten(), Linear(3, 2))
    found = run(net, CrossEntropy(), "trainer", LABELS, accumulate=2)
    assert len(found) == 1 and found[0].startswith("accumulate=2: norm (BatchNorm) takes the statistics of each batch")
    assert run(net, CrossEntropy(), "trainer", LABELS) == []


DOUBTED = np.random.default_rng(5).standard_normal((8, 4)).astype(np.float32)


def test_a_validator_doubts_as_a_trainer_does_and_says_so_once():
    validator = Validator(Sequential(Linear(4, 1), Sigmoid()), MSE(), metrics=[Accuracy()])
    with pytest.warns(GraphWarning, match="gives probabilities, all above the threshold 0: write Accuracy"):
        validator.validate(DOUBTED, YES)
    validator.validate(DOUBTED, YES)
    with pytest.warns(GraphWarning, match="BCE takes scores .* 'sequential.sigmoid' .Sigmoid. gives"):
        Validator(Sequential(Linear(4, 1), Sigmoid()), BCE()).validate(DOUBTED, YES)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((DOUBTED * 20 + 100).clip(0, 255).astype(np.uint8), "bytes from 0 to .* go into 'linear'"),
        (DOUBTED * 5000, "in the mean goes into 'linear' .Linear. as it is, whose weights are made for numbers near 1"),
    ],
)
def test_a_calculator_and_a_validator_doubt_data_as_a_trainer_does(data, words):
    calculator = Calculator(Linear(4, 1))
    for run in (lambda: calculator.calculate(data), lambda: Validator(Linear(4, 1), MSE()).validate(data, YES)):
        with pytest.warns(GraphWarning, match=words):
            run()
    calculator.calculate(data)


@pytest.mark.parametrize(("rate", "words"), [(1e10, "fc.W has reached .* by now"), (1e38, "fc.W has reached .*")])
def test_a_diverged_run_says_that_the_weights_are_gone(rate, words):
    trainer = Trainer(Linear(4, 1, name="fc"), MSE(), SGD(rate), batchsize=4, progress="none")
    with pytest.raises(
        PuregraphError, match=f"the cost is .*; lower the learning rate.*; {words}.* make the network anew"
    ):
        trainer.train(DOUBTED, YES, epochs=30)
    other = Trainer(Linear(4, 1, name="fc"), MSE(), SGD(0.1), progress="none")
    with pytest.raises(PuregraphError) as caught:
        other.train(DOUBTED * np.nan, YES)
    assert "by now" not in str(caught.value)
