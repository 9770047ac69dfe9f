"""The array operations that several modules share: numpy references, each with its faster implementations below it."""

from puregraph.ops.attention.reference import attend, attendGrad
from puregraph.ops.convolution.reference import convolve, convolveData, convolveWeight
from puregraph.ops.gather.reference import gather, putClass, scatterAdd, takeClass
from puregraph.ops.pooling.reference import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.ops.random.reference import normal, uniform
from puregraph.ops.reduction.reference import logSoftmax, logSumExp, moments, softmax, unbroadcast
from puregraph.ops.reduction.windowsum import windowSum

__path__: list[str] = []  # former submodules are found through `core.moved`
__all__ = [
    "attend",
    "attendGrad",
    "convolve",
    "convolveData",
    "convolveWeight",
    "gather",
    "logSoftmax",
    "logSumExp",
    "maxPool",
    "maxPoolGrad",
    "meanPool",
    "meanPoolGrad",
    "moments",
    "normal",
    "putClass",
    "scatterAdd",
    "softmax",
    "takeClass",
    "unbroadcast",
    "uniform",
    "windowSum",
]
