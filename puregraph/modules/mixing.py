"""Mixing: samples of a batch joined in trainMode, with their targets, and rectangles that are left out."""

from typing import Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Fraction, Items, Number, Positive, isSpan
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError, need
from puregraph.core.param import State
from puregraph.core.tracer import arrayLike
from puregraph.graph.module import Module
from puregraph.modules.augmentation import _Augmentation
from puregraph.modules.dropout import bits, drawKey, unit


def rectangles(sides, corner, height, width):
    """Masks (n, 1, height, width) of rectangles, their sides shares of the image, their corners of the rest."""
    inside: Any = True
    for axis, (size, share, start) in enumerate(zip((height, width), sides, corner)):
        position = np.arange(size).reshape((1, 1, size, 1) if axis == 0 else (1, 1, 1, size))
        first = start * (1 - share) * size
        pixel = arrayLike(first, position).astype(first.dtype)
        inside = inside & (pixel >= first) & (pixel < first + share * size)
    return inside


class RandomErasing(_Augmentation):
    """y = value in a rectangle of each sample with probability `p`, elsewhere x; in evalMode y is x itself

    Its area is a share of the image that is uniform within `area`, its height over its width uniform within `aspect`,
    its position uniform where it fits; sides longer than the image are cut.

    Shapes    x (n, channels, height, width), draw (n, 5, 1, 1), key (), count () -> y as x
    Source    Zhong, Zheng, Kang, Li, Yang 2017, arXiv:1708.04896, algorithm 1; Keras' RandomErasing
    Raises    ArgumentError for a p outside of 0 to 1, an area that is no two numbers from 0 to 1, or an aspect that is
              no two numbers above 0; ShapeError unless x has four axes, height and width at least 1
    """

    isFilled = True

    def __init__(
        self,
        p: Fraction = 1.0,
        area: Items = (0.02, 0.33),
        aspect: Items = (0.3, 3.3),
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(name)
        if not isSpan(area) or not 0 <= area[0] or not area[1] <= 1:
            raise ArgumentError(f"RandomErasing: wanted area as two numbers (low, high) from 0 to 1, got {area!r}")
        if not isSpan(aspect) or not aspect[0] > 0:
            raise ArgumentError(f"RandomErasing: wanted aspect as two numbers (low, high) above 0, got {aspect!r}")
        self.p, self.area, self.aspect, self.value = p, tuple(area), tuple(aspect), value

    def drawShape(self, x):
        return (x[0], 5, 1, 1)

    def changed(self, x, u):
        """The images, each without a rectangle."""
        height, width = x.shape[2:]
        area, aspect = (low + (high - low) * u[:, k : k + 1] for k, (low, high) in enumerate((self.area, self.aspect)))
        longer = width / max(height, 1)
        sides = [np.minimum(np.sqrt(area * ratio), 1) for ratio in (aspect * longer, 1 / (aspect * longer))]
        erased = rectangles(sides, (u[:, 2:3], u[:, 3:4]), height, width) & (u[:, 4:] < self.p)
        return np.where(erased, self.value, x)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(0.5, (0.1, 0.9), (0.5, 2.0), 1.0), [(3, 1, 2, 3)]


class _Mixing(Module):
    """Base class: a sample is mixed with the one before it in the batch, the first one with the last.

    The share s of the sample itself is of the distribution Beta(alpha, alpha), from four numbers u uniform in (0, 1):
    logit s = 2 artanh z + (log u1 - log u2) / alpha, z = sqrt(1 - u3^(2 / (2 alpha + 1))) cos(2 pi u4): a ratio of two
    gamma variables of order alpha is one of order alpha + 1, times powers of u.
    """

    reads = ("x", "target", "draw")
    needsFloats = True
    hidden = ("draw",)
    draws = "count"
    outputNames = ("y", "mixed")
    numbers = 4

    def __init__(self, alpha: Positive, name=None):
        super().__init__(name)
        self.alpha = alpha
        self.key = State((), drawKey, np.uint64)
        self.count = State((), dtype=np.int64)

    def dataShapeFrom(self, x, target):
        need(len(x) >= 1, "x (n, ...)", x)
        need(target[:1] == x[:1], f"targets ({x[0]}, ...), such as classes by OneHot", target)
        return [x, target]

    def dataTypeFrom(self, x, target):
        super().dataTypeFrom(x, target)
        return [x, target]

    def hiddenShapeFrom(self, x, target):
        return [(x[0], self.numbers)]

    def hiddenTypeFrom(self, x, target):
        return [np.dtype(np.int32)]

    def numbersOf(self, x, draw):
        """The numbers between 0 and 1 that random bits stand for, in the dtype of x, at least float32."""
        return unit(draw).astype(widen(x).dtype)

    def share(self, u):
        """The share of the sample itself, (n, 1)."""
        z = np.sqrt(1 - u[:, 2:3] ** (2 / (2 * self.alpha + 1))) * np.cos(2 * np.pi * u[:, 3:4])
        logit = np.log((1 + z) / (1 - z)) + (np.log(u[:, :1]) - np.log(u[:, 1:2])) / self.alpha
        return 1 / (1 + np.exp(-np.clip(logit, -80, 80)))

    def mixed(self, x, target, u):
        """The samples and targets that numbers from 0 to 1 give."""
        raise NotImplementedError

    def blend(self, x, share):
        """share x + (1 - share) of the sample before."""
        share = share.reshape(len(share), *[1] * (x.ndim - 1)).astype(x.dtype)
        return x * share + self.before(x) * (1 - share)

    def before(self, x):
        """Each sample's partner."""
        return np.concatenate([x[max(len(x) - 1, 0) :], x[: max(len(x) - 1, 0)]], axis=0)

    def updateData(self, x, target, key, count):
        shape = (x.shape[0], self.numbers)
        if not self.isTraining:
            return x, target, np.zeros_like(x, dtype=np.int32, shape=shape)
        draw = bits(shape, key, count)
        count += 1
        return *self.mixed(x, target, self.numbersOf(x, draw)), draw

    def updateGrad(self, grad, x, target, key, count, y, mixedTarget, draw):
        if not self.isTraining:
            return *grad, None, None
        u = self.numbersOf(x, draw)
        return *derivedGrad(lambda x, t: self.mixed(x, t, u), grad, (x, target), (True, True)), None, None


class MixUp(_Mixing):
    """y = s x + (1 - s) x', target s target + (1 - s) target', x' the sample before, s of Beta(alpha, alpha)

    The sample before the first one is the last. Targets are numbers: classes become such by OneHot. In evalMode both
    stay as they are.

    Shapes    x (n, ...), target (n, ...), draw (n, 4), key (), count () -> y as x, mixed as target
    Source    Zhang, Cisse, Dauphin, Lopez-Paz 2017, arXiv:1710.09412, eq. 1; shares: Ulrich 1984, Computer Generation
              of Distributions on the m-Sphere; Keras' MixUp
    Raises    ArgumentError for an alpha not above 0; ShapeError if x and target have other numbers of samples
    """

    def __init__(self, alpha: Positive = 0.2, name=None):
        super().__init__(alpha, name)

    def mixed(self, x, target, u):
        share = self.share(u)
        return self.blend(x, share), self.blend(target, share)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5), (4, 2)]
        yield cls(1.0), [(3, 2), (3,)]


class CutMix(_Mixing):
    """y = x' in a rectangle and x elsewhere, target s target + (1 - s) target', x' the sample before

    The sides of the rectangle are sqrt(1 - b) of the image's, b of Beta(alpha, alpha), its position uniform where it
    fits, and s the share of elements outside. The sample before the first one is the last. In evalMode both stay as
    they are.

    Shapes    x (n, channels, height, width), target (n, ...), draw (n, 6), key (), count () -> y as x, mixed as target
    Source    Yun, Han, Oh, Chun, Choe, Yoo 2019, arXiv:1905.04899, eq. 1 and 2; Keras' CutMix
    Raises    ArgumentError for an alpha not above 0; ShapeError unless x has four axes, height and width at least 1, or
              if x and target have other numbers of samples
    """

    numbers = 6

    def __init__(self, alpha: Positive = 1.0, name=None):
        super().__init__(alpha, name)

    def dataShapeFrom(self, x, target):
        need(len(x) == 4 and 0 not in x[2:], "images (n, channels, height, width), no side 0", x)
        return super().dataShapeFrom(x, target)

    def mixed(self, x, target, u):
        u4 = u.reshape(len(u), self.numbers, 1, 1)
        side = np.sqrt(1 - self.share(u)).reshape(len(u), 1, 1, 1)
        cut = rectangles((side, side), (u4[:, 4:5], u4[:, 5:6]), *x.shape[2:])
        outside = 1 - np.mean(cut.astype(u.dtype), axis=(1, 2, 3))
        return np.where(cut, self.before(x), x), self.blend(target, outside)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2), (4, 2)]
        yield cls(0.3), [(3, 1, 2, 3), (3,)]
