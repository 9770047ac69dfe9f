"""Embedder and EmbedderBag, vectors by index; Position and Prepend, parameters added to or put before a sequence."""

from typing import Annotated

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core import initial
from puregraph.core.arguments import Count, NotNegative, Positive, Size, choice, hinted
from puregraph.core.base.widen import widened
from puregraph.core.errors import DataError, need
from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.ops.gather.reference import gather, scatterAdd
from puregraph.ops.reduction.reference import total, unbroadcast


class Embedder(Module):
    """y[i] = W[x[i]], and zero where x[i] is -1

    Indices of any rank, so that sentences may have any length; -1 pads the shorter ones, gives the zero vector and
    has no gradient. Gradients of a word that occurs several times are added in the order of the text.

    Shapes    x (...) integers, W (vocabulary, embsize) -> y (..., embsize)
    Source    Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, section 2, the matrix C
    Raises    DataError if an index is below -1 or not below the vocabulary, or no integer
    """

    reads: tuple[str, ...] = ("x",)
    indices = ("x",)

    def __init__(
        self,
        vocabulary: Annotated[int, hinted(Count, "give the number of words, such as len(words)")],
        embsize: Size,
        initscheme="uniform",
        wscale: NotNegative = 1.0,
        name=None,
    ):
        super().__init__(name)
        self.W = Param((vocabulary, embsize), initial.weights(initscheme, vocabulary, embsize, wscale))

    def dataShapeFrom(self, x):
        return (*x, self.W.shape[1])

    def updateData(self, x, W):
        if not hasattr(x, "dtype") or x.dtype.kind not in "iu":
            actual = getattr(x, "dtype", type(x).__name__)
            raise DataError(f"Embedder: wanted whole numbers as indices, got {actual}; convert with .astype('int64')")
        try:
            return gather(W, x)
        except IndexError as error:
            raise DataError(f"Embedder: the vocabulary has {len(W)} words: {error}") from None

    def updateGrad(self, grad, x, W, y):
        return None, scatterAdd(grad, x, W.shape[0])

    def sample(self, rng, x):
        return [rng.integers(-1, self.W.shape[0], x)]

    @classmethod
    def examples(cls):
        yield cls(5, 3), [(2, 4)]
        yield cls(4, 2, initscheme="gaussian", wscale=0.1), [(2, 3, 2)]
        yield cls(3, 1), [(7,)]


class EmbedderBag(Embedder):
    """y = the sum, mean or largest over i of weights[i] W[x[i]], i along the last axis of x without those where x is -1

    With `maxNorm` rows longer than it are used as r maxNorm / |r|; W itself stays, and the gradient is that of this
    formula. `weights` may be left out. A bag without an index gives the zero vector.

    Shapes    x (..., t) integers, weights (..., t), W (vocabulary, embsize) -> y (..., embsize)
    Source    Joulin, Grave, Bojanowski, Mikolov 2016, Bag of Tricks for Efficient Text Classification,
              arXiv:1607.01759, section 2
    Raises    DataError if an index is below -1 or not below the vocabulary, or no integer; ShapeError if x has no axis

    >>> bag = EmbedderBag(4, 2, mode="sum")
    >>> bag.W.data = np.arange(8.0).reshape(4, 2)
    >>> bag(np.array([[0, 2, -1], [3, 3, 3]]))
    array([[ 4.,  6.],
           [18., 21.]], dtype=float32)
    """

    reads = ("x", "weights", "W")

    def __init__(
        self,
        vocabulary: Annotated[int, hinted(Count, "give the number of words, such as len(words)")],
        embsize: Size,
        mode: Annotated[str, choice("sum", "mean", "max")] = "mean",
        maxNorm: Positive | None = None,
        initscheme="uniform",
        wscale: NotNegative = 1.0,
        name=None,
    ):
        super().__init__(vocabulary, embsize, initscheme, wscale, name)
        self.mode, self.maxNorm = mode, maxNorm

    def dataShapeFrom(self, x, weights=None):
        need(len(x) >= 1, "(..., t), the indices of a bag along the last axis", x)
        need(weights is None or weights == x, f"weights of shape {x}", weights)
        return (*x[:-1], self.W.shape[1])

    def updateData(self, x, weights=None, W=None):
        rows = super().updateData(x, W)
        return reduced(rows, x >= 0, weights, self.mode, self.maxNorm)

    def updateGrad(self, grad, *values, needs):
        return derivedGrad(self.updateData, grad, values, needs)

    def sample(self, rng, x, *weights):
        return [rng.integers(-1, self.W.shape[0], x), *map(rng.standard_normal, weights)]

    @classmethod
    def examples(cls):
        yield cls(5, 3), [(2, 4)]
        yield cls(4, 2, "sum"), [(3, 2), (3, 2)]
        yield cls(6, 2, "max", maxNorm=1.5), [(2, 1, 3)]
        yield cls(5, 3, maxNorm=0.5), [(4,)]


@widened
def reduced(rows, isIn, weights, mode, maxNorm):
    """Return the vectors of bags: of rows (..., t, embsize), those where `isIn` (..., t) is True."""
    if maxNorm is not None:
        squares = total(rows * rows, -1, keepdims=True)
        isLong = squares > maxNorm * maxNorm
        rows = rows * np.where(isLong, maxNorm / np.sqrt(np.where(isLong, squares, 1)), 1)
    if weights is not None:
        rows = rows * weights[..., None]
    count = total(isIn.astype(rows.dtype), -1)[..., None]
    if mode == "max" and rows.shape[-2]:
        largest = np.where(isIn[..., None], rows, -np.inf).max(axis=-2)
        return np.where(count > 0, largest, 0)
    sums = total(rows, -2)
    return sums / np.maximum(count, 1) if mode == "mean" else sums


class Position(Module):
    """y[n, ..., t] = x[n, ..., t] + W[t]

    Sequences may be shorter than `length`; the vectors of positions that they do not reach have gradient zero.

    Shapes    x (n, ..., t, size), W (length, size), t <= length -> y as x
    Source    Gehring, Auli, Grangier, Yarats, Dauphin 2017, arXiv:1705.03122, section 3.1
    Raises    ShapeError if x has another size, or more than `length` positions
    """

    reads = ()
    gradAliases = True
    flopsPerElement = 1

    def __init__(self, length: Count, size: Size, initscheme="gaussian", wscale: NotNegative = 0.02, name=None):
        super().__init__(name)
        self.W = Param((length, size), initial.weights(initscheme, length, size, wscale))

    def dataShapeFrom(self, x):
        length, size = self.W.shape
        need(len(x) >= 3 and x[-1] == size, f"(n, ..., t, {size})", x)
        need(length - x[-2] >= 0, f"at most {length} positions", x, "give a larger length, or shorter sequences")
        return x

    def updateData(self, x, W):
        return plus(x, W[: x.shape[-2]])

    def updateGrad(self, grad, x, W, y, needs):
        gW = None
        if needs[1]:
            length, size = W.shape
            used = unbroadcast(grad, grad.shape[-2:])
            gW = np.concatenate([used, np.zeros_like(used, shape=(length - grad.shape[-2], size))], axis=0)
        return grad, gW

    @classmethod
    def examples(cls):
        yield cls(4, 3), [(2, 4, 3)]
        yield cls(5, 2, initscheme="uniform", wscale=0.1), [(2, 2, 3, 2)]
        yield cls(2, 1), [(3, 1, 1)]


@widened
def plus(x, w):
    """Return x + w."""
    return x + w


class Prepend(Module):
    """y[n, ..., :] = W[0], ..., W[count - 1], x[n, ..., 0], x[n, ..., 1], ...

    The same vectors for all sequences: with a count of 1, the class token of vision transformers.

    Shapes    x (n, ..., t, size), W (count, size) -> y (n, ..., count + t, size)
    Source    Dosovitskiy et al. 2020, arXiv:2010.11929, eq. 1; Darcet et al. 2023, arXiv:2309.16588, for several
    Raises    ShapeError if x has another size
    """

    reads = ()
    flopsPerElement = 0

    def __init__(self, count: Size, size: Size, initscheme="gaussian", wscale: NotNegative = 0.02, name=None):
        super().__init__(name)
        self.W = Param((count, size), initial.weights(initscheme, count, size, wscale))

    def dataShapeFrom(self, x):
        count, size = self.W.shape
        need(len(x) >= 3 and x[-1] == size, f"(n, ..., t, {size})", x)
        return (*x[:-2], x[-2] + count, size)

    def updateData(self, x, W):
        return np.concatenate([np.broadcast_to(W, (*x.shape[:-2], *W.shape)), x], axis=-2)

    def updateGrad(self, grad, x, W, y, needs):
        count = W.shape[0]
        return grad[..., count:, :], unbroadcast(grad[..., :count, :], W.shape) if needs[1] else None

    @classmethod
    def examples(cls):
        yield cls(1, 3), [(2, 4, 3)]
        yield cls(2, 2, initscheme="uniform", wscale=0.1), [(2, 2, 3, 2)]
