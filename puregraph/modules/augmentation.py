"""Augmentation: images changed at random in trainMode, differently for each sample.

`puregraph.data.Augmented` mirrors and crops ahead of a network; these are modules of the network itself, so that they
run in a compiled step and are saved with it.
"""

from typing import Annotated, Any

import numpy as np

from puregraph.autodiff.derivatives.ruletape import derivedGrad
from puregraph.core.arguments import Argument, Fraction, Items, NotNegative, areWhole, choice, isSpan, isWhole
from puregraph.core.errors import ArgumentError, need
from puregraph.graph.module import Module
from puregraph.modules.dropout import _Noise, unit


def areBits(value):
    """True for a number of bits from 1 to 8, or two, the first not the larger."""
    isPair = isSpan(value) and areWhole(value, 1)
    return (isPair and value[1] <= 8) or (isWhole(value, 1) and value <= 8)


Bits = Annotated[Any, Argument("a whole number from 1 to 8, or two (low, high)", areBits)]


def spanOf(factor):
    """The bounds (low, high) of a factor; (-f, f) for a single number f."""
    return tuple(factor) if isinstance(factor, (tuple, list)) else (-abs(factor), abs(factor))


class _Augmentation(_Noise):
    """Base class: random bits `draw` for each sample; a subclass writes `changed`, of u uniform in (0, 1)."""

    isFilled = False  # True if no side of an image may be 0

    def dataShapeFrom(self, x):
        need(len(x) == 4, "images (n, channels, height, width)", x)
        need(not self.isFilled or 0 not in x[2:], "images (n, channels, height, width), no side 0", x)
        return x

    def drawShape(self, x):
        return (x[0], 1, 1, 1)

    def noisy(self, x, draw):
        """y for random bits; without them x."""
        return x if draw is None else self.changed(x, unit(draw).astype(x.dtype))

    def changed(self, x, u):
        """The images that numbers from 0 to 1 give."""
        raise NotImplementedError


def rangeOf(module, range):
    """The values of black and white as a tuple.

    Raises    ArgumentError unless they are two numbers, the smaller one first
    """
    if not isSpan(range) or range[0] == range[1]:
        wanted = "range as two numbers, the smaller one first"
        raise ArgumentError(f"{type(module).__name__}: wanted {wanted}, got {range!r}")
    return tuple(range)


class _OfRange(_Augmentation):
    """Base class of those that need to know the values of black and white, `range`."""

    def __init__(self, factor, range=(0.0, 1.0), name=None):
        super().__init__(name)
        self.factor, self.range = factor, rangeOf(self, range)

    @classmethod
    def examples(cls):
        yield cls(0.5), [(4, 3, 5, 2)]
        yield cls(0.3, (-1.0, 2.0)), [(3, 1, 2, 3)]


class RandomFlip(_Augmentation):
    """y = x mirrored with probability 1/2: left to right, top to bottom, or each by a chance of its own; x in evalMode

    Shapes    x (n, channels, height, width), draw (n, 2, 1, 1), key (), count () -> y as x
    Source    Krizhevsky, Sutskever, Hinton 2012, ImageNet Classification, section 4.1; Keras' RandomFlip
    Raises    ArgumentError for other modes; ShapeError unless x has four axes
    """

    def __init__(
        self,
        mode: Annotated[str, choice("horizontal", "vertical", "horizontal_and_vertical")] = "horizontal_and_vertical",
        name=None,
    ):
        super().__init__(name)
        self.mode = mode

    def drawShape(self, x):
        return (x[0], 2, 1, 1)

    def changed(self, x, u):
        """The images that u mirrors."""
        if self.mode != "vertical":
            x = np.where(u[:, :1] < 0.5, x[:, :, :, ::-1], x)
        return x if self.mode == "horizontal" else np.where(u[:, 1:] < 0.5, x[:, :, ::-1], x)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls("horizontal"), [(3, 1, 2, 3)]
        yield cls("vertical"), [(3, 2, 3, 3)]


class RandomBrightness(_OfRange):
    """y = x + (high - low) b clipped to `range` (low, high), b uniform in (-factor, factor); in evalMode y is x itself

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Howard 2013, arXiv:1312.5402, section 2.2; Keras' RandomBrightness
    Raises    ArgumentError for a factor outside of 0 to 1, or a range that is no two numbers; ShapeError unless x has
              four axes
    """

    def __init__(self, factor: Fraction = 0.2, range: Items = (0.0, 1.0), name=None):
        super().__init__(factor, range, name)

    def changed(self, x, u):
        """The images, brighter by a share of the range."""
        low, high = self.range
        return np.clip(x + (2 * u - 1) * (self.factor * (high - low)), low, high)


class RandomContrast(_OfRange):
    """y = m + c (x - m) clipped to `range`, m the mean of a channel; in evalMode y is x itself

    c is uniform in (1 - factor, 1 + factor), one number for each sample.

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Howard 2013, arXiv:1312.5402, section 2.2; Keras' RandomContrast
    Raises    ArgumentError for a factor outside of 0 to 1, or a range that is no two numbers; ShapeError unless x has
              four axes, height and width at least 1
    """

    isFilled = True

    def __init__(self, factor: Fraction = 0.2, range: Items = (0.0, 1.0), name=None):
        super().__init__(factor, range, name)

    def changed(self, x, u):
        """The images, further from the means of their channels, or nearer."""
        low, high = self.range
        mean = np.mean(x, axis=(2, 3), keepdims=True)
        return np.clip(mean + (x - mean) * (1 + self.factor * (2 * u - 1)), low, high)


class RandomInvert(_OfRange):
    """y = low + high - x with probability `factor`, else x; in evalMode y is x itself

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6; Keras' RandomInvert
    Raises    ArgumentError for a factor outside of 0 to 1, or a range that is no two numbers; ShapeError unless x has
              four axes
    """

    def __init__(self, factor: Fraction = 1.0, range: Items = (0.0, 1.0), name=None):
        super().__init__(factor, range, name)

    def changed(self, x, u):
        """The images, of which u inverts some."""
        return np.where(u < self.factor, sum(self.range) - x, x)


class Solarization(_OfRange):
    """y = x below `threshold`, low + high - x from there on, x with `addition` and clipped first; x in evalMode

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6; Keras' Solarization
    Raises    ArgumentError for a threshold that is negative, or a range that is no two numbers; ShapeError unless x has
              four axes
    """

    def __init__(self, addition: NotNegative = 0.0, threshold: NotNegative = 0.5, range: Items = (0.0, 1.0), name=None):
        super().__init__(addition, range, name)
        self.threshold = threshold

    def changed(self, x, u):
        """The images, their addition a random share of `addition`."""
        low, high = self.range
        x = np.clip(x + self.factor * u, low, high)
        return np.where(x < self.threshold, x, low + high - x)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(0.3, 0.25, (-1.0, 2.0)), [(3, 1, 2, 3)]


class RandomPosterization(_OfRange):
    """y = x in steps of 2^(8 - b) of the 255 between low and high of `range`, b within `bits`; in evalMode y is x

    The value from 0 to 255 is rounded to the nearest integer, of which the b highest of 8 bits are kept; `bits` is a
    number, or two (low, high), both of which occur. The gradient is 0.

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6, Posterize; Keras' RandomPosterization
    Raises    ArgumentError for bits outside of 1 to 8, or a range that is no two numbers; ShapeError unless x has four
              axes
    """

    def __init__(self, bits: Bits = (4, 8), range: Items = (0.0, 1.0), name=None):
        super().__init__(bits, range, name)

    def changed(self, x, u):
        """The images, with as many levels as u says."""
        low, high = self.range
        least, most = self.factor if isSpan(self.factor) else (self.factor, self.factor)
        count = np.floor(least + (most - least + 1) * u)
        step = np.floor(np.exp2(8 - count) + 0.5)  # exp2 may miss a power of 2 by its last bit
        value = np.floor((np.clip(x, low, high) - low) * (255 / (high - low)) + 0.5)
        return low + np.floor(value / step) * step * ((high - low) / 255)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(3, (-1.0, 2.0)), [(3, 1, 2, 3)]


class AutoContrast(Module):
    """y = low + (high - low) (x - m) / (M - m), m and M the least and largest element of a channel, in both modes

    low and high are those of `range`. A channel of one value stays as it is.

    Shapes    x (n, channels, height, width) -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6; Keras' AutoContrast
    Raises    ArgumentError for a range that is no two numbers; ShapeError unless x has four axes, height and width at
              least 1
    """

    reads = ("x",)
    needsFloats = True

    def __init__(self, range: Items = (0.0, 1.0), name=None):
        super().__init__(name)
        self.range = rangeOf(self, range)

    def dataShapeFrom(self, x):
        need(len(x) == 4 and 0 not in x[2:], "images (n, channels, height, width), no side 0", x)
        return x

    def updateData(self, x):
        low, high = self.range
        least, most = np.min(x, axis=(2, 3), keepdims=True), np.max(x, axis=(2, 3), keepdims=True)
        isFlat = least == most
        y = (x - least) / np.where(isFlat, 1, most - least) * (high - low) + low
        return np.where(isFlat, x, y)

    def updateGrad(self, grad, x, y):
        return derivedGrad(self.updateData, grad, (x,), (True,))

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls((-1.0, 2.0)), [(3, 1, 2, 3)]
