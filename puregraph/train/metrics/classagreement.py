"""Metrics of a matrix of counts: how predicted and actual classes agree beyond chance, and how regions overlap."""

from __future__ import annotations

import numpy as np

from puregraph.train.metrics.confusion import Confusion


class _OfCounts(Confusion):
    """A number made from the counts (classes, classes) of actual and predicted classes."""

    def value(self) -> float:  # type: ignore[override]
        counts = self.sums.astype(np.float64)
        if not counts.sum():
            return float("nan")
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(self.figure(counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)))

    def figure(self, right: np.ndarray, actual: np.ndarray, predicted: np.ndarray) -> np.float64:
        """Return the figure from the counts of each class."""
        raise NotImplementedError(f"{type(self).__name__} has no figure: write figure(self, right, actual, predicted)")


class Kappa(_OfCounts):
    """kappa = (a - c) / (1 - c), with a the accuracy, and c what it would be by chance, for these counts of classes

    It is nan where all predictions and targets are of one class. Arguments are those of `Confusion`.

    Source    Cohen 1960, A Coefficient of Agreement for Nominal Scales

    >>> metric = Kappa(2)
    >>> metric.update(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1]))
    >>> round(metric.value(), 4)
    0.4
    """

    def figure(self, right: np.ndarray, actual: np.ndarray, predicted: np.ndarray) -> np.float64:
        n = actual.sum()
        chance = (actual * predicted).sum() / n**2
        return (right.sum() / n - chance) / (1 - chance)

    def doubt(self) -> str:
        isNan = self.sums.any() and np.isnan(self.value())
        return "all predictions and targets are of one class" if isNan else ""


class Matthews(_OfCounts):
    """The correlation of actual and predicted classes, from -1 to 1; 0 if all are of one class

    With s right of n, p_k predicted and t_k actual: (s n - sum p_k t_k) / sqrt((n^2 - sum p_k^2) (n^2 - sum t_k^2)).
    Arguments are those of `Confusion`.

    Source    Matthews 1975, Biochimica et Biophysica Acta 405; Gorodkin 2004 (several classes)

    >>> metric = Matthews(2)
    >>> metric.update(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1]))
    >>> round(metric.value(), 4)
    0.5
    """

    def figure(self, right: np.ndarray, actual: np.ndarray, predicted: np.ndarray) -> np.float64:
        n = actual.sum()
        over = right.sum() * n - (actual * predicted).sum()
        under = np.sqrt((n**2 - (predicted**2).sum()) * (n**2 - (actual**2).sum()))
        return over / under if under else np.float64(0)


class MeanIoU(_OfCounts):
    """The mean over classes of intersection / union of actual and predicted positions; classes without any do not count

    Arguments are those of `Confusion`.

    Source    Jaccard 1912, The Distribution of the Flora in the Alpine Zone

    >>> metric = MeanIoU(2)
    >>> metric.update(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1]))
    >>> metric.value()
    0.5
    """

    def figure(self, right: np.ndarray, actual: np.ndarray, predicted: np.ndarray) -> np.float64:
        union = actual + predicted - right
        return np.mean(right[union > 0] / union[union > 0])


class DiceScore(_OfCounts):
    """The mean over classes of 2 intersection / (actual + predicted positions); classes without any do not count

    Arguments are those of `Confusion`.

    Source    Dice 1945, Measures of the Amount of Ecologic Association Between Species, Ecology 26

    >>> metric = DiceScore(2)
    >>> metric.update(np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), np.array([0, 1, 1]))
    >>> round(metric.value(), 4)
    0.6667
    """

    def figure(self, right: np.ndarray, actual: np.ndarray, predicted: np.ndarray) -> np.float64:
        size = actual + predicted
        return np.mean(2 * right[size > 0] / size[size > 0])
