"""Augmentation: images changed at random in trainMode, differently for each sample.

`puregraph.data.Augmented` mirrors and crops ahead of a network; these are modules of the network itself, so that they
run in a compiled step and are saved with it.
"""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Fraction, Items, NotNegative, choice, isNumber
from puregraph.core.errors import ArgumentError, need
from puregraph.modules.dropout import _Noise, unit

GRAY = (0.2989, 0.587, 0.114)  # the luma of red, green and blue, ITU-R BT.601


class _Augmentation(_Noise):
    """Base class: random bits `draw` for each sample; a subclass writes `changed`, of u uniform in (0, 1)."""

    def dataShapeFrom(self, x):
        need(len(x) == 4, "images (n, channels, height, width)", x)
        return x

    def drawShape(self, x):
        return (x[0], 1, 1, 1)

    def noisy(self, x, draw):
        """y for random bits; without them x."""
        return x if draw is None else self.changed(x, unit(draw).astype(x.dtype))

    def changed(self, x, u):
        """The images that numbers from 0 to 1 give."""
        raise NotImplementedError


class _OfRange(_Augmentation):
    """Base class of those that need to know the values of black and white, `range`."""

    def __init__(self, factor, range=(0.0, 1.0), name=None):
        super().__init__(name)
        if len(range) != 2 or not all(map(isNumber, range)) or not range[0] < range[1]:
            raise ArgumentError(
                f"{type(self).__name__}: wanted range as two numbers, the smaller one first, got {range!r}"
            )
        self.factor, self.range = factor, tuple(range)

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

    def __init__(self, factor: Fraction = 0.2, range: Items = (0.0, 1.0), name=None):
        super().__init__(factor, range, name)

    def dataShapeFrom(self, x):
        need(len(x) == 4 and 0 not in x[2:], "images (n, channels, height, width), no side 0", x)
        return x

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


class _Colored(_Augmentation):
    """Base class of those that need red, green and blue."""

    def __init__(self, factor: Fraction = 0.5, name=None):
        super().__init__(name)
        self.factor = factor

    def dataShapeFrom(self, x):
        need(len(x) == 4 and x[1] == 3, "images (n, 3, height, width)", x)
        return x

    def gray(self, x):
        """The luma of each element, (n, 1, height, width)."""
        red, green, blue = GRAY
        return red * x[:, :1] + green * x[:, 1:2] + blue * x[:, 2:]

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(1.0), [(3, 3, 2, 3)]


class RandomGrayscale(_Colored):
    """y = 0.2989 red + 0.587 green + 0.114 blue for all three channels with probability `factor`, else x; x in evalMode

    Shapes    x (n, 3, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    ITU-R BT.601, luma; Chen et al. 2020, SimCLR, arXiv:2002.05709, appendix A; Keras' RandomGrayscale
    Raises    ArgumentError for a factor outside of 0 to 1; ShapeError unless x has three channels
    """

    def changed(self, x, u):
        """The images, of which u makes some gray."""
        return np.where(u < self.factor, self.gray(x), x)


class RandomColorDegeneration(_Colored):
    """y = x + s (gray - x), s uniform in (0, factor), gray as RandomGrayscale's; in evalMode y is x itself

    Shapes    x (n, 3, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6, Color; Keras' RandomColorDegeneration
    Raises    ArgumentError for a factor outside of 0 to 1; ShapeError unless x has three channels
    """

    def changed(self, x, u):
        """The images, less saturated by u."""
        return x + (self.gray(x) - x) * (self.factor * u)
