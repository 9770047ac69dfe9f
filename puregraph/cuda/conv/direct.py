"""Direct convolution as implicit GEMM, and its two gradients, for any rank, layout, stride and dilation.

    forward    y[n, o, a]  = sum over c, t of W[o, c, t] x[n, c, a stride + t dilation - before]
    data       dx[n, c, h] = sum over o, t of W[o, c, t] grad[n, o, a], where h = a stride + t dilation - before
    weight     dW[o, c, t] = sum over n, a of grad[n, o, a] x[n, c, a stride + t dilation - before]

Positions are rows and channels are columns; no im2col matrix is stored. Positions of dx whose distance is a multiple of
the stride read the same taps: each such phase has a launch of its own, and none multiplies by zeros.

16-bit channels of another layout are first copied channels last, for only contiguous elements are read 16 bytes at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import gcd
from typing import Any, NamedTuple

from puregraph.cuda.conv.epilogue import EpilogueOperandText, EpilogueText, sizeOf, stored
from puregraph.cuda.conv.implicitgemm import contraction
from puregraph.cuda.conv.operandlayout import ContractionOperand, Limit, Space
from puregraph.cuda.conv.tonhwc import Laid, turn
from puregraph.cuda.runtime.launch import Launch, steps
from puregraph.cuda.runtime.preprocess import STORED

EVEN = 8  # 16-bit elements that are loaded at once


class MapOperand(NamedTuple):
    """An operand (n, c, *spatial), or a weight: its dtype, its array, and its strides; `channels` is the number of
    channels of a group, zero padding included."""

    dtype: str
    what: Any
    n: int
    c: int
    places: tuple[int, ...]
    channels: int


def forward(y: Any, x: Any, W: Any, window: Any, groups: int, tail: EpilogueText | None = None) -> list[Launch] | Any:
    """y = x * W, or the epilogue of it, to which rows are (n, *positions), and columns channels."""
    if not areFloats(x, W):
        return NotImplemented
    outer, inner = W.shape[0] // groups, W.shape[1]
    rank, (first, maps) = len(window.size), brought(x, inner, groups)
    second, weight = broughtWith(maps, W, W.shape[0], maps.channels)
    order = depthOrder(maps)
    strides, taps = times(maps.places, window.stride), times(maps.places, window.dilation)
    limits = [
        Limit(length, -before, (0, *only(i, stride, rank)), order(0, only(i, dilation, rank)))
        for i, (length, _, stride, (before, _), dilation) in enumerate(zip(*window))
        if reachesOut(window, i)
    ]
    start = -dot(maps.places, [before for before, _ in window.pad])
    a = ContractionOperand(
        maps.dtype, maps.what, (maps.n, *strides), order(maps.c, taps), (maps.c * inner,), start, tuple(limits)
    )
    b = ContractionOperand(weight.dtype, weight.what, (weight.n,), order(weight.c, weight.places), (weight.n * outer,))
    space = Space((x.shape[0], *window.count), (outer,), order(maps.channels, window.size), (groups,))
    tail = (tail or tailOf(y)).moved(lambda c: grouped(c, outer))
    return after([*first, *second], contraction("convolve", space, a, b, tail))


def data(dx: Any, grad: Any, W: Any, window: Any, groups: int, tail: EpilogueText | None = None) -> list[Launch] | Any:
    """dx of y = x * W, or the epilogue of it, to which rows are (n, *positions), and columns channels."""
    if not areFloats(grad, W):
        return NotImplemented
    if not grad.shape[0]:
        return []
    outer, inner = W.shape[0] // groups, W.shape[1]
    rank, (first, maps) = len(window.size), brought(grad, outer, groups)
    second, weight = broughtWith(maps, W, maps.channels * groups, inner)
    order, found = depthOrder(maps), [*first, *second]
    phases = list(product(*[list(phasesOf(*axis)) for axis in zip(*window)]))
    for phase in phases:
        limits = [
            Limit(count, p.first, (0, *only(i, 1, rank)), order(0, only(i, -p.back, rank)))
            for i, (p, count) in enumerate(zip(phase, window.count))
            if len(phases) > 1 or p.reachesOut(count)
        ]
        back, start = times(maps.places, [-p.back for p in phase]), dot(maps.places, [p.first for p in phase])
        lanes, group = (maps.n, *maps.places), (maps.c * outer,)
        a = ContractionOperand(maps.dtype, maps.what, lanes, order(maps.c, back), group, start, tuple(limits))
        taps, tap = times(weight.places, [p.step for p in phase]), dot(weight.places, [p.tap for p in phase])
        b = ContractionOperand(weight.dtype, weight.what, (weight.c,), order(weight.n, taps), (weight.n * outer,), tap)
        rows = (grad.shape[0], *(p.places for p in phase))
        space = Space(rows, (inner,), order(maps.channels, [p.taps for p in phase]), (groups,))
        own = (tail or tailOf(dx)).moved(partial(phased, phase=phase, stride=window.stride, maps=inner))
        done = contraction("convolveData", space, a, b, own, isWhole=len(phases) > 1)
        if done is NotImplemented:
            return NotImplemented
        found += done
    return found


def weight(dW: Any, grad: Any, x: Any, window: Any, groups: int) -> list[Launch] | Any:
    """dW of y = x * W."""
    if not areFloats(grad, x):
        return NotImplemented
    outer, inner = dW.shape[0] // groups, dW.shape[1]
    first, slopes = brought(grad, outer, groups, isPadded=False)
    rank, (second, maps) = len(window.size), brought(x, inner, groups, isPadded=False)
    order = depthOrder(maps)
    strides, taps = times(maps.places, window.stride), times(maps.places, window.dilation)
    limits = [
        Limit(length, -before, order(0, only(i, dilation, rank)), (0, *only(i, stride, rank)))
        for i, (length, _, stride, (before, _), dilation) in enumerate(zip(*window))
        if reachesOut(window, i)
    ]
    start = -dot(maps.places, [before for before, _ in window.pad])
    a = ContractionOperand(slopes.dtype, slopes.what, (slopes.c,), (slopes.n, *slopes.places), (slopes.c * outer,))
    b = ContractionOperand(
        maps.dtype, maps.what, order(maps.c, taps), (maps.n, *strides), (maps.c * inner,), start, tuple(limits)
    )
    n, c, *places = steps(dW)
    tail = stored(dW, (n,), order(c, tuple(places)), (n * outer,))
    space = Space((outer,), order(inner, window.size), (x.shape[0], *window.count), (groups,))
    return after([*first, *second], contraction("convolveWeight", space, a, b, tail))


def areFloats(x: Any, y: Any) -> bool:
    """Whether both have the same dtype, and one that contractions support."""
    return x.dtype == y.dtype and STORED.get(x.dtype.name) in ("float", "double", "Half", "Bfloat")


def after(before: list[Launch], done: list[Launch] | Any) -> list[Launch] | Any:
    """Launches after others, if there are any."""
    return done if done is NotImplemented or not done else [*before, *done]


def tailOf(y: Any) -> EpilogueText:
    """The epilogue that stores into an array (n, c, *spatial)."""
    n, c, *places = steps(y)
    return stored(y, (n, *places), (c,))


def grouped(c: EpilogueOperandText, maps: int) -> EpilogueOperandText:
    """An operand over all channels, seen from each group of `channels`."""
    return c._replace(batch=(c.columns[0] * maps,))


# Layout ---------------------------------------------------------------------------------------------------------------


def brought(x: Any, channels: int, groups: int, isPadded: bool = True) -> tuple[list[Launch], MapOperand]:
    """The operand in a layout that is read quickly, and the launches that copy it."""
    n, c, *places = steps(x)
    maps = MapOperand(x.dtype.name, x, n, c, tuple(places), channels)
    isOdd = groups == 1 and channels % EVEN and isPadded
    if sizeOf(maps.dtype) > 2 or not x.size or (c == 1 and not isOdd):
        return [], maps
    return turned(x, x.shape[0], channels + -channels % EVEN if isOdd else channels, groups)


def broughtWith(maps: MapOperand, W: Any, samples: int, channels: int) -> tuple[list[Launch], MapOperand]:
    """The weight for such an operand, with as many filters and channels."""
    n, c, *places = steps(W)
    if (samples, channels) == W.shape[:2] and (c == 1 or maps.c != 1):
        return [], MapOperand(W.dtype.name, W, n, c, tuple(places), channels)
    return turned(W, samples, channels, 1)


def turned(x: Any, samples: int, channels: int, groups: int) -> tuple[list[Launch], MapOperand]:
    """An operand, copied channels last."""
    launch, y = turn(Laid(x.dtype.name, x, x.shape, steps(x)), samples, channels * groups)
    n, *places, c = steps(y)
    return [launch], MapOperand(x.dtype.name, y, n, c, tuple(places), channels)


def depthOrder(maps: MapOperand) -> Callable[[Any, Sequence[Any]], tuple[Any, ...]]:
    """Channels and taps in the order of memory, the contiguous one last."""
    isLast = maps.c <= min(map(abs, maps.places), default=maps.c)
    return lambda c, taps: (*taps, c) if isLast else (c, *taps)


def times(strides: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
    """Strides times factors, axis by axis."""
    return tuple([s * f for s, f in zip(strides, factors)])


def dot(strides: Sequence[int], places: Sequence[int]) -> int:
    """The offset of a position from the first."""
    return sum(times(strides, places))


def only(i: int, value: int, rank: int) -> tuple[int, ...]:
    """A value on one axis of `rank`, and zero on the others."""
    return (0,) * i + (value,) + (0,) * (rank - i - 1)


def reachesOut(window: Any, i: int) -> bool:
    """Whether windows reach beyond an end of an axis."""
    length, k, stride, (before, _), dilation = (each[i] for each in window)
    return before > 0 or (window.count[i] - 1) * stride - before + (k - 1) * dilation >= length


# Phases: positions that read the same taps ----------------------------------------------------------------------------


class Phase(NamedTuple):
    """Positions along one axis: start, start + stride, ..., `count` of them, with `taps` taps: tap, tap + step, ...
    The q-th position reads with the j-th tap the element at q + first - j back."""

    start: int
    places: int
    tap: int
    step: int
    taps: int
    first: int
    back: int

    def reachesOut(self, count: int) -> bool:
        """Whether a read element is beyond the ends."""
        return self.first + self.places - 1 >= count or self.first - (self.taps - 1) * self.back < 0


def phasesOf(length: int, size: int, stride: int, pad: tuple[int, int], dilation: int) -> Iterator[Phase]:
    """The phases of an axis: h = a stride + t dilation - before, solved for a and t, for each h modulo the stride."""
    before, common = pad[0], gcd(stride, dilation)
    step = stride // common
    for start in range(min(stride, length)):
        tap = next((t for t in range(step) if (start + before - t * dilation) % stride == 0), size)
        taps = max(0, -(-(size - tap) // step))
        places = -(-(length - start) // stride)
        first = (start + before - tap * dilation) // stride
        yield Phase(start, places, tap if taps else 0, step, taps, first, dilation // common)


def phased(c: EpilogueOperandText, phase: Sequence[Phase], stride: Sequence[int], maps: int) -> EpilogueOperandText:
    """An operand over all positions and channels, seen from those of a phase and each group of `channels`."""
    n, *places = c.rows
    start = c.start + dot(places, [p.start for p in phase])
    return grouped(c._replace(rows=(n, *times(places, stride)), start=start), maps)
