"""CER and WER: the rates of wrong characters and words, by edit distance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Size, Whole, takes
from puregraph.train.metrics.metric import Metric
from puregraph.train.metrics.sequences import sequencesFrom

if TYPE_CHECKING:
    from collections.abc import Sequence


class CER(Metric):
    """The character error rate: the sum of edit distances / the sum of the lengths of the targets.

    The edit distance is the least number of insertions, deletions and substitutions that makes one sequence the other.
    Predictions and targets are lists of texts, or integers (n, t) for characters; or predictions are the
    scores (n, t, classes) of a network, of which the best class of each step is taken.

    `blank`   the class of `CTC` between labels: repeated classes count once, and blanks are removed; None: no CTC
    `ignore`  the integer that pads targets and predictions
    `axis`    the axis of classes in scores

    Source    Levenshtein 1966, Binary Codes Capable of Correcting Deletions, Insertions, and Reversals
    Raises    DataError for different numbers of predictions and targets, or arrays of other shapes

    >>> metric = CER()
    >>> metric.update(["kitten"], ["sitting"])
    >>> round(metric.value(), 4)
    0.4286
    """

    better = "min"
    comparesArrays = False

    @takes(blank=Size | None, ignore=Whole, axis=Whole)
    def __init__(
        self, blank: int | None = None, ignore: int = -1, axis: int = -1, which: int = 0, name: str | None = None
    ):
        super().__init__(which, name)
        self.blank, self.ignore, self.axis = blank, ignore, axis

    def share(self, prediction: Any, target: Any) -> np.ndarray:
        pairs = zip(*sequencesFrom(prediction, target, self), strict=True)
        counts = [(distance(found, wanted), len(wanted)) for found, wanted in pairs]
        return np.sum(np.array(counts, np.float64).reshape(-1, 2), axis=0)

    def divided(self, tokens: Any) -> Sequence[Any]:
        """Return the units of a text or of integers: characters."""
        return tokens

    def doubt(self) -> str:
        return "all targets are empty" if self.sums[0] and not self.sums[1] else ""


class WER(CER):
    """The word error rate: the sum of edit distances in words / the number of words of the targets.

    Texts are divided at white space. Integers are words; with `space` they are characters, and that one divides words.
    Other arguments are those of `CER`.

    >>> metric = WER()
    >>> metric.update(["the cat sat"], ["the cat sat down"])
    >>> metric.value()
    0.25
    """

    @takes(blank=Size | None, ignore=Whole, axis=Whole, space=Size | None)
    def __init__(
        self,
        blank: int | None = None,
        ignore: int = -1,
        axis: int = -1,
        which: int = 0,
        name: str | None = None,
        space: int | None = None,
    ):
        super().__init__(blank, ignore, axis, which, name)
        self.space = space

    def divided(self, tokens: Any) -> Sequence[Any]:
        """Return the units of a text or of integers: words."""
        if isinstance(tokens, str):
            return tokens.split()
        if self.space is None:
            return tokens
        ends = np.flatnonzero(np.asarray(tokens) == self.space)
        words = np.split(np.asarray(tokens), ends)
        return [word for part in words if (word := tuple(t for t in part.tolist() if t != self.space))]


def distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the edit distance of two sequences, row by row of the table of their prefixes."""
    numbers: dict[Any, int] = {}
    a, b = ([numbers.setdefault(unit, len(numbers)) for unit in units] for units in (first, second))
    columns, steps = np.array(b, np.int64), np.arange(len(b) + 1)
    row = steps.copy()
    for unit in a:
        following = row + 1
        following[1:] = np.minimum(following[1:], row[:-1] + (columns != unit))
        row = np.minimum.accumulate(following - steps) + steps  # insertions, from left to right
    return int(row[-1])
