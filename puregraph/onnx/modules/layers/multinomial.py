"""Multinomial: classes drawn at random, by the logarithms of their probabilities."""

import numpy as np

from puregraph.arguments import Count, Dtype
from puregraph.base.dtype import nativeType
from puregraph.core.param import State
from puregraph.errors import need
from puregraph.kernels.random import uniform
from puregraph.module import Module
from puregraph.modules.dropout import drawKey


class Multinomial(Module):
    """y[n, k] = class c with probability exp(x[n, c]) / sum over d of exp(x[n, d]), each k drawn anew

    The numbers are a function of two States: `key` names the stream, and `count` grows with each pass, in evalMode too.

    Shapes    x (n, classes) -> y (n, count), integers
    Source    ONNX operator Multinomial; drawn by the inverse of the cumulative distribution, Devroye 1986, ch. III.2
    Raises    ShapeError if x is no matrix
    """

    reads = ()
    isDiscrete = True
    needsFloats = True
    draws = "count"
    drawsAlways = True  # an operator of the model, not of its training

    def __init__(self, samples: Count = 1, dtype: Dtype = "int32", name=None):
        super().__init__(name)
        self.samples, self.dtype = samples, nativeType(dtype)
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        need(len(x) == 2, "x (n, classes)", x)
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
