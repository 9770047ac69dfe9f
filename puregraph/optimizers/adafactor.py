"""Adafactor: mean squares of a matrix from its rows and columns, in a thousandth of Adam's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array


class Adafactor(Optimizer):
    """b = t^fading,   R = (1 - b) R + b mean of g^2 over columns,   C likewise over rows,   V = R C / mean(R)
    u = g / sqrt(V),   w = w - max(least, rms(w)) min(rate, 1 / sqrt(t)) u / max(1, rms(u) / clip)

    For the last two axes of a parameter only their sums are kept; one of one axis has V itself. rms is the root mean
    square. Weight decay is decoupled: w = w - rate decay w before. As PyTorch's Adafactor with beta2_decay = fading,
    d = clip.

    Source    Shazeer, Stern 2018, arXiv:1804.04235, algorithms 4 and 5
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), Adafactor(), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    scalars = {"newShare": "step ** fading", "bound": "minimum(rate, 1 / sqrt(step))"}

    def __init__(
        self, learnRate: float = 1e-2, fading: float = -0.8, least: float = 1e-3, clip: float = 1.0, **options: Any
    ):
        super().__init__(learnRate, **options)
        self.fading, self.least, self.clip = fading, self.option("least", least), self.option("clip", clip)

    @staticmethod
    def rule(
        param: Array,
        grad: Array,
        rate: float,
        decay: float,
        bound: float,
        newShare: float,
        least: float,
        clip: float,
        rows: Array | None = None,
        columns: Array | None = None,
        squares: Array | None = None,
    ) -> Mapping[str, Array]:
        epsilon = np.finfo(param.dtype).eps
        size = np.maximum(least, rootMeanSquare(param)) * bound
        param = param - rate * decay * param
        if squares is None:
            rows = rows + newShare * (np.mean(grad**2, axis=-1, keepdims=True) - rows)
            columns = columns + newShare * (np.mean(grad**2, axis=-2, keepdims=True) - columns)
            meanSquares = rows * columns / np.maximum(np.mean(rows, axis=-2, keepdims=True), epsilon)
            states = {"rows": rows, "columns": columns}
        else:
            meanSquares = squares + newShare * (grad**2 - squares)
            states = {"squares": meanSquares}
        step = grad / np.sqrt(np.maximum(meanSquares, epsilon**2))
        return {"param": param - size / np.maximum(1, rootMeanSquare(step) / clip) * step, **states}

    def start(self, param: Array) -> dict[str, Array]:
        if param.ndim < 2:
            return {"squares": np.zeros_like(param)}
        return {"rows": np.zeros_like(param[..., :1]), "columns": np.zeros_like(param[..., :1, :])}


def rootMeanSquare(x: Array) -> Array:
    """sqrt(mean(x^2)), which is |x| for one number"""
    return np.sqrt(np.mean(x**2))
