"""BLEU: the fraction of n-grams of translations that are in their references."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from puregraph.core.arguments import Count, Whole, takes
from puregraph.train.metrics.metric import Metric
from puregraph.train.metrics.sequences import listed, needEqual


class BLEU(Metric):
    """bleu = brevity exp(mean over n = 1 .. order of ln p_n), with brevity = min(1, exp(1 - references / predictions))

    p_n is the fraction of n-grams of all predictions that are in a reference of their sample, each counted at most as
    often as it occurs there. Lengths are summed over samples, with the reference of the closest length, and of two the
    shorter. BLEU is 0 if no n-gram of some length is in a reference: there is no smoothing.

    Predictions are texts, divided at white space, integers (n, t), or scores (n, t, words), of which the best word of
    each step is taken. Targets are texts, lists of several texts for a sample, or integers (n, t).

    `order`   the longest n-gram
    `ignore`  the integer that pads targets and predictions
    `axis`    the axis of words in scores

    Source    Papineni, Roukos, Ward, Zhu 2002, BLEU: a Method for Automatic Evaluation of Machine Translation, ACL
    Raises    DataError for different numbers of predictions and targets, or arrays of other shapes

    >>> metric = BLEU(order=2)
    >>> metric.update(["the cat sat"], [["the cat sat down", "a cat sat"]])
    >>> metric.value()
    1.0
    """

    blank: int | None = None
    comparesArrays = False

    @takes(order=Count, ignore=Whole, axis=Whole)
    def __init__(self, order: int = 4, ignore: int = -1, axis: int = -1, which: int = 0, name: str | None = None):
        self.order, self.ignore, self.axis = order, ignore, axis
        super().__init__(which, name)

    def reset(self) -> None:
        self.sums = np.zeros((self.order + 1, 2))  # by n: n-grams in references, all n-grams; then lengths

    def share(self, prediction: Any, target: Any) -> np.ndarray:
        several = [len(t) if isReferences(t) else 1 for t in target] if isinstance(target, (list, tuple)) else []
        flat = [x for t in target for x in (t if isReferences(t) else [t])] if several else target
        predicted = [self.divided(x) for x in listed(prediction, self, "predictions", self.axis)]
        actual = [self.divided(x) for x in listed(flat, self, "targets", None)]
        counts = several or [1] * len(actual)
        needEqual(len(predicted), len(counts), self.name)
        ends = np.cumsum([0, *counts])
        samples = zip(predicted, ends[:-1], ends[1:])
        return sum((self.counted(words, actual[begin:end]) for words, begin, end in samples), np.zeros_like(self.sums))

    def counted(self, words: list[Any], references: list[list[Any]]) -> np.ndarray:
        """Return the sums of a sample."""
        sums = np.zeros((self.order + 1, 2))
        for n in range(1, self.order + 1):
            most: Counter[Any] = Counter()
            for reference in references:
                most |= grams(reference, n)
            there = grams(words, n)
            sums[n - 1] = (there & most).total(), there.total()
        closest = min(map(len, references), key=lambda length: (abs(length - len(words)), length))
        sums[-1] = len(words), closest
        return sums

    def divided(self, tokens: Any) -> list[Any]:
        """Return the words of a text, or the integers."""
        return tokens.split() if isinstance(tokens, str) else tokens

    def value(self) -> float:
        (matched, counts), (predicted, actual) = self.sums[:-1].T, self.sums[-1]
        if not predicted and not actual:
            return float("nan")
        if not matched.all():
            return 0.0
        brevity = min(1.0, np.exp(1 - actual / predicted))
        return float(brevity * np.exp(np.log(matched / counts).mean()))


def grams(words: list[Any], n: int) -> Counter[Any]:
    """Return the number of occurrences of each n-gram."""
    return Counter(zip(*(words[i:] for i in range(n))))


def isReferences(target: Any) -> bool:
    """True for the several references of a sample."""
    return isinstance(target, (list, tuple)) and bool(target) and not isinstance(target[0], (int, np.integer))
