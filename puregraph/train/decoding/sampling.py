"""Sampling: draw one token from the scores of a language model."""

from __future__ import annotations

import numpy as np


def drawToken(
    scores: np.ndarray, rng: np.random.Generator, temperature: float = 1.0, topK: int | None = None, topP: float = 1.0
) -> int:
    """Draw a token with probability softmax(scores / temperature), among the likeliest; the likeliest at temperature 0.

    `topK`  sample from the k likeliest tokens only; None: from all
    `topP`  sample from the smallest set of likeliest tokens with this total probability (the nucleus)

    Of equal scores the first token is the likelier.

    Source    Holtzman et al. 2020, arXiv:1904.09751, section 3.1 (topP); Fan et al. 2018, arXiv:1805.04833 (topK)
    """
    if not temperature:
        return int(scores.argmax())
    order = np.argsort(-scores, kind="stable")[:topK]
    z = (scores[order] - scores[order[0]]) / temperature
    reached = np.exp(z).cumsum()
    nucleus = np.searchsorted(reached, topP * reached[-1]) + 1  # size of the nucleus
    reached = reached[:nucleus]
    return int(order[np.searchsorted(reached[:-1], rng.random() * reached[-1], side="right")])
