"""Several outputs, each with a cost of its own."""

import numpy as np
import pytest

from puregraph import (
    MAE,
    MSE,
    SGD,
    Accuracy,
    ArgumentError,
    CostSum,
    CrossEntropy,
    DataError,
    Graph,
    GraphError,
    Input,
    Linear,
    TopK,
    Trainer,
    Validator,
)
from puregraph.core import initial
from puregraph.train import FunctionCallback

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype("f4")
DIGITS, AREAS = RNG.integers(0, 3, 40), RNG.normal(size=(40, 1)).astype("f4")
WEIGHTS = {"area": 0.25}
OF = RNG.random(40).astype("f4") * 2  # a weight for each sample


def network():
    """Two outputs, named digit and area."""
    initial.seed(3)
    x = Input(name="x").node()
    h = Linear(4, 8, name="h").node(x)
    return Graph([x], [Linear(8, 3, name="digit").node(h), Linear(8, 1, name="area").node(h)])


def costs():
    """A cost for each of them."""
    return {"digit": CrossEntropy(), "area": MSE()}


def byHand(net, *weight):
    """The two costs of all samples, and the gradients of 1 and 0.25 of them."""
    digit, area = net(X)
    one, two = CrossEntropy(), MSE()
    found = float(one(digit, DIGITS, *weight)), float(two(area, AREAS, *weight))
    one.backward()
    two.backward()
    net.backward([one.grad[0], np.float32(0.25) * two.grad[0]])
    return found, {name: p.grad.copy() for name, p in net.params.items()}


@pytest.mark.parametrize(
    ("compile", "weight", "grains"), [(False, [], None), (True, [], None), (False, [OF], None), (True, [OF], 4)]
)
def test_a_step_goes_along_the_weighted_sum_of_the_gradients(compile, weight, grains):
    own, net = network(), network()
    (digit, area), grads = byHand(own, *weight)
    options = {"batchsize": 40, "progress": "none", "compile": compile, "grains": grains}
    trainer = Trainer(net, CostSum(costs(), WEIGHTS), SGD(0.1), **options)
    targets = {"area": AREAS, "digit": DIGITS}
    (row,) = trainer.train(X, targets, sampleWeight=weight[0] if weight else None, validation=(X, targets, OF))
    found = Validator(net, CostSum(costs(), WEIGHTS), batchsize=16).validate(X, targets, sampleWeight=OF)
    assert found["loss"] == pytest.approx(row["val loss"], rel=1e-5)
    assert found["loss"] == pytest.approx(np.dot((1, 0.25), byHand(net, OF)[0]), rel=1e-5)
    assert row["loss"] == pytest.approx(digit + 0.25 * area, rel=1e-5)
    assert row["digit loss"] == pytest.approx(digit, rel=1e-5)
    assert row["area loss"] == pytest.approx(area, rel=1e-5)
    for name, p in own.params.items():
        np.testing.assert_allclose(net.params[name].data, p.data - 0.1 * grads[name], rtol=1e-5, atol=1e-6)


def test_a_dict_of_costs_and_a_dict_of_targets_are_taken_as_they_are():
    targets = {"area": AREAS, "digit": DIGITS}
    rows = []
    for target in (targets, [DIGITS, AREAS]):
        trainer = Trainer(network(), costs(), SGD(0.1), 16, metrics=[Accuracy()], progress="none")
        (row,) = trainer.train(X, target, validation=(X, target))
        rows.append({name: value for name, value in row.items() if name != "seconds"})
    assert rows[0] == rows[1]
    assert {"digit loss", "area loss", "accuracy", "val digit loss", "val area loss", "val accuracy"} <= set(rows[0])


def test_a_dict_of_metrics_measures_each_output_against_its_own_target():
    net, best = network(), TopK(2)
    found = Validator(net, costs(), {"area": MAE(), "digit": [Accuracy(), best]}).validate(X, [DIGITS, AREAS])
    digit, area = net.evalMode()(X)
    assert found["area mae"] == pytest.approx(np.abs(area - AREAS).mean(), rel=1e-5)
    assert found["digit accuracy"] == (digit.argmax(1) == DIGITS).mean()
    assert found["digit top2"] == best.value() > found["digit accuracy"]


def test_a_metric_of_the_one_output_with_a_cost_looks_at_the_one_target():
    accuracy = Accuracy()
    for _ in range(2):  # the second trainer finds the metric with its name
        trainer = Trainer(network(), {"area": MSE()}, SGD(0.1), metrics={"area": MAE()}, progress="none")
        (row,) = trainer.train(X, AREAS, validation=(X, AREAS))
        assert {"area mae", "val area mae"} < set(row)
        other = Trainer(network(), {"digit": CrossEntropy()}, SGD(0.1), metrics={"digit": accuracy}, progress="none")
        assert "digit accuracy" in other.train(X, DIGITS)[0]


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"area": MAE()}, r"metrics: wanted outputs that have a target \(digit\), got 'area'"),
        ({"digit": "accuracy"}, r"metrics\['digit'\]: wanted Metrics such as Accuracy\(\), got 'accuracy'"),
        ({"digit": [twice := Accuracy(), twice]}, r"metrics\['digit'\]: digit accuracy is given twice"),
        ({"digit": [Accuracy(), Accuracy()]}, "two have one name"),
    ],
)
def test_a_dict_that_names_no_output_or_holds_no_metric_is_refused(metrics, words):
    with pytest.raises(DataError, match=words):
        Trainer(network(), {"digit": CrossEntropy()}, SGD(0.1), metrics=metrics)


def test_smaller_batches_count_for_their_samples():
    net = network()
    (digit, area), _ = byHand(net)
    found = Validator(net, costs(), batchsize=16).validate(X, {"digit": DIGITS, "area": AREAS})
    assert found == pytest.approx({"loss": digit + area, "digit loss": digit, "area loss": area}, rel=1e-5)


def test_fixed_parts_of_a_batch_give_the_same_figures():
    found = [
        Trainer(network(), costs(), SGD(0.1), 16, progress="none", **options).train(X, [DIGITS, AREAS])[0]
        for options in ({}, {"grains": 4})
    ]
    for name in ("loss", "digit loss", "area loss"):
        assert found[0][name] == pytest.approx(found[1][name], rel=1e-5)


def test_an_output_without_a_cost_is_not_trained():
    net = network()
    before = net.params["area.W"].data.copy()
    Trainer(net, {"digit": CrossEntropy()}, SGD(0.1), progress="none").train(X, DIGITS)
    np.testing.assert_array_equal(net.params["area.W"].data, before)


def test_an_epoch_is_gone_on_with_after_resume(tmp_path):
    def trainer():
        return Trainer(network(), costs(), SGD(0.1), 8, progress="none")

    whole, first, second = trainer(), trainer(), trainer()
    whole.train(X, [DIGITS, AREAS], epochs=2)
    first.callbacks.insert(0, stopAt(first, 7))
    first.train(X, [DIGITS, AREAS], epochs=2)
    first.save(tmp_path / "run.h5")
    second.resume(tmp_path / "run.h5").train(X, [DIGITS, AREAS], epochs=2)
    assert [row["digit loss"] for row in second.history] == [row["digit loss"] for row in whole.history]


def stopAt(trainer, step):
    """A callback that stops the run after this step, at once."""
    return FunctionCallback(lambda trainer: trainer.stop(now=True) if trainer.step == step else None)


def test_costs_of_other_outputs_are_refused_when_the_trainer_is_made():
    with pytest.raises(GraphError, match="which are digit, area; got one for 'digits'"):
        Trainer(network(), {"digits": CrossEntropy()}, SGD(0.1))
    with pytest.raises(GraphError, match="which are digit, area; got one for 'digits'"):
        Validator(network(), {"digits": CrossEntropy()})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CostSum({}), "wanted a dict of a cost for each output by its name"),
        (lambda: CostSum([MSE()]), "wanted a dict of a cost for each output by its name"),
        (lambda: CostSum({"a": 3}), r"costs\['a'\]: wanted a cost of an output and its target, such as MSE\(\), got 3"),
        (lambda: CostSum({"a": MSE()}, {"b": 1}), "wanted a dict by some of the names a, got"),
        (lambda: CostSum({"a": MSE()}, {"a": -1}), r"weights\['a'\]: wanted a number from 0 on, got -1"),
        (lambda: CostSum({"a": MSE()}, {"a": float("nan")}), "wanted a number from 0 on, got nan"),
    ],
)
def test_what_is_no_cost_or_weight_is_refused(make, words):
    with pytest.raises(ArgumentError, match=words):
        make()


def test_targets_that_are_missing_or_have_other_names_are_refused():
    trainer = Trainer(network(), costs(), SGD(0.1), progress="none")
    with pytest.raises(DataError, match="target: wanted arrays for digit, area by name, got digit, size"):
        trainer.train(X, {"digit": DIGITS, "size": AREAS})
    with pytest.raises(GraphError, match="wanted 2 targets, for digit, area, got 1"):
        trainer.train(X, DIGITS)
    with pytest.raises(DataError, match="target: wanted an array, or a list of arrays, got a dict"):
        Trainer(network(), MSE(), SGD(0.1), progress="none").train(X, {"digit": DIGITS})
