"""The array operations that several modules share: numpy references, each with its faster implementations below it."""

from puregraph.ops.reference.attention import attend, attendGrad
from puregraph.ops.reference.convolution import convolve, convolveData, convolveWeight
from puregraph.ops.reference.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.ops.reference.random import normal, uniform
from puregraph.ops.reference.reduce import logSoftmax, logSumExp, moments, softmax, unbroadcast
from puregraph.ops.reference.scatter import gather, putClass, scatterAdd, takeClass
from puregraph.ops.reference.windowsum import windowSum

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
