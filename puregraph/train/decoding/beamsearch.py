"""Beam search: the likeliest continuations of a text, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np


class Hypothesis(NamedTuple):
    """A continuation: its tokens, and the sum of their log-probabilities."""

    tokens: tuple[int, ...]
    total: float

    def rated(self, penalty: float) -> float:
        """The sum divided by the number of tokens to the power of `penalty`."""
        return self.total / max(len(self.tokens), 1) ** penalty


class Beam:
    """The search of one text: `width` open hypotheses, and the best that have ended.

    Each step extends all open hypotheses by all tokens and keeps the likeliest. Those that end with a stop token are
    set aside. The search ends when no open hypothesis can be rated higher than the worst of `width` ended ones: a sum
    of log-probabilities only falls, so its rating is at most its sum divided by the largest possible length.

    Source    Graves 2012, arXiv:1211.3711, section 3 (search); Wu et al. 2016, arXiv:1609.08144, section 7 (lengths)
    """

    def __init__(self, width: int, tokens: int, penalty: float, isEnd: Callable[[tuple[int, ...]], bool]):
        self.width, self.tokens, self.penalty, self.isEnd = width, tokens, penalty, isEnd
        self.open = [Hypothesis((), 0.0)]
        self.ended: list[Hypothesis] = []

    @property
    def isDone(self) -> bool:
        """True if no open hypothesis can become one of the best."""
        if not self.open or len(self.open[0].tokens) >= self.tokens:
            return True
        if len(self.ended) < self.width:
            return False
        most = self.tokens if self.penalty > 0 else len(self.open[0].tokens) + 1
        return self.open[0].total / most**self.penalty <= self.ended[-1].rated(self.penalty)

    def extend(self, logs: np.ndarray) -> list[int]:
        """Extend the open hypotheses by log-probabilities (open, vocabulary); returns the parent of each new one."""
        totals = np.array([h.total for h in self.open])[:, None] + logs
        vocabulary, parents, follow = logs.shape[1], list[int](), list[Hypothesis]()
        for flat in inOrder(totals, 4 * self.width):
            parent, token = divmod(flat, vocabulary)
            total = float(totals[parent, token])
            if len(follow) == self.width or total == -np.inf:
                break
            made = Hypothesis((*self.open[parent].tokens, token), total)
            if self.isEnd(made.tokens):
                self.ended.append(made)
            else:
                follow.append(made)
                parents.append(parent)
        self.ended = sorted(self.ended, key=lambda h: -h.rated(self.penalty))[: self.width]
        self.open = follow
        return parents

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the highest rating."""
        return max([*self.ended, *self.open], key=lambda h: h.rated(self.penalty))


def inOrder(totals: np.ndarray, first: int) -> Iterator[int]:
    """The flat indices of numbers from the largest on, equal ones in order; the largest `first` are sorted alone."""
    flat = -totals.ravel()
    least = np.partition(flat, first - 1)[first - 1] if first < flat.size else np.inf
    chosen = np.flatnonzero(flat <= least)
    yield from chosen[np.argsort(flat[chosen], kind="stable")].tolist()
    others = np.flatnonzero(flat > least)
    yield from others[np.argsort(flat[others], kind="stable")].tolist()


def logSoftmaxOf(scores: np.ndarray) -> np.ndarray:
    """The log-probabilities of rows of scores."""
    scores = scores - scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
