"""Metrics beside scikit-learn's, over random cuts into batches, with weights of samples and without."""

import numpy as np
import pytest
from batchcuts import cut, valueOver

from puregraph import (
    F1,
    MAE,
    MAPE,
    R2,
    RMSE,
    Accuracy,
    AveragePrecision,
    Confusion,
    DiceScore,
    ExplainedVariance,
    Kappa,
    LogLoss,
    Matthews,
    MeanIoU,
    Pearson,
    Perplexity,
    Precision,
    Recall,
    RocAuc,
    Spearman,
    SquaredError,
    TopK,
)

theirs = pytest.importorskip("sklearn.metrics")
pytestmark = pytest.mark.filterwarnings("ignore")
WEIGHED = pytest.mark.parametrize("isWeighed", [False, True])
DRAWS = {"some": range(40), "more": range(40, 200)}
SEEDS = {"of a test": DRAWS["some"]}


@pytest.fixture(autouse=True, params=["some", pytest.param("more", marks=pytest.mark.slow)])
def seeds(request, monkeypatch):
    """The random draws that `compare` tries: 40 everyday, 160 others in slow tests."""
    monkeypatch.setitem(SEEDS, "of a test", DRAWS[request.param])


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def compare(make, data, wanted, isWeighed, rtol=1e-9):
    """Compare a metric with the function `wanted` of what `data` gives, for many random draws."""
    for number in SEEDS["of a test"]:
        rng = np.random.default_rng(number)
        x, t = data(rng)
        w = rng.random(len(t)) * 3 if isWeighed else None
        arrays = (x, t) if w is None else (x, t, w)
        np.testing.assert_allclose(valueOver(rng, make(), *arrays), wanted(x, t, w), rtol=rtol, atol=1e-12)


def someNumbers(rng):
    n = int(rng.integers(2, 30))
    return rng.normal(size=n), rng.normal(size=n) + rng.choice([0, 1e4])


def someLabels(rng):
    n = int(rng.integers(10, 40))
    t = rng.permutation(np.concatenate([np.arange(4), rng.integers(0, 4, n)]))
    return rng.normal(size=(len(t), 4)).round(1), t


def distinctLabels(rng):
    """Labels of scores without ties but of equal rows, as rounding of a softmax parts other ones."""
    x, t = someLabels(rng)
    x = rng.normal(size=x.shape)
    x[::3] = x[0]
    return x, t


def someDecisions(rng):
    n = int(rng.integers(4, 40))
    t = rng.permutation(np.concatenate([[0, 1], rng.integers(0, 2, n)]))
    return rng.normal(size=len(t)).round(int(rng.integers(0, 3))), t  # with ties


def severalDecisions(rng):
    n = int(rng.integers(4, 30))
    t = np.concatenate([np.eye(3, dtype=int), 1 - np.eye(3, dtype=int), rng.integers(0, 2, (n, 3))])
    return rng.normal(size=t.shape).round(1), rng.permutation(t)


@WEIGHED
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (MAE, "mean_absolute_error"),
        (SquaredError, "mean_squared_error"),
        (RMSE, "root_mean_squared_error"),
        (MAPE, "mean_absolute_percentage_error"),
        (R2, "r2_score"),
        (ExplainedVariance, "explained_variance_score"),
    ],
)
def test_a_metric_of_numbers_is_that_of_scikit_learn(kind, name, isWeighed):
    compare(kind, someNumbers, lambda x, t, w: getattr(theirs, name)(t, x, sample_weight=w), isWeighed)


@WEIGHED
def test_the_correlation_is_that_of_numpy(isWeighed):
    def wanted(x, t, w):
        cov = np.cov(x, t, aweights=w)
        return cov[0, 1] / np.sqrt(cov[0, 0] * cov[1, 1])

    compare(Pearson, someNumbers, wanted, isWeighed, 1e-8)


def test_the_correlation_of_ranks_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")

    def tied(rng):
        x, t = rng.normal(size=(2, int(rng.integers(3, 40)))).round(int(rng.integers(0, 3)))
        x[:2], t[:2] = (0, 1), (1, 0)
        return x, t

    compare(Spearman, tied, lambda x, t, w: stats.spearmanr(x, t).statistic, False)


@WEIGHED
@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        (lambda: Accuracy(), "accuracy_score", {}),
        (lambda: Kappa(4), "cohen_kappa_score", {}),
        (lambda: Matthews(4), "matthews_corrcoef", {}),
        (lambda: MeanIoU(4), "jaccard_score", {"average": "macro"}),
        (lambda: DiceScore(4), "f1_score", {"average": "macro"}),
        (lambda: F1(classes=4), "f1_score", {"average": "macro"}),
        (lambda: Precision(classes=4), "precision_score", {"average": "macro", "zero_division": 0}),
        (lambda: Recall(average="micro"), "recall_score", {"average": "micro"}),
        (lambda: Recall(of=2), "recall_score", {"average": "macro", "labels": [2]}),
    ],
)
def test_a_metric_of_counts_is_that_of_scikit_learn(kind, name, options, isWeighed):
    function = getattr(theirs, name)
    compare(kind, someLabels, lambda x, t, w: function(t, x.argmax(1), sample_weight=w, **options), isWeighed)


@WEIGHED
@pytest.mark.parametrize("over", [None, "actual", "predicted", "all"])
def test_a_confusion_is_that_of_scikit_learn_also_as_fractions(over, isWeighed):
    theirNames = {None: None, "actual": "true", "predicted": "pred", "all": "all"}
    for number in SEEDS["of a test"]:
        rng = np.random.default_rng(number)
        x, t = someLabels(rng)
        w = rng.random(len(t)) if isWeighed else None
        confusion = Confusion(4)
        for part in cut(rng, len(t)):
            confusion.update(*(y[part] for y in (x, t, w) if y is not None))
        found = confusion.value() if over is None else confusion.normalised(over)
        wanted = theirs.confusion_matrix(t, x.argmax(1), sample_weight=w, normalize=theirNames[over])
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
        assert over or isWeighed or found.dtype == np.int64


@WEIGHED
def test_top_k_is_that_of_scikit_learn(isWeighed):
    def untied(rng):
        x, t = someLabels(rng)
        return rng.normal(size=x.shape), t

    compare(lambda: TopK(2), untied, lambda x, t, w: theirs.top_k_accuracy_score(t, x, k=2, sample_weight=w), isWeighed)


@WEIGHED
def test_log_loss_and_perplexity_are_those_of_scikit_learn(isWeighed):
    def loss(x, t, w):
        return theirs.log_loss(t, softmax(x), sample_weight=w)

    compare(LogLoss, someLabels, loss, isWeighed)
    compare(Perplexity, someLabels, lambda x, t, w: np.exp(loss(x, t, w)), isWeighed)
    compare(
        lambda: LogLoss(probabilities=True),
        sharp,
        lambda x, t, w: theirs.log_loss(t, x, sample_weight=w),
        isWeighed,
        1e-6,
    )
    compare(LogLoss, someDecisions, lambda x, t, w: theirs.log_loss(t, sigmoid(x), sample_weight=w), isWeighed)


def sharp(rng):
    """Probabilities of which some are 0 and 1."""
    x, t = someLabels(rng)
    return softmax(300 * x), t


CURVES = [(RocAuc, "roc_auc_score"), (AveragePrecision, "average_precision_score")]


@WEIGHED
@pytest.mark.parametrize(("kind", "name"), CURVES)
def test_an_area_of_yes_and_no_is_that_of_scikit_learn_with_ties(kind, name, isWeighed):
    compare(kind, someDecisions, lambda x, t, w: getattr(theirs, name)(t, x, sample_weight=w), isWeighed)
    compare(
        kind,
        lambda rng: (np.stack([np.zeros(len((pair := someDecisions(rng))[0])), pair[0]], axis=1), pair[1]),
        lambda x, t, w: getattr(theirs, name)(t, x[:, 1], sample_weight=w),
        isWeighed,
    )


@WEIGHED
@pytest.mark.parametrize(("kind", "name"), CURVES)
@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
def test_an_area_of_several_classes_is_that_of_scikit_learn(kind, name, average, isWeighed):
    options = {"multi_class": "ovr"} if kind is RocAuc else {}

    def wanted(x, t, w):
        return getattr(theirs, name)(t, softmax(x), average=average, sample_weight=w, **options)

    compare(lambda: kind(classes=4, average=average), distinctLabels, wanted, isWeighed)
    compare(
        lambda: kind(classes=4, average=average),
        lambda rng: (lambda x, t: (x, np.eye(4)[t]))(*distinctLabels(rng)),
        lambda x, t, w: wanted(x, t.argmax(1), w),
        isWeighed,
    )
    compare(
        lambda: kind(classes=3, average=average),
        severalDecisions,
        lambda x, t, w: getattr(theirs, name)(t, x, average=average, sample_weight=w),
        isWeighed,
    )


@WEIGHED
@pytest.mark.parametrize(("kind", "name"), CURVES)
def test_an_area_by_thresholds_is_that_of_scores_rounded_to_them(kind, name, isWeighed):
    def binned(p):
        return np.searchsorted(np.linspace(0, 1, 21), p, side="right")

    function = getattr(theirs, name)
    compare(
        lambda: kind(thresholds=21),
        someDecisions,
        lambda x, t, w: function(t, binned(sigmoid(x)), sample_weight=w),
        isWeighed,
    )
    compare(
        lambda: kind(classes=3, thresholds=21),
        severalDecisions,
        lambda x, t, w: function(t, binned(sigmoid(x)), sample_weight=w),
        isWeighed,
    )
    compare(
        lambda: kind(classes=4, thresholds=21),
        someLabels,
        lambda x, t, w: function(np.eye(4)[t], binned(softmax(x)), sample_weight=w),
        isWeighed,
    )


def test_nothing_counted_is_no_figure():
    assert all(np.isnan(kind().value()) for kind in (SquaredError, RMSE, MAPE, R2, ExplainedVariance, Pearson))
    assert all(np.isnan(kind().value()) for kind in (Spearman, RocAuc, AveragePrecision, LogLoss, Perplexity))
    assert np.isnan(Kappa(2).value()) and np.isnan(RocAuc(thresholds=5).value())
