"""Warping: images sampled in trainMode at positions that a random map moves, another one for each sample."""

from math import ceil
from typing import Annotated, Any

import numpy as np

from puregraph.core.arguments import Argument, Fraction, NotNegative, Number, Positive, Span, choice, isNumber
from puregraph.core.base.widen import widen
from puregraph.core.errors import ArgumentError
from puregraph.core.tracer import arrayLike
from puregraph.modules.augmentation import _Augmentation, spanOf
from puregraph.modules.dropout import unit
from puregraph.modules.gridsample import weighedRows
from puregraph.modules.sharpness import gaussian, smoothed

PADDINGS = ("symmetric", "edge", "wrap", "constant")  # as numpy's pad calls them
Padding = Annotated[str, choice(*PADDINGS)]
Mode = Annotated[str, choice("linear", "nearest")]
Scale = Annotated[float, Argument("a number with 0 <= scale < 0.5", lambda v: isNumber(v) and 0 <= v < 0.5)]


class _Warp(_Augmentation):
    """Base class: y at (row, column) is x at `positions` of them, which a subclass writes.

    Rows and columns are counted in elements from the centre of the image. Between elements values are linear, or with
    `mode` "nearest" those of the nearest element. Beyond the ends the image is mirrored, its last elements included,
    or continued as `padding` says; "constant" has `value` there.
    """

    isFilled = True
    numbers = 2  # random numbers for each sample

    def __init__(self, padding: Padding = "symmetric", mode: Mode = "linear", value: Number = 0.0, name=None):
        super().__init__(name)
        self.padding, self.mode, self.value = padding, mode, value

    def drawShape(self, x):
        return (x[0], self.numbers, 1, 1)

    def noisy(self, x, draw):
        """y for random bits; without them x."""
        if draw is None:
            return x
        wide = widen(x)
        return self.changed(wide, unit(draw).astype(wide.dtype)).astype(x.dtype, copy=False)

    def changed(self, x, u):
        """The images that numbers from 0 to 1 give."""
        height, width = x.shape[2:]
        middle = [(size - 1) / 2 for size in (height, width)]
        rows = arrayLike(u, np.arange(height).reshape(1, height, 1) - middle[0]).astype(u.dtype)
        columns = arrayLike(u, np.arange(width).reshape(1, 1, width) - middle[1]).astype(u.dtype)
        row, column = self.positions(u, rows, columns, height, width)
        return self.sampled(x, row + middle[0], column + middle[1])

    def positions(self, u, row, column, height, width):
        """The positions (n, height, width) that u moves (row, column) to: what is read for an element there."""
        raise NotImplementedError

    def sampled(self, x, row, column):
        """x at positions in elements from the first one."""
        n, channels, height, width = x.shape
        table = np.moveaxis(x, 1, -1).reshape(n * height * width, channels)
        first = arrayLike(row, np.arange(n).reshape(n, 1, 1) * (height * width))
        y: Any = 0.0
        inside: Any = 0.0
        for i, rowWeight in self.taps(row):
            i, isRow = self.within(i, height)
            for j, columnWeight in self.taps(column):
                j, isColumn = self.within(j, width)
                index, weight = first + i * width + j, rowWeight * columnWeight
                if self.padding == "constant":
                    index, there = np.where(isRow & isColumn, index, -1), (isRow & isColumn).astype(weight.dtype)
                    inside = inside + weight * there
                y = y + weighedRows(table, index, weight[..., None])
        if self.padding == "constant" and self.value:
            y = y + self.value * (1 - inside)[..., None]
        return np.moveaxis(y, -1, 1)

    def taps(self, position):
        """Pairs of the elements beside a position and their weights."""
        if self.mode == "nearest":
            return [(np.floor(position + 0.5), np.ones_like(position))]
        low = np.floor(position)
        return [(low, 1 - (position - low)), (low + 1, position - low)]

    def within(self, i, size):
        """The element that stands for element i of an axis, as an integer, and whether i is on the axis."""
        inside = (i >= 0) & (i <= size - 1)
        if self.padding == "wrap":
            i = np.remainder(i, size)
        elif self.padding == "symmetric":
            i = np.remainder(i, 2 * size)
            i = np.minimum(i, 2 * size - 1 - i)
        return np.clip(i, 0, size - 1).astype(np.int64), inside

    @classmethod
    def examples(cls):
        yield cls(), [(4, 3, 5, 2)]
        yield cls(padding="constant", value=0.5), [(3, 1, 4, 3)]
        yield cls(padding="edge", mode="nearest"), [(2, 2, 3, 4)]
        yield cls(padding="wrap"), [(2, 1, 3, 3)]


class _OfSides(_Warp):
    """Base class of maps with a factor for the height and one for the width."""

    def __init__(
        self,
        height: Span = 0.2,
        width: Span = 0.2,
        padding: Padding = "symmetric",
        mode: Mode = "linear",
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(padding, mode, value, name)
        self.height, self.width = spanOf(height), spanOf(width)

    def drawn(self, u):
        """A number of each span, (n, 1, 1)."""
        return [low + (high - low) * u[:, k] for k, (low, high) in enumerate((self.height, self.width))]


class RandomTranslation(_OfSides):
    """y[r, c] = x[r - a height, c - b width], a and b uniform within `height` and `width`; in evalMode y is x itself

    A span is (low, high), or f for (-f, f). Beyond the ends x is mirrored, or as `padding` says: "edge", "wrap", or
    "constant" with `value`. `mode` "nearest" reads the nearest element, else values are linear between elements.

    Shapes    x (n, channels, height, width), draw (n, 2, 1, 1), key (), count () -> y as x
    Source    Krizhevsky, Sutskever, Hinton 2012, ImageNet Classification, section 4.1; Keras' RandomTranslation
    Raises    ArgumentError for other modes, or spans that are no numbers; ShapeError unless x has four axes, height and
              width at least 1
    """

    def positions(self, u, row, column, height, width):
        a, b = self.drawn(u)
        return row - a * height + 0 * column, column - b * width + 0 * row


class RandomZoom(_OfSides):
    """y[r, c] = x[(1 + a) r, (1 + b) c] from the centre, a and b uniform within `height` and `width`; x in evalMode

    A positive number makes what is seen smaller. Without `width` b is a. Options are those of RandomTranslation.

    Shapes    x (n, channels, height, width), draw (n, 2, 1, 1), key (), count () -> y as x
    Source    Szegedy et al. 2015, arXiv:1409.4842, section 6, scale augmentation; Keras' RandomZoom
    Raises    ArgumentError for other modes, or spans that are no numbers above -1; ShapeError unless x has four axes,
              height and width at least 1
    """

    def __init__(
        self,
        height: Span = 0.2,
        width: Span | None = None,
        padding: Padding = "symmetric",
        mode: Mode = "linear",
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(height, height if width is None else width, padding, mode, value, name)
        self.numbers = 1 if width is None else 2
        if min(self.height[0], self.width[0]) <= -1:
            raise ArgumentError(f"RandomZoom: wanted spans above -1, got {self.height} and {self.width}")

    def positions(self, u, row, column, height, width):
        a, b = self.drawn(u if self.numbers == 2 else np.concatenate([u, u], axis=1))
        return (1 + a) * row + 0 * column, (1 + b) * column + 0 * row

    @classmethod
    def examples(cls):
        yield from super().examples()
        yield cls(0.3, (-0.5, 0.1)), [(3, 2, 4, 5)]


class RandomShear(_OfSides):
    """y[r, c] = x[r + a c, c + b r] from the centre, a and b uniform within `height` and `width`; x in evalMode

    Options are those of RandomTranslation.

    Shapes    x (n, channels, height, width), draw (n, 2, 1, 1), key (), count () -> y as x
    Source    Cubuk et al. 2019, AutoAugment, arXiv:1805.09501, table 6, ShearX and ShearY; Keras' RandomShear
    Raises    ArgumentError for other modes, or spans that are no numbers; ShapeError unless x has four axes, height and
              width at least 1
    """

    def positions(self, u, row, column, height, width):
        a, b = self.drawn(u)
        return row + a * column, column + b * row


class RandomRotation(_Warp):
    """y[r, c] = x[r cos t + c sin t, c cos t - r sin t] from the centre, t = 2 pi a, a uniform within `factor`

    The image is rotated counter-clockwise by t; in evalMode y is x itself. Options are those of RandomTranslation.

    Shapes    x (n, channels, height, width), draw (n, 1, 1, 1), key (), count () -> y as x
    Source    Simard, Steinkraus, Platt 2003, Best Practices for Convolutional Neural Networks, section 2; Keras'
              RandomRotation
    Raises    ArgumentError for other modes, or a span that is no number; ShapeError unless x has four axes, height and
              width at least 1
    """

    numbers = 1

    def __init__(
        self,
        factor: Span = 0.05,
        padding: Padding = "symmetric",
        mode: Mode = "linear",
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(padding, mode, value, name)
        self.factor = spanOf(factor)

    def positions(self, u, row, column, height, width):
        low, high = self.factor
        angle = 2 * np.pi * (low + (high - low) * u[:, 0])
        sine, cosine = np.sin(angle), np.cos(angle)
        return sine * column + cosine * row, cosine * column - sine * row


class RandomPerspective(_Warp):
    """y shows the part of x between four points that its corners are moved to, with probability `p`; x in evalMode

    Both coordinates of a corner move by up to `scale` / 2 of the side, inwards or outwards, so that the four stay
    convex. Options are those of RandomTranslation.

    Shapes    x (n, channels, height, width), draw (n, 9, 1, 1), key (), count () -> y as x
    Source    Heckbert 1989, Fundamentals of Texture Mapping and Image Warping, section 2.2.3, square to quadrilateral;
              Keras' RandomPerspective
    Raises    ArgumentError for other modes, a p outside of 0 to 1, or unless 0 <= scale < 0.5; ShapeError unless x has
              four axes, height and width at least 1
    """

    numbers = 9

    def __init__(
        self,
        p: Fraction = 1.0,
        scale: Scale = 0.3,
        padding: Padding = "symmetric",
        mode: Mode = "linear",
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(padding, mode, value, name)
        self.p, self.scale = p, scale

    def positions(self, u, row, column, height, width):
        moves = [np.where(u[:, 8] < self.p, self.scale * (u[:, k] - 0.5), 0) for k in range(8)]
        corners = ((0, 0), (1, 0), (1, 1), (0, 1))
        xs, ys = ([corner[side] + moves[2 * k + side] for k, corner in enumerate(corners)] for side in (0, 1))
        tall, wide = max(height - 1, 1), max(width - 1, 1)
        x, y = projected(xs, ys, column / wide + 0.5, row / tall + 0.5)
        return (y - 0.5) * tall, (x - 0.5) * wide


def projected(xs, ys, a, b):
    """(x, y) to which the projective map of the unit square to four points takes (a, b)."""
    (x0, x1, x2, x3), (y0, y1, y2, y3) = xs, ys
    sumX, sumY = x0 - x1 + x2 - x3, y0 - y1 + y2 - y3
    area = (x1 - x2) * (y3 - y2) - (x3 - x2) * (y1 - y2)
    g = (sumX * (y3 - y2) - (x3 - x2) * sumY) / area
    h = ((x1 - x2) * sumY - sumX * (y1 - y2)) / area
    divisor = 1 + g * a + h * b
    x = ((x1 - x0 + g * x1) * a + (x3 - x0 + h * x3) * b + x0) / divisor
    return x, ((y1 - y0 + g * y1) * a + (y3 - y0 + h * y3) * b + y0) / divisor


class RandomElasticTransform(_Warp):
    """y[r, c] = x[r + a, c + b], a and b smooth fields of random numbers, each in elements; in evalMode y is x itself

    Both are `alpha` times numbers uniform in (-1, 1) that are convolved with a Gaussian of deviation `sigma`. Options
    are those of RandomTranslation.

    Shapes    x (n, channels, height, width), draw (n, 2, height, width), key (), count () -> y as x
    Source    Simard, Steinkraus, Platt 2003, Best Practices for Convolutional Neural Networks, section 2; Keras'
              RandomElasticTransform
    Raises    ArgumentError for other modes, a negative alpha, or a sigma not above 0; ShapeError unless x has four
              axes, height and width at least 1
    """

    def __init__(
        self,
        alpha: NotNegative = 34.0,
        sigma: Positive = 4.0,
        padding: Padding = "symmetric",
        mode: Mode = "linear",
        value: Number = 0.0,
        name=None,
    ):
        super().__init__(padding, mode, value, name)
        self.alpha, self.sigma = alpha, sigma

    def drawShape(self, x):
        return (x[0], 2, *x[2:])

    def positions(self, u, row, column, height, width):
        moves = self.alpha * smoothed(2 * u - 1, gaussian(2 * ceil(3 * self.sigma) + 1, self.sigma))
        return row + moves[:, 0], column + moves[:, 1]

    @classmethod
    def examples(cls):
        yield from super().examples()
        yield cls(3.0, 0.5), [(3, 2, 4, 5)]
