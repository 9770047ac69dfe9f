"""Random modules: Dropout and its relatives, noise, and samples of a distribution."""

from collections.abc import Callable
from math import prod
from typing import Annotated, Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Count, Dtype, Items, NotNegative, Probability, choice, isNumber
from puregraph.core.base.dtype import nativeType
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError, need
from puregraph.core.param import State
from puregraph.graph.module import Module
from puregraph.ops.formula import Formula
from puregraph.ops.random.reference import uniform
from puregraph.ops.reduction.reference import total
from puregraph.ops.reduction.windowsum import windowSum

LEAKY = Formula("where(x > 0, x, slope * x)").numpy(("x", "slope"))
QUANTILE = Formula("ndtri(u)").numpy(("u",))  # of the normal distribution


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

    def maskShape(self, x):
        """The shape of the mask, which broadcasts with x."""
        return x

    def hiddenShapeFrom(self, x):
        return [self.maskShape(x)]

    def hiddenTypeFrom(self, x):
        return [np.dtype(bool)]

    def updateData(self, x, key, count):
        shape = self.maskShape(x.shape)
        if not self.isTraining:
            return x, np.broadcast_to(np.ones_like(x, dtype=bool, shape=(1,) * x.ndim), shape)
        mask = uniform(shape, key, count) >= self.p
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


class Dropout2D(Dropout):
    """y = x mask / (1 - p), one element of the mask for each map of each sample, of any number of spatial axes

    Shapes    x (n, maps, *spatial), mask (n, maps, 1, ...), key (), count () -> y as x
    Source    Tompson et al. 2015, Efficient Object Localization, arXiv:1411.4280, section 3.2; PuzzleLib's Dropout2D
    Raises    ArgumentError unless 0 <= p < 1; ShapeError if x has no maps
    """

    def dataShapeFrom(self, x):
        need(len(x) >= 2, "(n, maps, *spatial)", x)
        return x

    def maskShape(self, x):
        return (*x[:2], *(1,) * (len(x) - 2))


class StochasticDepth(Dropout):
    """y = x mask / (1 - p), one element of the mask for each sample: before a sum, it drops a branch of the network

    Shapes    x (n, ...), mask (n, 1, ...), key (), count () -> y as x
    Source    Huang, Sun, Liu, Sedra, Weinberger 2016, arXiv:1603.09382, section 3; Larsson et al. 2017, FractalNet
    Raises    ArgumentError unless 0 <= p < 1; ShapeError if x has no axis of samples
    """

    def dataShapeFrom(self, x):
        need(len(x) >= 1, "(n, ...)", x)
        return x

    def maskShape(self, x):
        return (*x[:1], *(1,) * (len(x) - 1))


class AlphaDropout(Dropout):
    """y = a (x mask + d (1 - mask)) + b, with a, b that keep mean 0 and variance 1: dropout behind Selu

    d = -1.7581 is the least value of Selu; a = 1 / sqrt((1 - p) (1 + p d^2)), b = -a p d. In evalMode y is x itself.

    Shapes    x (any), mask as x, key (), count () -> y as x
    Source    Klambauer, Unterthiner, Mayr, Hochreiter 2017, arXiv:1706.02515, section 2, new dropout technique
    Raises    ArgumentError unless 0 <= p < 1
    """

    LEAST = -1.7580993408473766  # -alpha scale of Selu

    def drop(self, x, mask):
        a = self.factor
        return np.where(mask, a * x - a * self.p * self.LEAST, a * self.LEAST * (1 - self.p)).astype(x.dtype)

    def updateGrad(self, grad, x, key, count, y, mask):
        return np.where(mask, self.factor * grad, 0) if self.isTraining else grad, None, None

    @property
    def factor(self):
        """The scale a."""
        return 1 / ((1 - self.p) * (1 + self.p * self.LEAST**2)) ** 0.5


class FeatureAlphaDropout(AlphaDropout, Dropout2D):
    """AlphaDropout with one element of the mask for each map of each sample: y = a (x mask + d (1 - mask)) + b

    Shapes    x (n, maps, *spatial), mask (n, maps, 1, ...), key (), count () -> y as x
    Source    Klambauer et al. 2017, arXiv:1706.02515, section 2, for maps as in Tompson et al. 2015, arXiv:1411.4280;
              torch.nn.FeatureAlphaDropout
    Raises    ArgumentError unless 0 <= p < 1; ShapeError if x has no maps
    """


class DropBlock(Dropout):
    """y = x mask c, the mask 0 in blocks of `size` along each spatial axis; in evalMode y is x itself

    A block begins at each of the m positions of a map of s elements with probability p s / (size^k m), k spatial axes,
    so that about the share p is dropped; c is the count of elements of a sample over that of the ones of its mask. On
    smaller maps a block is as long as the shortest axis.

    Shapes    x (n, maps, *spatial), mask as x, key (), count () -> y as x
    Source    Ghiasi, Lin, Le 2018, DropBlock, arXiv:1810.12890, algorithm 1 and eq. 1
    Raises    ArgumentError unless 0 <= p < 1; ShapeError if x has no spatial axis, or one of length 0
    """

    def __init__(self, p: Probability = 0.1, size: Count = 7, name=None):
        super().__init__(p, name)
        self.size = size

    def dataShapeFrom(self, x):
        need(len(x) >= 3 and all(n >= 1 for n in x[2:]), "(n, maps, *spatial), no length 0", x)
        return x

    def updateData(self, x, key, count):
        if not self.isTraining:
            return super().updateData(x, key, count)
        size = min(self.size, *x.shape[2:])
        starts = [n - size + 1 for n in x.shape[2:]]
        chance = self.p * prod(x.shape[2:]) / (size ** len(starts) * prod(starts))
        first = uniform((*x.shape[:2], *starts), key, count) < chance
        count += 1
        blocks = np.pad(first.astype(np.float32), [(0, 0), (0, 0), *[(size - 1, size - 1)] * len(starts)])
        for axis in range(2, x.ndim):
            blocks = windowSum(blocks, axis, size)
        mask = blocks < 0.5
        return self.drop(x, mask), mask

    def drop(self, x, mask):
        """Return the elements of x that the mask keeps, scaled by the share of them in the sample; 0 elsewhere."""
        wide = widen(x)
        kept = total(mask.astype(wide.dtype), tuple(range(1, x.ndim)), keepdims=True)
        return np.where(mask, wide * (prod(x.shape[1:]) / np.maximum(kept, 1)), 0).astype(x.dtype, copy=False)

    @classmethod
    def examples(cls):
        yield cls(), [(2, 3, 8, 9)]
        yield cls(0.3, 2), [(2, 2, 5)]
        yield cls(0.2, 3), [(1, 2, 2, 4, 3)]


UNIFORM_BITS = 23  # of a number between 0 and 1, so that float32 holds its middle


def bits(shape, key, count):
    """Random whole numbers below 2^23; as integers they are no values that derivatives go through."""
    return (uniform(shape, key, count) * 2**UNIFORM_BITS).astype(np.int32)


def unit(draw):
    """The number between 0 and 1, neither of them, that random bits stand for."""
    return (draw.astype(np.float32) + 0.5) * 2.0**-UNIFORM_BITS


class _Noise(Module):
    """Base class of modules with random bits `draw` as hidden output; a subclass writes `noisy(x, draw)`."""

    noisy: Callable[..., Any]
    reads = ("x", "draw")
    needsFloats = True
    hidden = ("draw",)
    draws = "count"

    def __init__(self, name=None):
        super().__init__(name)
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x):
        return x

    def drawShape(self, x):
        """The shape of the bits, which broadcasts with x."""
        return x

    def hiddenShapeFrom(self, x):
        return [self.drawShape(x)]

    def hiddenTypeFrom(self, x):
        return [np.dtype(np.int32)]

    def updateData(self, x, key, count):
        shape = self.drawShape(x.shape)
        if not self.isTraining:
            return self.noisy(x, None), np.zeros_like(x, dtype=np.int32, shape=shape)
        draw = bits(shape, key, count)
        count += 1
        return self.noisy(x, draw), draw

    def updateGrad(self, grad, x, key, count, y, draw):
        draw = draw if self.isTraining else None
        return *derivedGrad(lambda x: self.noisy(x, draw), grad, (x,), (True,)), None, None


class RRelu(_Noise):
    """y = x if x > 0 else slope x, the slope uniform in (lower, upper) for each element; in evalMode their mean

    Shapes    x (any), draw as x, key (), count () -> y as x
    Source    Xu, Wang, Chen, Li 2015, arXiv:1505.00853, section 3.4
    Raises    ArgumentError unless lower <= upper
    """

    def __init__(self, lower: NotNegative = 1 / 8, upper: NotNegative = 1 / 3, name=None):
        super().__init__(name)
        if not lower <= upper:
            raise ArgumentError(f"RRelu: wanted lower <= upper, got {lower} and {upper}")
        self.lower, self.upper = lower, upper

    def noisy(self, x, draw):
        """y for random bits; without them for the mean slope."""
        if draw is None:
            return LEAKY(x, np.full_like(x, (self.lower + self.upper) / 2, shape=(1,) * x.ndim))
        slope = unit(draw) * (self.upper - self.lower) + self.lower
        return LEAKY(x, slope.astype(x.dtype))

    @classmethod
    def examples(cls):
        yield cls(), [(4, 5)]
        yield cls(0.1, 0.1), [(2, 3)]


class NoiseInjector(_Noise):
    """y = x + noise, or with mode "mul" x noise, noise uniform in (low, high) or normal; in evalMode y is x itself

    `params` is (low, high) of "uniform" noise, (mean, deviation) of "gaussian" noise.

    Shapes    x (any), draw as x, key (), count () -> y as x
    Source    Bishop 1995, Training with Noise is Equivalent to Tikhonov Regularization; PuzzleLib's NoiseInjector
    Raises    ArgumentError for other modes, or params that are no two numbers
    """

    def __init__(
        self,
        mode: Annotated[str, choice("add", "mul")] = "add",
        noisetype: Annotated[str, choice("uniform", "gaussian")] = "uniform",
        params: Items = (0.0, 1.0),
        name=None,
    ):
        super().__init__(name)
        if len(params) != 2 or not all(map(isNumber, params)):
            raise ArgumentError(f"NoiseInjector: wanted params as two numbers, got {params!r}")
        self.mode, self.noisetype, self.numbers = mode, noisetype, tuple(params)

    def noisy(self, x, draw):
        """y for random bits; without them x."""
        if draw is None:
            return x
        first, second = self.numbers
        u = unit(draw)
        noise = u * (second - first) + first if self.noisetype == "uniform" else QUANTILE(u) * second + first
        return x + noise.astype(x.dtype) if self.mode == "add" else x * noise.astype(x.dtype)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 5)]
        yield cls("mul", "gaussian", (1.0, 0.1)), [(2, 3)]


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
