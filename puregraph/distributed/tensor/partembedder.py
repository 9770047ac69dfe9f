"""PartEmbedder: some rows of the table of an Embedder."""

from typing import Any

import numpy as np

from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.ops.gather.reference import gather, scatterAdd


class PartEmbedder(Module):
    """y[i] = W[x[i] - first], and zero where x[i] is -1, or a row of another part

    Shapes    x (...) integers, W (rows, embsize) -> y (..., embsize)
    Source    Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3, the embedding
    Raises    DataError if an index is below -1 or not below the vocabulary
    """

    reads = ("x",)
    indices = ("x",)

    def __init__(self, W: Param, first: int, vocabulary: int, name: str | None = None):
        super().__init__(name)
        self.W, self.first, self.vocabulary = W, first, vocabulary

    def rowsOf(self, x: Any) -> Any:
        """Return row numbers of this part: -1 for rows of other parts, and an invalid number for invalid indices."""
        rows = self.W.shape[0]
        isHere = (x >= self.first) & (x < self.first + rows)
        isElsewhere = (x >= -1) & (x < self.vocabulary)
        return np.where(isHere, x - self.first, np.where(isElsewhere, -1, rows))

    def dataShapeFrom(self, x: Any) -> Any:
        return (*x, self.W.shape[1])

    def updateData(self, x: Any, W: Any) -> Any:
        return gather(W, self.rowsOf(x))

    def updateGrad(self, grad: Any, x: Any, W: Any, y: Any) -> Any:
        return None, scatterAdd(grad, self.rowsOf(x), W.shape[0])
