"""Metrics of all samples: extremes, one class, saved state, arrays on a GPU, and training with them."""

import warnings

import numpy as np
import pytest
from fakecupy import useCupy

from puregraph import (
    BCE,
    MSE,
    R2,
    SGD,
    AveragePrecision,
    CalibrationError,
    Confusion,
    DiceScore,
    ExplainedVariance,
    Kappa,
    Linear,
    LogLoss,
    Matthews,
    MeanIoU,
    Pearson,
    Perplexity,
    RocAuc,
    Sequential,
    Sigmoid,
    Spearman,
    Trainer,
    Validator,
    seed,
)
from puregraph.core.errors import ArgumentError, DataError, GraphWarning

X = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
WEIGHT = np.random.default_rng(1).random(30)
YES = (X[:, :1] + X[:, 1:2] > 0).astype(int)


def test_scores_that_a_softmax_cannot_tell_apart_keep_their_order():
    metric = RocAuc()
    metric.update(np.array([[0.0, 900.0], [0.0, 800.0], [0.0, -800.0], [0.0, -900.0]]), np.array([1, 0, 1, 0]))
    assert metric.value() == 0.75
    several, labels = RocAuc(classes=3), np.array([1, 0, 0, 1, 2])
    hits = [labels == 0, labels == 1]
    several.update(np.array([[50.0, 0, 0], [60.0, 0, 0], [0, 70, 0], [0, 80, 0], [0, 0, 90]]), labels)
    odds = np.array([[50, 60, -70, -80, -90], [-50, -60, 70, 80, -90]])
    pairs = [np.mean([[a > b for b in row[~hit]] for a in row[hit]]) for row, hit in zip(odds, hits)]
    np.testing.assert_allclose(several.value(), (sum(pairs) + 1) / 3)


@pytest.mark.parametrize("thresholds", [None, 50])
@pytest.mark.parametrize("kind", [RocAuc, AveragePrecision])
def test_targets_of_one_class_are_nan_with_a_sentence(kind, thresholds):
    metric = kind(thresholds=thresholds)
    metric.update(np.array([[0.5], [1.0]]), np.zeros((2, 1), int))
    assert np.isnan(metric.value()) and "all targets are of one class" in metric.doubt()
    macro = kind(classes=3, thresholds=thresholds)
    macro.update(np.eye(3)[[0, 1, 1]], np.array([0, 1, 1]))
    assert np.isnan(macro.value()) and "class 2 has no positives" in macro.doubt()
    assert kind(thresholds=thresholds).doubt() == ""
    with pytest.warns(GraphWarning, match="is nan: all targets are of one class"):
        Validator(Linear(4, 1), BCE(), [kind(thresholds=thresholds)]).validate(X, np.zeros((30, 1), int))


@pytest.mark.parametrize("kind", [RocAuc, AveragePrecision, LogLoss, Perplexity, CalibrationError])
def test_a_network_that_gives_probabilities_is_noticed(kind):
    net = Sequential(Linear(4, 1), Sigmoid())
    with pytest.warns(
        GraphWarning, match=rf"gives probabilities, not scores: write {kind.__name__}\(probabilities=True"
    ):
        Validator(net, MSE(), [kind()]).validate(X, YES.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Validator(net, MSE(), [kind(probabilities=True)]).validate(X, YES.astype(np.float32))


def test_agreement_on_a_single_class_is_no_figure():
    metric = Kappa(2)
    metric.update(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([0, 0]))
    assert np.isnan(metric.value()) and metric.doubt() == "all predictions and targets are of one class"
    metric.update(np.array([[0.0, 1.0]]), np.array([1]))
    assert metric.value() == 1.0 and not metric.doubt()


def test_equal_targets_have_no_variance():
    for kind in (R2, Spearman):
        metric = kind()
        for x in (0.3, 0.7, 0.2):
            metric.update(np.array([x, -x]), np.array([0.1, 0.1]))
        assert np.isnan(metric.value()) and metric.doubt()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_said_to_be_such(value):
    for kind in (R2, Pearson, ExplainedVariance):
        metric = kind()
        with np.errstate(invalid="ignore"):
            metric.update(np.array([0.3, value, 0.2]), np.array([0.1, 0.2, 0.4]))
        assert np.isnan(metric.value()) and metric.doubt() == "predictions or targets are not finite"


@pytest.mark.parametrize("kind", [Confusion, MeanIoU, DiceScore, Kappa, Matthews])
def test_a_prediction_that_is_nan_is_no_class_in_a_confusion(kind):
    """It would be the first class, by argmax, and its recall 1."""
    x, labels = np.array([[1.0, 2.0], [np.nan, 3.0]]), np.array([1, 0])
    for arrays in ((x, labels), (x[:, :1], labels[:, None])):
        with pytest.raises(DataError, match="predictions that are numbers, got nan for sample 1 of the batch"):
            kind(classes=2).update(*arrays)
    kind(classes=2, ignore=0).update(x, labels)


def test_means_far_from_zero_cost_no_digits():
    rng = np.random.default_rng(1)
    t = rng.normal(size=1000) + 1e9
    x = t + rng.normal(size=1000)
    metric = R2()
    for part in np.split(np.arange(1000), [10, 400]):
        metric.update(x[part], t[part])
    np.testing.assert_allclose(metric.value(), 1 - ((x - t) ** 2).sum() / ((t - t.mean()) ** 2).sum(), rtol=1e-7)


def test_a_training_that_is_resumed_within_an_epoch_has_the_figures_of_one_that_is_not(tmp_path):
    def made(*callbacks):
        seed(0)
        metrics = [RocAuc(), AveragePrecision(thresholds=20), LogLoss(), RocAuc(name="late").weighted()]
        options = {"metrics": metrics, "batchsize": 8, "progress": "none", "callbacks": callbacks}
        return Trainer(Linear(4, 1), BCE(), SGD(0.1), **options)

    def stop(trainer):
        if trainer.step == 2:
            trainer.stop("enough", now=True)

    wanted = made().train(X, YES, sampleWeight=WEIGHT)[-1]
    begun = made(stop)
    begun.train(X, YES, sampleWeight=WEIGHT)
    assert begun.position == 2
    assert "rocauc" not in begun.figures() and "averageprecision" in begun.figures()
    begun.save(tmp_path / "run.h5")
    resumed = made()
    resumed.resume(tmp_path / "run.h5")
    row = resumed.train(X, YES, sampleWeight=WEIGHT)[-1]
    for name in ("rocauc", "averageprecision", "logloss", "weighted late"):
        assert 0 < row[name] == wanted[name]


def test_probabilities_are_said_to_be_such():
    p = np.array([[0.2], [0.9], [0.6]])
    metric = LogLoss(probabilities=True)
    metric.update(p, np.array([[0], [1], [1]]))
    np.testing.assert_allclose(metric.value(), -np.log([0.8, 0.9, 0.6]).mean())
    for kind in (LogLoss(probabilities=True), RocAuc(probabilities=True, thresholds=3)):
        with pytest.raises(DataError, match="wanted probabilities from 0 to 1, got 1.5"):
            kind.update(p * 2.5 / 1.5, np.array([[0], [1], [1]]))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="thresholds of at least 2, got 1"):
        RocAuc(thresholds=1)
    with pytest.raises(DataError, match=r"got 3 classes; RocAuc\(classes=3\) is the mean"):
        RocAuc().update(np.zeros((2, 3)), np.zeros(2, int))
    with pytest.raises(DataError, match="wanted predictions of 4 classes, got 3"):
        RocAuc(classes=4).update(np.zeros((2, 3)), np.zeros(2, int))
    with pytest.raises(DataError, match="predictions that are numbers, got nan for sample 1 of the batch"):
        RocAuc().update(np.array([0.0, np.nan]), np.array([0, 1]))


def test_arrays_on_a_gpu_are_counted(monkeypatch):
    gpu = useCupy(monkeypatch)
    for metric, x, t in ((RocAuc(), X[:, :1], YES), (Spearman(), X[:, 0], X[:, 1]), (LogLoss(), X, YES[:, 0])):
        other = type(metric)()
        metric.update(x, t)
        other.update(gpu.asarray(x), gpu.asarray(t))
        assert other.value() == metric.value()
