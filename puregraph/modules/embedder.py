"""Embedder: a table of vectors, read by index."""

from puregraph.arguments import Count, NotNegative, Size, hinted
from puregraph.core import initial
from puregraph.core.param import Param
from puregraph.errors import DataError
from puregraph.kernels.scatter import gather, scatterAdd
from puregraph.module import Module


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
            found = getattr(x, "dtype", type(x).__name__)
            raise DataError(f"Embedder: wanted whole numbers as indices, got {found}; convert with .astype('int64')")
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
