"""RankingMetric: figures of how well scores put actual positives before negatives, over all thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Count, Flag, Whole, choice, takes
from puregraph.core.errors import ArgumentError, DataError
from puregraph.train.metrics.gatheredmetric import GatheredMetric
from puregraph.train.metrics.logloss import logSumExp
from puregraph.train.metrics.metric import decisions, isOneHot, labelled, needNotNan, perPosition

if TYPE_CHECKING:
    from puregraph.core.protocols import AnyArray


class RankingMetric(GatheredMetric):
    """A figure of the scores of actual positives and negatives, of one class or of each class against the rest.

    Targets of the predictions' shape are one-hot, or else 0 and 1 for no and yes, as in `Accuracy`: for a single logit
    of `BCE`, or several independent classes (multilabel). Scores of exclusive classes are compared by their softmax.

    `classes`        the number of classes; None: yes and no, from one logit or the scores of no and yes
    `average`        "macro": the mean over classes; "weighted": the same, weighted by their positives; "micro": all
                     classes as one
    `thresholds`     None: exact, from all samples, with memory for each; a number: from counts between that number of
                     evenly spaced probabilities from 0 to 1, in constant memory
    `axis`           the axis of classes
    `ignore`         the label to ignore; None: every label counts
    `probabilities`  predictions are probabilities, not scores
    """

    threshold: float

    @property
    def gathered(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.thresholds else ("rows",)

    @takes(
        classes=Count | None,
        average=choice("macro", "weighted", "micro"),
        thresholds=Count | None,
        axis=Whole,
        ignore=Whole | None,
        probabilities=Flag,
    )
    def __init__(
        self,
        classes: int | None = None,
        average: str = "macro",
        thresholds: int | None = None,
        axis: int = 1,
        ignore: int | None = None,
        probabilities: bool = False,
        which: int = 0,
        name: str | None = None,
    ):
        if thresholds == 1:
            raise ArgumentError(f"{type(self).__name__}: wanted thresholds of at least 2, got 1")
        self.classes, self.average, self.thresholds = classes, average, thresholds
        self.axis, self.ignore, self.probabilities = axis, ignore, probabilities
        self.threshold = 0.5 if probabilities else 0.0
        super().__init__(which, name)

    def reset(self) -> None:
        super().reset()
        self.isOneHot = True  # of all targets so far that have the predictions' shape
        # (independent, exclusive classes), class, interval, (negatives, positives)
        self.sums = np.zeros((2, self.classes or 1, self.thresholds or 0, 2))

    def update(self, prediction: AnyArray, target: AnyArray, weight: AnyArray | None = None) -> None:
        x, t, *weights = self.onHost(prediction, target, weight)
        if x.shape == t.shape and not self.isLogit(x):
            self.isOneHot = self.isOneHot and isOneHot(t, self.axis)
        rows = self.share(x, t, *weights)
        if not self.thresholds:
            self.addRows(rows)
            return
        for counts, isExclusive in zip(self.sums, (False, True)):
            scores, hits, mass = self.columns(rows, isExclusive)
            grid = np.linspace(0, 1, self.thresholds)
            intervals = np.searchsorted(grid, self.chances(scores, isExclusive), side="right") - 1
            at = np.broadcast_to(np.arange(len(counts)), scores.shape)
            np.add.at(counts, (at, intervals, hits.astype(int)), mass[:, None])

    def isLogit(self, x: np.ndarray) -> bool:
        """Return True for predictions without several classes on the axis."""
        return not -x.ndim <= self.axis < x.ndim or x.shape[self.axis] == 1

    def share(self, prediction: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """Return a row for each position of a batch: scores of all classes, 1 for its classes else 0, its weight."""
        needNotNan(prediction, self.name)
        isDecision = prediction.shape == target.shape and (self.isLogit(prediction) or not isOneHot(target, self.axis))
        if isDecision:
            _, there = decisions(prediction, target, self)
            weights = perPosition(weight, target.shape, self.name)
            scores, hits = self.spread(prediction), self.spread(there)
            weights = np.ones(len(scores)) if weights is None else self.spread(weights)[:, 0]
        else:
            scores, labels, weights = labelled(prediction, target, self, weight)
            hits = labels[:, None] == np.arange(scores.shape[-1])
            weights = np.ones(len(scores)) if weights is None else weights
        self.needClasses(scores.shape[-1])
        return np.concatenate([scores, hits, weights[:, None]], axis=1, dtype=np.float64)

    def needClasses(self, count: int) -> None:
        """Check the number of classes of predictions."""
        kind = type(self).__name__
        if self.classes is None and count > 2:
            raise DataError(
                f"{self.name}: wanted one logit, or the scores of no and yes, got {count} classes; "
                f"{kind}(classes={count}) is the mean over them"
            )
        if self.classes is not None and count != self.classes:
            raise DataError(f"{self.name}: wanted predictions of {self.classes} classes, got {count}")

    def spread(self, x: np.ndarray) -> np.ndarray:
        """Return an array as (positions, classes); one class if it has no such axis."""
        return x.reshape(-1, 1) if self.isLogit(x) else np.moveaxis(x, self.axis, -1).reshape(-1, x.shape[self.axis])

    def columns(self, rows: np.ndarray, isExclusive: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (scores, hits, weights) of rows: scores that compare positions; only of yes without `classes`."""
        count = rows.shape[1] // 2
        scores, hits, weights = rows[:, :count], rows[:, count:-1] > 0, rows[:, -1]
        if count > 1 and isExclusive and not self.probabilities:
            scores = logOdds(scores)
        return (scores, hits, weights) if self.classes else (scores[:, -1:], hits[:, -1:], weights)

    def chances(self, scores: np.ndarray, isExclusive: bool) -> np.ndarray:
        """Return the probabilities of scores.

        Raises    DataError for a number that is not a probability
        """
        if not self.probabilities:
            return np.exp(-np.logaddexp(0, -scores))
        outside = (scores < 0) | (scores > 1)
        if outside.any():
            raise DataError(f"{self.name}: wanted probabilities from 0 to 1, got {scores[outside][0]}")
        return scores

    def value(self) -> float:
        pieces = self.byClass()
        if not pieces:
            return float("nan")
        if self.average == "micro":
            scores, hits, weights = (np.concatenate(parts) for parts in zip(*pieces))
            return self.figure(scores, hits, weights)
        figures = np.array([self.figure(*piece) for piece in pieces])
        if self.average == "macro":
            return float(figures.mean())
        shares = np.array([weights[hits].sum() for _, hits, weights in pieces])
        return float(figures @ shares / shares.sum())

    def byClass(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return (scores, hits, weights) of each class, for positions of weight above 0; an empty list without any."""
        if self.thresholds:
            counts = self.sums[int(self.isOneHot)]
            scores = np.repeat(np.arange(self.thresholds), 2).astype(np.float64)
            pieces = [(scores, np.tile([False, True], self.thresholds), table.reshape(-1)) for table in counts]
        else:
            if not self.rows.size:
                return []
            x, there, w = self.columns(self.rows, self.isOneHot)
            pieces = [(x[:, k], there[:, k], w) for k in range(x.shape[1])]
        pieces = [(x[w > 0], hits[w > 0], w[w > 0]) for x, hits, w in pieces]
        return pieces if any(len(x) for x, *_ in pieces) else []

    def figure(self, scores: np.ndarray, hits: np.ndarray, weights: np.ndarray) -> float:
        """Return the figure of one class from the score of each position, whether it is a positive, and its weight."""
        raise NotImplementedError(f"{type(self).__name__} has no figure: write figure(self, scores, hits, weights)")

    def doubt(self) -> str:
        pieces = self.byClass()
        if not pieces or not np.isnan(self.value()):
            return ""
        lacking = [k for k, piece in enumerate(pieces) if np.isnan(self.figure(*piece))]
        if self.classes is None:
            return "all targets are of one class; it needs positives and negatives"
        return f"class {lacking[0]} has no positives, or no negatives; give more samples, or use average='micro'"

    def state(self) -> dict[str, object]:
        sums = {"sums": self.sums.copy()} if self.thresholds else super().state()
        return {**sums, "isOneHot": self.isOneHot}

    def restore(self, state: dict[str, Any]) -> None:
        self.reset()
        self.merge(state)

    def merge(self, state: dict[str, Any]) -> None:
        self.isOneHot = self.isOneHot and bool(state["isOneHot"])
        if self.thresholds:
            self.sums = self.sums + np.asarray(state["sums"]).reshape(self.sums.shape)
        else:
            super().merge(state)


def logOdds(scores: np.ndarray) -> np.ndarray:
    """ln(p / (1 - p)) of the softmax of scores (n, classes), exact where p is near 0 or 1."""
    if not scores.size:
        return scores
    rows, best = np.arange(len(scores)), scores.argmax(-1)
    others = scores.copy()
    others[rows, best] = -np.inf
    odds = np.empty_like(scores)
    peak = scores[rows, best][:, None]
    e = np.exp(scores - peak)
    odds[...] = scores - peak - np.log(np.maximum(e.sum(-1, keepdims=True) - e, 0.5))  # the sum has the best, 1
    odds[rows, best] = scores[rows, best] - logSumExp(others)
    return odds
