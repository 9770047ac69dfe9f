"""Sampling: draw one token from the scores of a language model."""

from __future__ import annotations

import numpy as np


def drawToken(
    scores: np.ndarray,
    rng: np.random.Generator,
    temperature: float = 1.0,
    topK: int | None = None,
    topP: float = 1.0,
    minP: float = 0.0,
) -> int:
    """Draw a token with probability softmax(scores / temperature), among the likeliest; the likeliest at temperature 0.

    `topK`  sample from the k likeliest tokens only; None: from all
    `topP`  sample from the smallest set of likeliest tokens with this total probability (the nucleus)
    `minP`  sample from tokens with at least this share of the probability of the likeliest

    Of equal scores the first token is the likelier.

    Source    Holtzman et al. 2020, arXiv:1904.09751, section 3.1 (topP); Fan et al. 2018, arXiv:1805.04833 (topK);
              Nguyen et al. 2024, arXiv:2407.01082, section 3 (minP)
    """
    if not temperature:
        return int(scores.argmax())
    order = np.argsort(-scores, kind="stable")[:topK]
    z = (scores[order] - scores[order[0]]) / temperature
    chances = np.exp(z)
    reached = chances.cumsum()
    nucleus = np.searchsorted(reached, topP * reached[-1]) + 1  # size of the nucleus
    likely = np.searchsorted(-chances, -minP, side="right")  # at least 1: the first has 1
    reached = reached[: min(nucleus, likely)]
    return int(order[np.searchsorted(reached[:-1], rng.random() * reached[-1], side="right")])


def lessRepeated(scores: np.ndarray, tokens: list[int], penalty: float) -> np.ndarray:
    """Divide the positive scores of tokens that occur by `penalty`, and multiply the negative ones with it.

    Source    Keskar et al. 2019, CTRL, arXiv:1909.05858, section 4.1
    """
    if penalty == 1:
        return scores
    scores, used = scores.copy(), np.unique(tokens)
    scores[used] = np.where(scores[used] > 0, scores[used] / penalty, scores[used] * penalty)
    return scores
