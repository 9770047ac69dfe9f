"""The array operations that several modules share: numpy references, each with its faster implementations below it."""

from puregraph.kernels.attention import attend, attendGrad
from puregraph.kernels.convolution import convolve, convolveData, convolveWeight
from puregraph.kernels.pooling import maxPool, maxPoolGrad, meanPool, meanPoolGrad
from puregraph.kernels.random import normal, uniform
from puregraph.kernels.reduce import logSoftmax, logSumExp, moments, softmax, unbroadcast
from puregraph.kernels.scatter import gather, putClass, scatterAdd, takeClass
from puregraph.kernels.windowsum import windowSum

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
