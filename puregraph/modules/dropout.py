"""Random modules: Dropout, and samples of a distribution."""

import numpy as np

from puregraph.core.arguments import Count, Dtype, Probability
from puregraph.core.base.dtype import nativeType
from puregraph.core.errors import need
from puregraph.core.param import State
from puregraph.graph.module import Module
from puregraph.ops.random.reference import uniform


class Dropout(Module):
    """y = x mask / (1 - p), mask = u >= p, u uniform in [0, 1) for each value; in evalMode y is x itself

    Random values are a function of two States: `key`, drawn once from the seed, names the stream, and `count` grows
    with each call in trainMode; restoring both repeats the same masks. A mask does not depend on the
    dtype computed in. The mask, a hidden output of one byte an element, is in evalMode a single True, broadcast.

    Shapes    x (any), mask as x, key (), count () -> y as x
    Source    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov 2014, Dropout, JMLR 15, section 10
    Raises    ArgumentError unless 0 <= p < 1
    """

    reads = ("mask",)
    needsFloats = True
    hidden = ("mask",)
    gives = "as taken"
    draws = "count"  # the state that counts draws; processes that share a batch have different counts

    def __init__(self, p: Probability = 0.5, name=None):
        super().__init__(name)
        self.p = p
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        return x

    def hiddenShapeFrom(self, x):
        return [x]

    def hiddenTypeFrom(self, x):
        return [np.dtype(bool)]

    def updateData(self, x, key, count):
        if not self.isTraining:
            return x, np.broadcast_to(np.ones_like(x, dtype=bool, shape=()), x.shape)
        mask = uniform(x.shape, key, count) >= self.p
        count += 1
        return self.drop(x, mask), mask

    def updateGrad(self, grad, x, key, count, y, mask):
        return self.drop(grad, mask) if self.isTraining else grad, None, None

    def drop(self, x, mask):
        """Return the elements of x that the mask keeps, scaled so that the expectation is x; 0 elsewhere."""
        return np.where(mask, x * (1 / (1 - self.p)), 0)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 5)]
        yield cls(0.2), [(2, 3, 4)]
        yield cls(p=0), [(3, 2)]


def drawKey(rng, shape):
    """A key for a stream of random numbers."""
    return rng.integers(0, 2**64, shape, dtype=np.uint64)


class Multinomial(Module):
    """y[n, k] = class c with probability exp(x[n, c]) / sum over d of exp(x[n, d]), independently for each k

    The numbers are a function of two States: `key` names the stream, and `count` grows with each pass, in evalMode too.

    Shapes    x (n, classes) -> y (n, count), integers
    Source    ONNX operator Multinomial; drawn by the inverse of the cumulative distribution, Devroye 1986, ch. III.2
    Raises    ShapeError if x is no matrix
    """

    reads = ()
    isDiscrete = True
    needsFloats = True
    draws = "count"
    drawsAlways = True  # in evalMode too: it is part of the model

    def __init__(self, samples: Count = 1, dtype: Dtype = "int32", name=None):
        super().__init__(name)
        self.samples, self.dtype = samples, nativeType(dtype)
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        need(len(x) == 2 and x[1] != 0, "x (n, classes), at least one class", x)
        return (x[0], self.samples)

    def dataTypeFrom(self, x):
        super().dataTypeFrom(x)
        return self.dtype

    def updateData(self, x, key, count):
        drawn = uniform((x.shape[0], self.samples), key, count)
        count += 1
        chances = np.cumsum(np.exp(x - x.max(axis=1, keepdims=True)), axis=1)
        below = drawn[:, :, None] * chances[:, None, -1:] >= chances[:, None, :-1]
        return below.sum(axis=2).astype(self.dtype)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3)]
        yield cls(4, "int64"), [(3, 2)]
