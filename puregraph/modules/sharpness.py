"""Sharpness: images blurred or sharpened at random in trainMode, differently for each sample."""

from typing import Annotated

import numpy as np

from puregraph.core.arguments import Argument, Fraction, Items, isSpan, isWhole
from puregraph.core.errors import ArgumentError
from puregraph.modules.augmentation import _Augmentation, _OfRange

Odd = Annotated[int, Argument("an odd number of at least 1", lambda value: isWhole(value, 1) and value % 2 == 1)]


def smoothed(x, weights):
    """x convolved along height and width with an odd number of weights; beyond the ends are the last elements."""
    for axis in (2, 3):
        size, reach = x.shape[axis], len(weights) // 2
        ends = [[along(x, axis, k, k + 1)] * reach for k in (0, size - 1)]
        wide = np.concatenate([*ends[0], x, *ends[1]], axis=axis)
        x = sum(along(wide, axis, k, k + size) * weight for k, weight in enumerate(weights))
    return x


def along(x, axis, start, stop):
    """The elements from `start` to `stop` along an axis."""
    index = (slice(None),) * axis + (slice(start, stop),)
    return x[index]


def gaussian(size, sigma):
    """The weights of a Gaussian window, which add up to 1; `sigma` is a number or an array of them."""
    weights = [np.exp(-0.5 * ((k - size // 2) / sigma) ** 2) for k in range(size)]
    total = sum(weights)
    return [weight / total for weight in weights]


class RandomGaussianBlur(_Augmentation):
    """y = x convolved with a Gaussian of deviation s with probability `p`, else x; in evalMode y is x itself

    s is uniform within `sigma`. The window has `size` elements along height and width; beyond the ends are the last
    elements.

    Shapes    x (n, channels, height, width), draw (n, 2, 1, 1), key (), count () -> y as x
    Source    Chen et al. 2020, SimCLR, arXiv:2002.05709, appendix A; Keras' RandomGaussianBlur
    Raises    ArgumentError for an even size, a p outside of 0 to 1, or a sigma that is no two numbers above 0;
              ShapeError unless x has four axes, height and width at least 1
    """

    isFilled = True

    def __init__(self, size: Odd = 3, sigma: Items = (0.1, 1.0), p: Fraction = 1.0, name=None):
        super().__init__(name)
        if not isSpan(sigma) or not sigma[0] > 0:
            raise ArgumentError(f"RandomGaussianBlur: wanted sigma as two numbers (low, high) above 0, got {sigma!r}")
        self.size, self.sigma, self.p = size, tuple(sigma), p

    def drawShape(self, x):
        return (x[0], 2, 1, 1)

    def changed(self, x, u):
        """The images, of which u blurs some."""
        low, high = self.sigma
        y = smoothed(x, gaussian(self.size, low + (high - low) * u[:, :1]))
        return np.where(u[:, 1:] < self.p, y, x)

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(5, (1.0, 2.0), 0.5), [(3, 1, 2, 3)]


class RandomSharpness(_OfRange):
    """y = s + c (x - s) clipped to `range`, s the mean of 9 neighbours, x itself with weight 5; in evalMode y is x

    c is uniform in (1 - factor, 1 + factor): less than 1 blurs, more sharpens. Beyond the ends are the last elements.

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6, Sharpness; Keras' RandomSharpness
    Raises    ArgumentError for a factor outside of 0 to 1, or a range that is no two numbers; ShapeError unless x has
              four axes, height and width at least 1
    """

    isFilled = True

    def __init__(self, factor: Fraction = 0.5, range: Items = (0.0, 1.0), name=None):
        super().__init__(factor, range, name)

    def changed(self, x, u):
        """The images, sharper or softer by u."""
        low, high = self.range
        smooth = (smoothed(x, (1.0, 1.0, 1.0)) + 4 * x) / 13
        return np.clip(smooth + (x - smooth) * (1 + self.factor * (2 * u - 1)), low, high)
