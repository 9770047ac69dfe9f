"""Embedder, a table of vectors by index; Position and Prepend, parameters added to or put before a sequence."""

import numpy as np

from puregraph.core import initial
from puregraph.core.arguments import Count, NotNegative, Size, hinted
from puregraph.core.base.widen import widened
from puregraph.core.errors import DataError, need
from puregraph.core.param import Param
from puregraph.graph.module import Module
from puregraph.ops.gather.reference import gather, scatterAdd
from puregraph.ops.reduction.reference import unbroadcast


class Embedder(Module):
    """y[i] = W[x[i]], and zero where x[i] is -1

    Indices of any rank, so that sentences may have any length; -1 pads the shorter ones, gives the zero vector and
    has no gradient. Gradients of a word that occurs several times are added in the order of the text.

    Shapes    x (...) integers, W (vocabulary, embsize) -> y (..., embsize)
    Source    Bengio, Ducharme, Vincent, Jauvin 2003, A Neural Probabilistic Language Model, section 2, the matrix C
    Raises    DataError if an index is below -1 or not below the vocabulary, or no integer
    """

    reads = ("x",)
    indices = ("x",)

    def __init__(
        self,
        vocabulary: hinted(Count, "give the number of words, such as len(words)"),
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
