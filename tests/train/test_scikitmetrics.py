"""Metrics beside scikit-learn's, over random cuts into batches."""

import numpy as np
import pytest

from puregraph import (
    MAPE,
    R2,
    RMSE,
    DiceScore,
    ExplainedVariance,
    Kappa,
    Matthews,
    MeanIoU,
    Pearson,
    SquaredError,
)


def cut(rng, n):
    """Random batches of n samples, some of them empty."""
    ends = np.sort(rng.integers(0, n + 1, rng.integers(0, 6)))
    return [slice(a, b) for a, b in zip([0, *ends], [*ends, n])]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SquaredError, "mean_squared_error"),
        (RMSE, "root_mean_squared_error"),
        (MAPE, "mean_absolute_percentage_error"),
        (R2, "r2_score"),
        (ExplainedVariance, "explained_variance_score"),
    ],
)
def test_a_metric_of_numbers_is_that_of_scikit_learn(kind, name):
    theirs = getattr(pytest.importorskip("sklearn.metrics"), name)
    for number in range(200):
        rng = np.random.default_rng(number)
        n = int(rng.integers(2, 30))
        x, t = rng.normal(size=(2, n))
        metric = kind()
        for part in cut(rng, n):
            metric.update(x[part], t[part])
        np.testing.assert_allclose(metric.value(), theirs(t, x), rtol=1e-9, atol=1e-12)


def test_the_correlation_is_that_of_numpy():
    for number in range(200):
        rng = np.random.default_rng(number)
        n = int(rng.integers(3, 30))
        x, t = rng.normal(size=(2, n))
        metric = Pearson()
        for part in cut(rng, n):
            metric.update(x[part], t[part])
        np.testing.assert_allclose(metric.value(), np.corrcoef(x, t)[0, 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        (Kappa, "cohen_kappa_score", {}),
        (Matthews, "matthews_corrcoef", {}),
        (MeanIoU, "jaccard_score", {"average": "macro"}),
        (DiceScore, "f1_score", {"average": "macro"}),
    ],
)
def test_a_metric_of_counts_is_that_of_scikit_learn(kind, name, options):
    theirs = getattr(pytest.importorskip("sklearn.metrics"), name)
    for number in range(200):
        rng = np.random.default_rng(number)
        n, classes = int(rng.integers(10, 40)), int(rng.integers(2, 5))
        x, t = rng.normal(size=(n, classes)), rng.integers(0, classes, n)
        metric = kind(classes)
        for part in cut(rng, n):
            metric.update(x[part], t[part])
        np.testing.assert_allclose(metric.value(), theirs(t, x.argmax(1), **options), rtol=1e-10)


def test_nothing_counted_is_no_figure():
    assert all(np.isnan(kind().value()) for kind in (SquaredError, RMSE, MAPE, R2, ExplainedVariance, Pearson))
    assert np.isnan(Kappa(2).value())
