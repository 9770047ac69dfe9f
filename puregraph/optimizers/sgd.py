"""SGD: a step along the gradient."""

from __future__ import annotations

from typing import Any

from puregraph.optimizers.optimizer import Optimizer


class SGD(Optimizer):
    """w = w - rate g

    Source    Robbins, Monro 1951, Annals of Mathematical Statistics 22, eq. 8
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`
    """

    rule = {"param": "param - rate * grad"}

    def __init__(self, learnRate: float = 1e-3, **options: Any):
        super().__init__(learnRate, **options)
