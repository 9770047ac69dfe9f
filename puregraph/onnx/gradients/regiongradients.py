"""RegionGradients: gradients of RoiAlign and RoiPool, by a Loop over the regions that adds to the pictures' gradient.

That gradient is a table with a row for each position of each picture and a column for each channel. A region adds to
rows, or to elements of rows, by index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puregraph.core.base.widen import isNarrow
from puregraph.modules.detection import RoiAlign, RoiPool
from puregraph.onnx.gradients.gradientcall import GradientCall
from puregraph.onnx.gradients.gradientregistry import writesGradient
from puregraph.onnx.onnxwriter import End, OnnxStep, kindOf

WHOLE, EXACT = np.dtype(np.int64), np.dtype(np.float64)


class RegionGradient(GradientCall):
    """The gradient of regions of pictures `x` (n, c, h, w); `sizes` are h and w, `real` is the dtype of the sums."""

    def __init__(self, step: OnnxStep):
        super().__init__(step)
        self.real = np.dtype(np.float32) if isNarrow(self.dtype) else self.dtype
        self.x = self.floating(self.values[0])
        xShape = self.op("Shape", self.x)
        self.sizes = [self.op("Gather", xShape, self.number(axis, WHOLE)) for axis in (2, 3)]
        samples, channels = (self.op("Gather", xShape, self.step.whole(axis)) for axis in (0, 1))
        self.area = self.op("Mul", *self.sizes)
        self.shape, self.channels = (
            self.op("Concat", samples, self.op("Shape", self.x, start=2), channels, axis=0),
            channels,
        )
        self.rows = self.op("Concat", self.op("Mul", samples, self.area), channels, axis=0)

    def floating(self, x: Any) -> str:
        """A value, cast to the dtype of the sums."""
        return str(x) if self.real == self.dtype else self.cast(x, self.real)

    def table(self, x: str) -> str:
        """Pictures as rows of channels, one for each position."""
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 3, 1]), self.rows)

    def sumOfRegions(self, write: Callable[[Any, str, str, str], str]) -> str:
        """The gradient of x; `write` adds the gradient of one region, from the gradient of its parts (parts, c)."""
        body = self.inside()
        r, on, total = (self.step.writer.unique(f"{self.step.path}:{name}") for name in ("region", "on", "total"))
        grad = body.op("Transpose", body.floating(body.op("Gather", self.grad, r)), perm=[1, 2, 0])
        grad = body.op("Reshape", grad, body.op("Concat", body.step.whole(-1), self.channels, axis=0))
        outputs = [body.op("Identity", on), write(body, r, grad, total)]
        ends = [End(r, WHOLE, ()), End(on, bool, ()), End(total, self.real, (None, None))]
        graph = body.step.writer.attribute(ends, [end._replace(name=y) for end, y in zip(ends[1:], outputs)], "region")
        count = self.op("Gather", self.op("Shape", self.values[1]), self.number(0, WHOLE))
        zeros = self.op("Expand", self.number(0, self.real), self.rows)
        gradient = self.op("Loop", count, self.number(True, bool), zeros, body=graph)
        gradient = self.op("Transpose", self.op("Reshape", gradient, self.shape), perm=[0, 3, 1, 2])
        return gradient if self.real == self.dtype else self.cast(gradient, self.dtype)

    def firstRow(self, sample: str) -> str:
        """The row of the first element of a sample."""
        return self.op("Mul", self.cast(sample, WHOLE), self.area)

    def added(self, total: str, index: str, updates: str) -> str:
        """The table with updates (parts, c) added, each to the row that the index (parts, c) has for its column."""
        return self.op("ScatterElements", total, index, updates, axis=0, reduction="add")

    def axes(self, x: str, *where: int) -> str:
        """A value with axes of length one inserted."""
        return self.op("Unsqueeze", x, self.step.whole(*where))


# RoiAlign -------------------------------------------------------------------------------------------------------------


@writesGradient(RoiAlign, forAnySize=True)
def aligned(step: OnnxStep) -> tuple:
    """Each gradient times the weights of the elements that its points have read."""
    g = RegionGradient(step)
    rows = g.table(g.x) if g.module.mode == "max" else ""

    def region(b: RegionGradient, r: str, grad: str, total: str) -> str:
        index, weight = taps(b, b.cast(b.op("Gather", b.values[1], r), EXACT))
        index = b.op("Add", index, b.firstRow(b.op("Gather", b.values[2], r)))
        if b.module.mode == "max":
            return largest(b, rows, index, weight, grad, total)
        points = b.cast(b.op("Gather", b.op("Shape", index), b.number(1, WHOLE)), b.real)
        weight = b.op("Div", weight, b.op("Div", points, b.number(4, b.real)))
        updates = b.op("Mul", b.axes(grad, 1), b.axes(weight, 2))
        updates = b.op("Reshape", updates, b.op("Concat", b.step.whole(-1), b.channels, axis=0))
        at = b.op("Reshape", index, b.step.whole(-1, 1))
        return b.op("ScatterND", total, at, updates, reduction="add")

    return g.sumOfRegions(region), None, None


def largest(b: RegionGradient, rows: str, index: str, weight: str, grad: str, total: str) -> str:
    """Add the gradient of each part at the largest of its weighted elements."""
    read = b.op("Mul", b.op("Gather", rows, index), b.axes(weight, 2))
    best = b.op("ArgMax", read, axis=1)
    like = b.op("Shape", read)
    at, share = (b.op("GatherElements", b.op("Expand", b.axes(x, 2), like), best, axis=1) for x in (index, weight))
    at, share = (b.op("Squeeze", x, b.step.whole(1)) for x in (at, share))
    return b.added(total, at, b.op("Mul", grad, share))


def taps(b: RegionGradient, region: str) -> tuple[str, str]:
    """(indices, weights) of the elements that the points of each part read, both (parts, 4 points).

    A part without points gets one of weight 0.
    """
    (iy, wy), (ix, wx) = (axisTaps(b, axis, count, region) for axis, count in enumerate(b.module.size))
    (iy, wy), (ix, wx) = [b.axes(x, 1, 3, 5) for x in (iy, wy)], [b.axes(x, 0, 2, 4) for x in (ix, wx)]
    index = b.op("Add", b.op("Mul", iy, b.sizes[1]), ix)
    flat = b.step.whole(int(np.prod(b.module.size)), -1)
    return b.op("Reshape", index, flat), b.op("Reshape", b.cast(b.op("Mul", wy, wx), b.real), flat)


def axisTaps(b: RegionGradient, axis: int, count: int, region: str) -> tuple[str, str]:
    """(indices, weights), each (count, samples, 2), of the elements around the points along an axis."""
    m, exact = b.module, lambda value: b.number(value, EXACT)
    low, high = (
        b.op("Sub", b.op("Mul", b.op("Gather", region, b.number(i, WHOLE)), exact(m.scale)), exact(m.isCentred / 2))
        for i in (1 - axis, 3 - axis)
    )
    length = b.op("Sub", high, low)
    length = length if m.isCentred else b.op("Max", length, exact(1))
    size = b.op("Div", length, exact(count))
    samples = b.number(m.samples, WHOLE) if m.samples else b.cast(b.op("Ceil", size), WHOLE)
    isAny = b.cast(b.op("Greater", samples, b.number(0, WHOLE)), EXACT)
    samples = b.op("Max", samples, b.number(1, WHOLE))
    positions = b.op("Range", b.number(0, WHOLE), b.op("Mul", samples, b.number(count, WHOLE)), b.number(1, WHOLE))
    points = b.op("Div", b.op("Add", b.cast(positions, EXACT), exact(0.5)), b.cast(samples, EXACT))
    p = b.op("Add", low, b.op("Mul", size, points))
    n = b.sizes[axis]
    last, one = b.op("Sub", n, b.number(1, WHOLE)), b.number(1, WHOLE)
    isOut = b.op("Or", b.op("Less", p, exact(-1)), b.op("Greater", p, b.cast(n, EXACT)))
    p = b.op("Min", b.op("Max", p, exact(0)), b.cast(last, EXACT))
    first = b.op("Min", b.cast(p, WHOLE), last)
    second = b.op("Min", b.op("Add", first, one), last)
    t = b.op("Where", b.op("Less", first, last), b.op("Sub", p, b.cast(first, EXACT)), exact(0))
    isRead = b.op("Where", isOut, exact(0), isAny)
    weights = [b.op("Mul", isRead, w) for w in (b.op("Sub", exact(1), t), t)]
    pairs = [b.op("Concat", *(b.axes(x, 1) for x in both), axis=1) for both in ((first, second), weights)]
    index, weight = (b.op("Reshape", x, b.step.whole(count, -1, 2)) for x in pairs)
    return index, weight


# RoiPool --------------------------------------------------------------------------------------------------------------


@writesGradient(RoiPool, forAnySize=True)
def pooled(step: OnnxStep) -> tuple:
    """Add the gradient of each part at its first maximum: the first element of the first row that has it."""
    g = RegionGradient(step)

    def region(b: RegionGradient, r: str, grad: str, total: str) -> str:
        ends = b.op("Gather", b.values[1], r)
        sample = b.cast(b.op("Gather", ends, b.number(0, WHOLE)), WHOLE)
        (down, top), (along, left) = (part(b, axis, count, ends) for axis, count in enumerate(b.module.size))
        x = b.op("Gather", b.x, sample)
        columns, best = maxima(b, b.axes(x, 2), along, left)
        rows, _ = maxima(b, b.axes(b.op("Transpose", best, perm=[0, 2, 1]), 1), b.axes(down, 1), b.axes(top, 1))
        columns = b.axes(b.op("Transpose", columns, perm=[0, 2, 1]), 1)
        columns = b.op(
            "Expand", columns, b.op("Concat", *[b.op("Shape", rows), b.op("Shape", x, start=1, end=2)], axis=0)
        )
        column = b.op("Squeeze", b.op("GatherElements", columns, b.axes(rows, 3), axis=3), b.step.whole(3))
        at = b.op("Add", b.op("Add", b.op("Mul", rows, b.sizes[1]), column), b.firstRow(sample))
        isThere = b.op("And", b.axes(isAny(b, down), 1), b.axes(isAny(b, along), 0))
        isThere = b.op("Reshape", isThere, b.step.whole(-1, 1))
        at = b.op("Transpose", at, perm=[1, 2, 0])
        at = b.op("Reshape", at, b.op("Concat", b.step.whole(-1), b.channels, axis=0))
        return b.added(total, at, b.op("Where", isThere, grad, b.number(0, b.real)))

    return g.sumOfRegions(region), None


def maxima(b: RegionGradient, x: str, isInside: str, starts: str) -> tuple[str, str]:
    """(index of the first maximum along the last axis, the maximum), inside the region; if all is -infinity, the index
    of the first element inside."""
    masked = b.op("Where", isInside, x, b.number(-np.inf, b.real))
    index = b.op("ArgMax", masked, axis=-1, keepdims=0)
    return b.op("Max", index, starts), b.op("ReduceMax", masked, b.step.whole(-1), keepdims=0)


def isAny(b: RegionGradient, isInside: str) -> str:
    """True where a part has at least one element."""
    return b.cast(b.op("ReduceMax", b.cast(isInside, np.int32), b.step.whole(-1), keepdims=0), bool)


def part(b: RegionGradient, axis: int, count: int, region: str) -> tuple[str, str]:
    """(mask of the elements in each part along an axis, (count, n); the first element of each part, (count,))."""
    single = np.dtype(np.float32)
    ends = b.cast(region, single) if b.dtypes[1] != single else region
    n = b.sizes[axis]
    first, last = (rounded(b, b.op("Gather", ends, b.number(i, WHOLE))) for i in (2 - axis, 4 - axis))
    length = b.op("Add", b.op("Sub", last, first), b.number(1, WHOLE))
    length = b.op("Div", b.cast(b.op("Max", length, b.number(1, WHOLE)), single), b.number(count, single))
    starts = b.op("Floor", b.op("Mul", b.number(np.arange(count), single), length))
    stops = b.op("Ceil", b.op("Mul", b.number(np.arange(1, count + 1), single), length))
    starts, stops = (b.op("Add", b.cast(x, WHOLE), first) for x in (starts, stops))
    starts = b.op("Max", starts, b.number(0, WHOLE))
    positions = b.op("Range", b.number(0, WHOLE), n, b.number(1, WHOLE))
    isInside = b.op(
        "And", b.op("GreaterOrEqual", positions, b.axes(starts, 1)), b.op("Less", positions, b.axes(stops, 1))
    )
    return isInside, b.op("Min", starts, b.op("Sub", n, b.number(1, WHOLE)))


def rounded(b: RegionGradient, x: str) -> str:
    """A number times the scale, rounded to the nearest integer, halves away from 0."""
    single = np.dtype(np.float32)
    x = b.op("Mul", x, b.number(b.module.scale, single))
    size = b.op("Floor", b.op("Add", b.op("Abs", x), b.number(0.5, single)))
    return b.op("Cast", b.op("Mul", size, b.op("Sign", x)), to=kindOf(WHOLE))
