"""Muon: the momentum of a matrix, made orthogonal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from puregraph.core.arguments import Count, Flag, takes
from puregraph.ops.product.symmetric import symmetricProduct
from puregraph.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from puregraph.core.device import Array

QUINTIC = (3.4445, -4.7750, 2.0315)  # a x + b x^3 + c x^5 takes singular values from 0 to 1 near 1 in few steps
PRODUCT_STEPS = 5  # steps between two products of the long side: after them a factor in float32 is exact to about 1e-3


class Muon(Optimizer):
    """m = momRate m + (1 - momRate) g,   O = orthogonal((1 - momRate) g + momRate m),   w = w - rate (s O + decay w)

    For parameters of two and more axes, where O is U V^T of the singular value decomposition U S V^T, nearly, by
    `steps` of Newton and Schulz's iteration: X = a X + (b X X^T + c (X X^T)^2) X with X first divided by its norm. A
    kernel is taken as the matrix of its first axis and the others. s = 0.2 sqrt(max(rows, columns)) gives steps the
    size of AdamW's, so that its learning rates apply. Parameters of one axis, and none, are updated by AdamW with
    `beta1`, `beta2` and `epsilon`. Embeddings and the last layer are better left to AdamW as well:

        MultiOptimizer({"embed": AdamW(1e-3), "head": AdamW(1e-3), "*": Muon(1e-3)})

    Source    Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv:2502.16982, section 2.2
              (size, weight decay)
    Raises    ArgumentError for a setting or option out of range; options as in `Optimizer`

    >>> trainer = Trainer(Sequential(Linear(3, 1)), MSE(), Muon(1e-2), progress="none")
    >>> len(trainer.train(np.ones((8, 3)), np.ones((8, 1)), epochs=2))
    2
    """

    scalars = {"bias1": "1 - beta1 ** step", "bias2": "1 - beta2 ** step"}

    @takes(nesterov=Flag, steps=Count)
    def __init__(
        self,
        learnRate: float = 1e-3,
        momRate: float = 0.95,
        nesterov: bool = True,
        steps: int = 5,
        decay: float = 0.1,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **options: Any,
    ):
        super().__init__(learnRate, decay=decay, **options)
        self.momRate, self.nesterov, self.steps = self.option("momRate", momRate, 1), nesterov, steps
        self.beta1, self.beta2 = self.option("beta1", beta1, 1), self.option("beta2", beta2, 1)
        self.epsilon = self.option("epsilon", epsilon)

    @staticmethod
    def rule(
        param: Array,
        grad: Array,
        rate: float,
        decay: float,
        momRate: float,
        nesterov: bool,
        steps: int,
        beta1: float,
        beta2: float,
        epsilon: float,
        bias1: float,
        bias2: float,
        momentum: Array | None = None,
        m: Any = None,
        v: Any = None,
    ) -> Mapping[str, Array]:
        param = param - rate * decay * param
        if momentum is None:
            m = beta1 * m + (1 - beta1) * grad
            v = beta2 * v + (1 - beta2) * grad**2
            return {"param": param - rate / bias1 * m / (np.sqrt(v / bias2) + epsilon), "m": m, "v": v}
        momentum = momentum + (1 - momRate) * (grad - momentum)
        step = grad + momRate * (momentum - grad) if nesterov else momentum
        matrix = step.reshape(step.shape[0], -1)
        size = 0.2 * math.sqrt(max(matrix.shape))
        step = orthogonal(matrix, steps).reshape(step.shape)
        return {"param": param - rate * size * step, "momentum": momentum}

    def start(self, param: Array) -> dict[str, Array]:
        names = ("m", "v") if param.ndim < 2 else ("momentum",)
        return {name: np.zeros_like(param) for name in names}


def orthogonal(matrix: Array, steps: int = 5) -> Array:
    """Return the matrix with its singular values moved near 1, by Newton and Schulz's iteration with QUINTIC.

    The square X X^T, or X^T X of a high matrix, has the shorter side. Where the other side is at least twice as long,
    several steps are computed as p(X X^T) X, so that all but two products are of matrices with the shorter side. X X^T
    is computed anew after PRODUCT_STEPS steps: rounding errors in it, where singular values are small, grow twelvefold
    a step.
    """
    isTall = matrix.shape[0] > matrix.shape[1]
    x = matrix / np.maximum(np.sqrt(np.sum(matrix**2)), 1e-7)
    isLong = max(x.shape) >= 2 * min(x.shape)
    runs = [min(PRODUCT_STEPS, steps - first) for first in range(0, steps, PRODUCT_STEPS)] if isLong else [1] * steps
    for count in runs:
        factor = polynomial(x.T @ x if isTall else x @ x.T, count)
        x = x @ factor if isTall else factor @ x
    return x


def polynomial(square: Array, steps: int) -> Array:
    """Return the matrix P such that P X is X after `steps` steps, from the square X X^T.

    All matrices are polynomials of the square, so that their products are symmetric.
    """
    a, b, c = QUINTIC
    constant = a * np.eye(len(square), dtype=square.dtype)
    result = None
    for i in range(steps):
        factor = constant + b * square + c * symmetricProduct(square, square)
        result = factor if result is None else symmetricProduct(result, factor)
        if i + 1 < steps:
            square = symmetricProduct(square, symmetricProduct(factor, factor))
    return result
