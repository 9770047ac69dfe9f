"""Coloring: images whose colours change at random in trainMode, differently for each sample."""

import numpy as np

from puregraph.core.arguments import Fraction
from puregraph.core.errors import need
from puregraph.modules.augmentation import _Augmentation

GRAY = (0.2989, 0.587, 0.114)  # the luma of red, green and blue, ITU-R BT.601


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


class RandomSaturation(_Colored):
    """y = v - (v - x) min(s, v / (v - m)), s uniform in (1 - factor, 1 + factor), v and m the largest and least colour

    The saturation (v - m) / v of each element times s, at most 1; hue and v stay. Black is 0. In evalMode y is x.

    Shapes    x (n, 3, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Smith 1978, Color Gamut Transform Pairs, HSV; Howard 2013, arXiv:1312.5402, section 2.2; Keras'
              RandomSaturation
    Raises    ArgumentError for a factor outside of 0 to 1; ShapeError unless x has three channels
    """

    def changed(self, x, u):
        """The images, more or less saturated by u."""
        most, least = np.max(x, axis=1, keepdims=True), np.min(x, axis=1, keepdims=True)
        isGray = most == least
        greatest = np.maximum(most, 0) / np.where(isGray, 1, most - least)
        scale = np.minimum(1 + self.factor * (2 * u - 1), np.where(isGray, 0, greatest))
        return most - (most - x) * scale


class RandomHue(_Colored):
    """y is x with the hue of each element shifted by pi a, a uniform in (-factor, factor); in evalMode y is x itself

    With v and m the largest and least colour, and the hue h from 0 to 6, a colour is v - (v - m) max(0, min(k, 4 - k,
    1)), k = (h + 5, 3 or 1) modulo 6 for red, green and blue.

    Shapes    x (n, 3, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Smith 1978, Color Gamut Transform Pairs, HSV; Howard 2013, arXiv:1312.5402, section 2.2; Keras' RandomHue
    Raises    ArgumentError for a factor outside of 0 to 1; ShapeError unless x has three channels
    """

    def changed(self, x, u):
        """The images, their hue shifted by u."""
        red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
        most, least = np.max(x, axis=1, keepdims=True), np.min(x, axis=1, keepdims=True)
        gap = most - least
        width = np.where(gap > 0, gap, 1)
        isRed, isGreen = red == most, green == most
        hue = np.where(isRed, green - blue, np.where(isGreen, blue - red, red - green)) / width
        hue = hue + np.where(isRed, 0, np.where(isGreen, 2, 4)).astype(x.dtype) + 3 * self.factor * (2 * u - 1)
        angles = [np.remainder(hue + start, 6) for start in (5, 3, 1)]
        return np.concatenate([most - gap * np.clip(np.minimum(k, 4 - k), 0, 1) for k in angles], axis=1)
